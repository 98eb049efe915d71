//! What workers report.

use super::event::{Effect, Refusal};
use super::iteration::Taken;
use super::leases::Finished;
use super::{Engine, Phase};
use ata_types::{LeaseId, TaskOutcome, WorkerId};

impl Engine {
    /// A worker finished a lease.
    pub(super) fn done(
        &mut self,
        now_s: f64,
        worker: WorkerId,
        id: LeaseId,
        busy_s: &[f64],
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let lease = self.leases.find(worker, id).ok_or(Refusal::NotHeld(id))?;
        let reported_s: f64 = busy_s.iter().sum();
        let is_valid = busy_s.iter().all(|time| *time >= 0.0) && reported_s.is_finite();
        let fuses = self.roster.fuses()[worker.slot()];
        let times = if fuses { 1 } else { lease.tasks.count };
        if busy_s.len() as u64 != times || !is_valid {
            return Err(Refusal::BadTimes { lease: id, times });
        }
        let finished = self.leases.finish(now_s, worker, id, reported_s).ok_or(Refusal::NotHeld(id))?;
        let Finished { lease, factor, overhead_s } = finished;
        self.roster.delivered(worker);
        self.results += 1;
        if fuses {
            self.observe_batch(worker, lease.tasks.count, reported_s * factor);
        } else {
            for time in busy_s {
                self.observe(worker, time * factor);
            }
        }
        if let Some(overhead_s) = overhead_s {
            self.observe_overhead(worker, overhead_s);
        } else {
            self.set_deadline(worker);
        }
        let taken = Taken { worker, lease, busy_s: reported_s * factor, factor, overhead_s };
        match &mut self.phase {
            Phase::Collecting(iteration) if !iteration.is_asynchronous() => self.collect(now_s, taken, effects),
            // Only asynchronous leases outlive their iteration.
            _ => self.arrived(now_s, taken, effects),
        }
        Ok(())
    }

    /// A result of a barrier or racing iteration.
    fn collect(&mut self, now_s: f64, taken: Taken, effects: &mut Vec<Effect>) {
        if self.must_be_confirmed(&taken.lease) {
            return self.unconfirmed(now_s, taken, effects);
        }
        let has_paused = self.record_success();
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        let Taken { worker, lease, busy_s, .. } = taken;
        if iteration.mode.wants(lease.tasks) {
            effects.push(taken.end(TaskOutcome::Applied));
            iteration.take(taken);
            self.stop_copies(now_s, &taken, effects);
        } else {
            effects.push(taken.end(TaskOutcome::Ignored));
            self.waste.add(lease.tasks.count, busy_s);
        }
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        let (is_complete, has_leftovers) = (iteration.mode.is_complete(), !iteration.orphans.is_empty());
        let is_free = self.leases.is_free(worker);
        if is_free {
            self.roster.release(worker);
        }
        if is_complete {
            self.step(now_s, effects);
        } else {
            if is_free {
                self.assign_next(now_s, worker, effects);
            }
            if has_paused {
                return self.recover(now_s, effects);
            }
            if has_leftovers {
                self.reassign(now_s, effects);
            }
            self.resume(now_s, effects);
        }
    }

    /// A result of an asynchronous run arrived; it waits while a step is under way.
    fn arrived(&mut self, now_s: f64, arrival: Taken, effects: &mut Vec<Effect>) {
        self.record_success();
        self.roster.await_step(arrival.worker);
        self.arrivals.push_back(arrival);
        self.next_arrival(now_s, effects);
    }

    /// Goes through the results that have arrived, up to the next one that makes a step.
    pub(super) fn next_arrival(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        while let Phase::Collecting(iteration) = &mut self.phase
            && let Some(lateness) = iteration.mode.lateness()
            && let Some(arrival) = self.arrivals.pop_front()
        {
            let Taken { worker, lease, busy_s, .. } = arrival;
            self.roster.stepped(worker);
            self.roster.release(worker);
            if iteration.number.since(lease.iteration) < lateness.max_delay {
                effects.push(arrival.end(TaskOutcome::Applied));
                iteration.take(arrival);
                self.step(now_s, effects);
            } else {
                effects.push(arrival.end(TaskOutcome::Ignored));
                self.waste.add(lease.tasks.count, busy_s);
                self.employ_idle(now_s, effects);
            }
        }
    }

    /// A lease failed: its worker could not compute it, or its gradient was refused.
    pub(super) fn failed(
        &mut self,
        now_s: f64,
        worker: WorkerId,
        id: LeaseId,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let ended = self.leases.revoke(now_s, worker, id).ok_or(Refusal::NotHeld(id))?;
        let (lease, lost_s) = (ended.lease, ended.begun_s.unwrap_or(0.0));
        self.waste.add(lease.tasks.count, lost_s);
        effects.push(Effect::End { worker, lease, outcome: TaskOutcome::Failed, time: ended.time() });
        if self.strike(now_s, worker, lost_s, effects) {
            let eased = self.roster.ease(now_s, worker, self.config.rest_s);
            effects.extend(eased.into_iter().map(|(worker, rest_s, strikes)| Effect::Rest { worker, rest_s, strikes }));
        }
        if self.leases.is_free(worker) {
            self.roster.release(worker);
        } else {
            self.set_deadline(worker);
        }
        if !self.is_asked_again(worker, &lease, true) {
            let mut blame = ended.blame.unwrap_or_default();
            blame.add(worker);
            for tasks in self.left_of(worker, &lease, true) {
                self.orphan(tasks, Some(&blame));
            }
        }
        self.blame_asynchronously(now_s, worker, lease.tasks, effects);
        self.expel_if_due(now_s, worker, effects);
        self.recover(now_s, effects);
        Ok(())
    }
}
