//! The parameters that workers compute at.

use ata_wire::{FramedTensor, Pool};
use bytes::Bytes;

/// The parameters of one iteration, ready to be sent. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct ParameterSet {
    pub(crate) iteration: u64,
    /// Little-endian f32.
    values: Bytes,
    /// The same, as they are sent.
    pub(crate) framed: FramedTensor,
}

impl ParameterSet {
    /// Parameters in a buffer that goes back to `pool`.
    pub(crate) fn new(iteration: u64, parameters: Vec<f32>, pool: &Pool) -> Self {
        let values = pool.lend(parameters);
        Self { iteration, framed: FramedTensor::new(iteration, values.clone()), values }
    }

    /// The parameters, in the model's flat order.
    pub(crate) fn values(&self) -> &[f32] {
        bytemuck::cast_slice(&self.values)
    }

    /// SHA-256 of the parameters as little-endian f32.
    pub(crate) fn sha256(&self) -> [u8; 32] {
        ata_learn::sha256_of_parameters(self.values())
    }
}
