//! Results that workers report.

use super::{Collecting, CollectingEnd, Flow};
use crate::engine::account::AcceptedResult;
use crate::engine::shared::Shared;
use crate::policy::Collect;
use ata_types::TaskOutcome;

impl Collecting {
    /// Handles a lease that a worker reported as done.
    pub(in crate::engine) fn lease_done(&mut self, shared: &mut Shared, result: AcceptedResult) -> Flow {
        let AcceptedResult { worker, lease, busy_s, .. } = result;
        let is_own = lease.own.is_some();
        let had_paused = !is_own && !self.are_collections_failing() && shared.failures.end();
        if is_own {
            // The result counts once it is delivered.
        } else if self.mode.wants(lease.tasks) {
            self.keep(result);
            self.stop_copies(shared, &result);
        } else {
            shared.roster.forgive(worker);
            shared.effects.push(result.end(TaskOutcome::Ignored));
            shared.waste.add(lease.tasks.count, busy_s);
        }
        let has_leftovers = !self.orphans.is_empty();
        let is_free = shared.leases.is_free(worker);
        if is_free {
            shared.roster.release(worker);
        }
        if self.mode.is_complete() {
            return Flow::Break(CollectingEnd::Complete);
        }
        if is_free {
            self.assign_next(shared, worker);
        }
        if had_paused {
            return self.recover(shared);
        }
        if has_leftovers {
            self.reassign(shared)?;
        }
        self.replan(shared)
    }

    /// Handles the delivery of a collection with one lease.
    pub(in crate::engine) fn arrived(&mut self, shared: &mut Shared, result: AcceptedResult) -> Flow {
        if self.is_asynchronous() {
            shared.await_step(result);
            return self.next_arrival(shared);
        }
        self.unconfirmed(shared, result)
    }

    /// Goes through the results of an asynchronous run that have arrived, up to the next one that makes a step.
    pub(super) fn next_arrival(&mut self, shared: &mut Shared) -> Flow {
        while let Collect::Each { max_delay, .. } = self.decision.collect
            && let Some(result) = shared.arrivals.pop_front()
        {
            let AcceptedResult { worker, lease, busy_s, .. } = result;
            shared.roster.stepped(worker);
            shared.roster.release(worker);
            if self.number.since(lease.iteration) < max_delay {
                self.take_own(result);
                return Flow::Break(CollectingEnd::Complete);
            }
            shared.effects.push(result.end(TaskOutcome::Ignored));
            shared.waste.add(lease.tasks.count, busy_s);
            self.employ_idle(shared);
        }
        Flow::Continue(())
    }
}
