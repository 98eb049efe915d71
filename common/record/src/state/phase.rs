//! What a run is doing.

use crate::event::EndState;

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPhase {
    /// It has not begun, or waits for workers.
    Waiting {
        /// Workers present.
        present: usize,
        /// Workers needed.
        needed: usize,
    },
    /// It iterates.
    Training,
    /// It evaluates on the test data, after the last step.
    Evaluating,
    /// It is over.
    Over(EndState),
}

impl Default for RunPhase {
    fn default() -> Self {
        Self::Waiting { present: 0, needed: 0 }
    }
}
