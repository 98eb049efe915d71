//! What workers are told about their vectors.

use ata_types::VectorId;
use ata_wire::VectorRequest;

/// What to tell a worker about its vectors.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) withdrawn: Vec<VectorId>,
    pub(crate) requests: Vec<VectorRequest>,
}

impl Requests {
    /// Withdraws a vector, and asks for none.
    pub(crate) fn withdrawal(vector: VectorId) -> Self {
        Self { withdrawn: vec![vector], requests: Vec::new() }
    }
}

impl From<VectorRequest> for Requests {
    fn from(request: VectorRequest) -> Self {
        Self { withdrawn: Vec::new(), requests: vec![request] }
    }
}
