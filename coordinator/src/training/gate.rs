//! Lets the chunks of a collection through to the training thread, until it is closed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Lets chunks through in order, whatever the order in which they come. Once it is closed, none passes, so that its count is final.
/// Clones are the same gate.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    is_open: bool,
    /// The next chunk to pass.
    next: u64,
    /// Chunks that came before it, if several workers send them.
    early: BTreeMap<u64, Vec<i32>>,
}

impl Gate {
    /// A gate for the chunks from `first` on.
    pub(crate) fn new(first: u64) -> Self {
        Self(Arc::new(Mutex::new(State { is_open: true, next: first, early: BTreeMap::new() })))
    }

    /// Takes chunk `at`, and lets it and those after it through whose turn it is. Returns whether the gate is open.
    pub(crate) fn let_through(&self, at: u64, sums: Vec<i32>, mut pass: impl FnMut(u64, Vec<i32>)) -> bool {
        let mut state = self.state();
        if state.is_open {
            state.early.insert(at, sums);
            while let Some(sums) = {
                let next = state.next;
                state.early.remove(&next)
            } {
                pass(state.next, sums);
                state.next += 1;
            }
        }
        state.is_open
    }

    /// The next chunk to pass.
    pub(crate) fn next(&self) -> u64 {
        self.state().next
    }

    /// Closes the gate. Returns the first chunk that did not pass.
    pub(crate) fn close(&self) -> u64 {
        let mut state = self.state();
        (state.is_open, state.early) = (false, BTreeMap::new());
        state.next
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_passes_a_closed_gate() {
        let (gate, mut passed) = (Gate::new(3), Vec::new());
        let mut pass = |gate: &Gate, at| gate.let_through(at, Vec::new(), |at, _| passed.push(at));
        assert!(pass(&gate, 3) && pass(&gate.clone(), 4));
        assert_eq!(gate.close(), 5);
        assert!(!pass(&gate, 5));
        assert_eq!((passed, gate.close()), (vec![3, 4], 5));
    }

    /// Each of several workers sends its own chunks.
    #[test]
    fn chunks_pass_in_order() {
        let (gate, mut passed) = (Gate::new(0), Vec::new());
        for at in [1, 3, 0, 2, 5] {
            assert!(gate.let_through(at, vec![at as i32], |at, sums| passed.push((at, sums[0]))));
        }
        assert_eq!(passed, [(0, 0), (1, 1), (2, 2), (3, 3)]);
        assert_eq!(gate.close(), 4, "what has not passed does not count");
    }
}
