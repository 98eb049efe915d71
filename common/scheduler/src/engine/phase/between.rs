//! The phase before the first iteration, or between two, in which the driver saves the state.

use std::sync::Arc;

use super::{Collecting, Phase};
use crate::engine::{AbortReason, Effect, FinishReason, Shared, WaitReason};
use ata_types::Iteration;

pub(in crate::engine) struct Between {
    pub(in crate::engine) next: Iteration,
    /// The rule that ended the run before it was saved and restored, if one did.
    pub(in crate::engine) finished: Option<FinishReason>,
    /// Whether [`crate::Event::Proceed`] has arrived.
    pub(in crate::engine) may_begin: bool,
}

impl Between {
    pub(in crate::engine) fn new(next: Iteration, finished: Option<FinishReason>) -> Self {
        Self { next, finished, may_begin: false }
    }

    /// Decides on the next iteration, if it may begin and there are workers for it. Returns the phase that follows.
    pub(in crate::engine) fn start(&self, shared: &mut Shared) -> Option<Phase> {
        if !self.may_begin {
            return None;
        }
        if let Some(reason) = self.finished {
            return Some(Phase::finish(shared, self.next, reason));
        }
        let present = shared.roster.present().len();
        let needed = if shared.has_begun { 1 } else { shared.config.min_workers };
        if present < needed {
            shared.wait(WaitReason::Workers { present, needed });
            if let Some(count) = &mut shared.task_count {
                count.interrupt();
            }
            return None;
        }
        shared.last_wait = None;
        shared.has_begun = true;
        shared.began_s.get_or_insert(shared.now_s);
        for worker in shared.priors.review(self.next, &mut shared.statistics) {
            shared.policy.learned(worker, &shared.statistics[worker.slot()]);
        }
        let workers = shared.roster.available();
        let position = shared.config.position(self.next, shared.ledger.tasks_applied);
        let tasks = shared.choose_tasks(self.next, position);
        let decision = match shared.decide(self.next, tasks, &workers) {
            Ok(decision) => Arc::new(decision),
            Err(problem) => {
                let (iteration, policy) = (self.next, shared.policy.name());
                let reason = AbortReason::BadDecision { iteration, policy, problem };
                return Some(Phase::abort(shared, self.next, reason));
            }
        };
        let count = workers.len() as u64;
        let probed = shared.links.next_probe(&workers);
        shared.effects.extend(probed.map(|(worker, bytes)| Effect::ProbeLink { worker, bytes }));
        shared.effects.push(Effect::Start { iteration: self.next, position, workers, decision: Arc::clone(&decision) });
        Some(Phase::Collecting(Box::new(Collecting::new(shared, self.next, count, decision))))
    }
}
