//! The phase that a run is in.

use serde::{Deserialize, Serialize};

use crate::event::EndState;

/// The phase that a run is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunPhase {
    /// The run has not begun, or waits for workers.
    Waiting {
        /// The number of workers present.
        present: usize,
        /// The number of workers needed.
        needed: usize,
    },
    /// The run iterates.
    Training,
    /// The run is being evaluated on the test data, after the last step.
    Evaluating,
    /// The run is over.
    Over(EndState),
}

impl Default for RunPhase {
    fn default() -> Self {
        Self::Waiting { present: 0, needed: 0 }
    }
}
