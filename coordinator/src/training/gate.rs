//! Lets the chunks of a collection through to the training thread, until it is closed.

use std::sync::{Arc, Mutex, PoisonError};

/// Counts the chunks that pass. Once it is closed, none does, so that its count is final. Clones are the same gate.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    is_open: bool,
    /// The next chunk to pass.
    next: u64,
}

impl Gate {
    /// A gate for the chunks from `first` on.
    pub(crate) fn new(first: u64) -> Self {
        Self(Arc::new(Mutex::new(State { is_open: true, next: first })))
    }

    /// Lets the next chunk through: `pass` gets its number. Returns whether the gate is open.
    pub(crate) fn let_through(&self, pass: impl FnOnce(u64)) -> bool {
        let mut state = self.state();
        if state.is_open {
            pass(state.next);
            state.next += 1;
        }
        state.is_open
    }

    /// Closes the gate. Returns the first chunk that did not pass.
    pub(crate) fn close(&self) -> u64 {
        let mut state = self.state();
        state.is_open = false;
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
        assert!(gate.let_through(|at| passed.push(at)) && gate.clone().let_through(|at| passed.push(at)));
        assert_eq!(gate.close(), 5);
        assert!(!gate.let_through(|at| passed.push(at)));
        assert_eq!((passed, gate.close()), (vec![3, 4], 5));
    }
}
