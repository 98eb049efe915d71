//! The phase before the first iteration, or between two, in which the driver saves the state.

use super::{Collecting, Phase};
use crate::engine::{FinishReason, Shared};
use ata_types::Iteration;

pub(crate) struct Between {
    pub(crate) next: Iteration,
    /// The rule that ended the run before it was saved and restored, if one did.
    pub(crate) finished: Option<FinishReason>,
    /// Whether [`crate::Event::Proceed`] has arrived.
    pub(crate) may_begin: bool,
}

impl Between {
    pub(crate) fn new(next: Iteration, finished: Option<FinishReason>) -> Self {
        Self { next, finished, may_begin: false }
    }

    /// Decides on the next iteration, if it may begin and there are workers for it. Returns the phase that follows.
    pub(crate) fn start(&self, shared: &mut Shared) -> Option<Phase> {
        if !self.may_begin {
            return None;
        }
        if let Some(reason) = self.finished {
            return Some(Phase::finish(shared, self.next, reason));
        }
        if let Some(ahead) = shared.ahead.take() {
            return Some(Phase::Collecting(ahead));
        }
        let present = shared.roster.present.len();
        let needed = if shared.has_begun { 1 } else { shared.config.min_workers };
        if present < needed {
            shared.wait(present, needed);
            if let Some(count) = &mut shared.task_count {
                count.interrupt();
            }
            return None;
        }
        shared.last_wait = None;
        shared.has_begun = true;
        shared.began_s.get_or_insert(shared.now_s);
        let position = shared.config.position(self.next, shared.ledger.tasks_applied);
        Some(match Collecting::decide(shared, self.next, position) {
            Ok(collecting) => Phase::Collecting(Box::new(collecting)),
            Err(reason) => Phase::abort(shared, self.next, reason),
        })
    }
}
