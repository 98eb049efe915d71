//! The parameters that workers compute at, and the versions they have yet to fetch.

use std::collections::BTreeMap;
use std::sync::Arc;

use ata_wire::proto::Chunk;

/// The parameters of one iteration, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct ParameterSet {
    pub(crate) iteration: u64,
    pub(crate) values: Arc<Vec<f32>>,
    /// The same, as they are sent: made once, and shared by the transfers to all workers.
    pub(crate) chunks: Vec<Chunk>,
}

impl ParameterSet {
    pub(crate) fn new(iteration: u64, parameters: &[f32]) -> Self {
        let values = Arc::new(parameters.to_vec());
        let bytes = ata_wire::f32_bytes(Values(values.clone()));
        Self { iteration, values, chunks: ata_wire::chunks(bytes).collect() }
    }

    /// SHA-256 of the parameters as little-endian f32.
    pub(crate) fn sha256(&self) -> [u8; 32] {
        ata_learn::sha256_of_parameters(&self.values)
    }
}

struct Values(Arc<Vec<f32>>);

impl AsRef<[f32]> for Values {
    fn as_ref(&self) -> &[f32] {
        &self.0
    }
}

/// The current parameters, and the earlier versions that workers of an asynchronous run were assigned tasks at and have
/// not fetched yet: at most one per worker.
#[derive(Debug)]
pub(crate) struct ParameterVersions {
    current: ParameterSet,
    earlier: BTreeMap<u64, ParameterSet>,
    /// How many workers have yet to fetch the parameters of an iteration.
    owed: BTreeMap<u64, usize>,
}

impl ParameterVersions {
    pub(crate) fn new(current: ParameterSet) -> Self {
        Self { current, earlier: BTreeMap::new(), owed: BTreeMap::new() }
    }

    pub(crate) fn current(&self) -> &ParameterSet {
        &self.current
    }

    /// The parameters of an iteration, if they are still kept.
    pub(crate) fn of(&self, iteration: u64) -> Option<&ParameterSet> {
        if iteration == self.current.iteration { Some(&self.current) } else { self.earlier.get(&iteration) }
    }

    /// Replaces the current parameters after a step.
    pub(crate) fn advance(&mut self, next: ParameterSet) {
        let last = std::mem::replace(&mut self.current, next);
        if self.owed.contains_key(&last.iteration) {
            self.earlier.insert(last.iteration, last);
        }
    }

    /// Updates which version a worker has yet to fetch.
    pub(crate) fn owe(&mut self, before: Option<u64>, now: Option<u64>) {
        if before == now {
            return;
        }
        if let Some(iteration) = now {
            *self.owed.entry(iteration).or_default() += 1;
        }
        if let Some(iteration) = before
            && let Some(count) = self.owed.get_mut(&iteration)
        {
            *count -= 1;
            if *count == 0 {
                self.owed.remove(&iteration);
                self.earlier.remove(&iteration);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_kept_for_those_who_need_them() {
        let mut versions = ParameterVersions::new(ParameterSet::new(1, &[1.0]));
        versions.owe(None, Some(1));
        versions.owe(None, Some(1));
        versions.advance(ParameterSet::new(2, &[2.0]));
        versions.advance(ParameterSet::new(3, &[3.0]));
        assert!(versions.of(1).is_some() && versions.of(2).is_none() && versions.of(3).is_some());
        versions.owe(Some(1), None);
        assert!(versions.of(1).is_some(), "the other worker still needs it");
        versions.owe(Some(1), Some(3));
        assert!(versions.of(1).is_none());
        versions.owe(Some(3), None);
        assert!(versions.of(3).is_some(), "the current one stays");
    }
}
