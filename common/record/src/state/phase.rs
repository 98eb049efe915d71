//! The phase that a run is in, and how far it is.

use serde::{Deserialize, Serialize};

use super::RunState;
use crate::event::{EndState, RunEvent};

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

impl RunState {
    /// Returns whether the run's first event was applied.
    pub fn has_begun(&self) -> bool {
        !self.run_id.is_empty()
    }

    /// Returns whether the run is over.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, RunPhase::Over(_))
    }

    /// Returns seconds from the first assignment to the last step.
    pub fn runtime_s(&self) -> f64 {
        self.span_s.map_or(0.0, |(first, last)| last - first)
    }

    /// Returns how many of [`Self::target_iterations`] are done: if their number of tasks is chosen, as many as have the tasks so far.
    pub fn progress(&self) -> u64 {
        if self.most_tasks.is_some() { self.totals.tasks_applied / self.budget.max(1) } else { self.iterations }
    }

    pub(super) fn resume(&mut self, event: &RunEvent) {
        let RunEvent::Resume { time_s, policy, iteration, iterations, .. } = event else { return };
        self.policy.clone_from(policy);
        self.target_iterations = *iterations;
        (self.phase, self.end, self.saved) = (RunPhase::default(), None, Some(*iteration));
        self.allocation.shares.clear();
        self.pending.clear();
        for worker in self.workers.values_mut() {
            worker.present = false;
            worker.usage.leave(*time_s);
        }
    }
}
