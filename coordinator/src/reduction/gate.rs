//! The gate through which the chunks of a vector pass to the training thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ata_types::VectorId;
use ata_wire::GradientHeader;

use crate::training::SumChunk;

/// Passes chunks on in order, whatever order they arrive in. Once the gate is closed, no chunk passes, so that its count is final. The
/// headers take effect with the last chunk, so that claims of a refused vector are never used. Clones share the gate.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<Mutex<GateState>>);

#[derive(Debug)]
struct GateState {
    /// The name of the sum for the training thread.
    vector: VectorId,
    is_open: bool,
    /// The number of chunks of a whole vector.
    chunks: u64,
    next: u64,
    /// The chunks that arrived before their turn, if several workers send them.
    early: BTreeMap<u64, Vec<i32>>,
    headers: Vec<GradientHeader>,
}

impl Gate {
    /// Creates a gate for a sum of `chunks` chunks, starting at chunk `first`.
    pub(crate) fn new(vector: VectorId, first: u64, chunks: u64) -> Self {
        let (early, headers) = (BTreeMap::new(), Vec::new());
        let state = GateState { vector, is_open: true, chunks, next: first, early, headers };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Adds the header of a vector, before any of its chunks.
    pub(crate) fn announce(&self, header: GradientHeader) {
        self.state().headers.push(header);
    }

    /// Accepts chunk `at`, and passes on all chunks whose turn it is. Returns whether the gate is open.
    pub(crate) fn let_through(&self, at: u64, sums: Vec<i32>, mut pass: impl FnMut(SumChunk)) -> bool {
        let mut guard = self.state();
        let state = &mut *guard;
        if state.is_open {
            state.early.insert(at, sums);
            while let Some(sums) = state.early.remove(&state.next) {
                let (vector, at) = (state.vector, state.next);
                state.next += 1;
                let is_last = state.next == state.chunks;
                let headers = if is_last { std::mem::take(&mut state.headers) } else { Vec::new() };
                pass(SumChunk { vector, at, sums, headers });
            }
        }
        state.is_open
    }

    pub(crate) fn next(&self) -> u64 {
        self.state().next
    }

    /// Closes the gate. Returns the first chunk that did not pass.
    pub(crate) fn close(&self) -> u64 {
        let mut state = self.state();
        (state.is_open, state.early) = (false, BTreeMap::new());
        state.next
    }

    fn state(&self) -> std::sync::MutexGuard<'_, GateState> {
        // No code panics while it holds the lock, so the lock is never poisoned.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each worker sends its own chunks, and the headers take effect once all chunks have passed.
    #[test]
    fn chunks_pass_in_order_and_headers_count_with_the_last() {
        let (gate, mut passed) = (Gate::new(VectorId(7), 0, 5), Vec::new());
        let mut send = |at: u64| {
            let pass = |chunk: SumChunk| {
                assert_eq!(chunk.vector, VectorId(7));
                passed.push((chunk.at, chunk.sums[0], chunk.headers.len()));
            };
            assert!(gate.let_through(at, vec![at as i32], pass));
        };
        (0..2).for_each(|_| gate.announce(GradientHeader::default()));
        [1, 3, 0, 2].into_iter().for_each(&mut send);
        assert_eq!(gate.next(), 4);
        send(4);
        assert_eq!(passed, [(0, 0, 0), (1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 4, 2)]);
        assert_eq!(gate.close(), 5);
    }
}
