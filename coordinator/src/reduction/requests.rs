//! What workers are told about their vectors.

use ata_types::VectorId;
use ata_wire::Collection;

/// What to tell a worker about its vectors.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) withdrawn: Vec<VectorId>,
    pub(crate) collections: Vec<Collection>,
}

impl Requests {
    /// Withdraws a vector, and asks for none.
    pub(crate) fn withdrawal(vector: VectorId) -> Self {
        Self { withdrawn: vec![vector], collections: Vec::new() }
    }
}

impl From<Collection> for Requests {
    fn from(collection: Collection) -> Self {
        Self { withdrawn: Vec::new(), collections: vec![collection] }
    }
}
