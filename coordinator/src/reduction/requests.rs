//! Messages to workers about their vectors.

use ata_types::VectorId;
use ata_wire::VectorRequest;

/// The vectors to withdraw and to request from a worker.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) withdrawn: Vec<VectorId>,
    pub(crate) requests: Vec<VectorRequest>,
}

impl Requests {
    /// Withdraws a vector without requesting another.
    pub(crate) fn withdrawal(vector: VectorId) -> Self {
        Self { withdrawn: vec![vector], requests: Vec::new() }
    }
}

impl From<VectorRequest> for Requests {
    fn from(request: VectorRequest) -> Self {
        Self { withdrawn: Vec::new(), requests: vec![request] }
    }
}
