//! Virtual workers: what each of them computes, and when it finishes.

use ata_scheduler::{Engine, Report};
use ata_types::{Lease, LeaseId, MachineId, TaskOutcome, Time, WorkerId};

use super::completions::{Completion, CompletionKind, Completions};
use super::{Cluster, Occurrence};
use crate::change::Change;
use crate::law::LONGEST;
use crate::observer::Observer;
use crate::times::TaskTimes;

/// The number of void results up to which they are not removed.
const FEW: usize = 1024;

pub(crate) struct VirtualWorkers<'a, T> {
    times: &'a mut T,
    /// The cost of each assignment before computation begins, if there is any.
    overhead: Option<&'a mut T>,
    workers: Vec<VirtualWorker>,
    completions: Completions,
    /// The task times of pending results of several tasks; positions are reused.
    busy: Vec<Vec<f64>>,
    free: Vec<u32>,
    /// The result that [`Self::next_ended`] returned last.
    reported: Option<CompletionKind>,
    /// The number of leases that are assigned.
    assigned: usize,
    /// The cancelled leases that their workers are still computing.
    cancelled: Vec<(WorkerId, LeaseId)>,
    /// Whether a worker ever hung, so that some leases may never end by themselves.
    any_hung: bool,
}

#[derive(Clone, Copy)]
struct VirtualWorker {
    /// The time at which the worker finishes its leases.
    free_at: f64,
    /// The factor on the law's draws.
    slowness: f64,
    /// The worker from whose law it draws.
    law: WorkerId,
    health: Health,
    fuses: bool,
    /// The number of times that it was interrupted: earlier results are void.
    interrupts: u32,
    held: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Good,
    Hangs,
    Fails,
}

impl<'a, T: TaskTimes> VirtualWorkers<'a, T> {
    pub(crate) fn new(workers: u32, times: &'a mut T, overhead: Option<&'a mut T>) -> Self {
        let worker = |slot| VirtualWorker {
            free_at: 0.0,
            slowness: 1.0,
            law: WorkerId::from_slot(slot),
            health: Health::Good,
            fuses: times.fuses(WorkerId::from_slot(slot)),
            interrupts: 0,
            held: 0,
        };
        let workers = (0..workers as usize).map(worker).collect();
        Self {
            times,
            overhead,
            workers,
            completions: Completions::default(),
            busy: Vec::new(),
            free: Vec::new(),
            reported: None,
            assigned: 0,
            cancelled: Vec::new(),
            any_hung: false,
        }
    }

    /// Stops a worker at once; its pending results are void.
    pub(super) fn interrupt(&mut self, now: f64, worker: WorkerId) {
        let state = &mut self.workers[worker.slot()];
        state.free_at = now;
        state.interrupts = state.interrupts.wrapping_add(1);
    }

    /// Stops a worker from computing a lease: see [`Self::settle`].
    pub(super) fn cancel(&mut self, worker: WorkerId, lease: LeaseId) {
        self.release(worker);
        self.cancelled.push((worker, lease));
    }

    /// Drops a lease that an interrupted worker did not compute.
    pub(super) fn lose(&mut self, now: f64, worker: WorkerId) {
        self.release(worker);
        self.interrupt(now, worker);
    }

    /// Drops the void results of interrupted workers. At least half of the results are void by then, so the cost of
    /// looking at all of them is spread over those that are dropped.
    fn clear_out(&mut self) {
        if self.completions.len() > 2 * self.assigned + FEW {
            let workers = &self.workers;
            let is_live = |next: &Completion| next.interrupts == workers[next.worker.slot()].interrupts;
            self.completions.retain(self.assigned == 0, is_live);
        }
    }

    fn stop(&mut self, now: f64, worker: WorkerId, cancelled: &[(WorkerId, LeaseId)]) {
        let VirtualWorker { held, interrupts, .. } = self.workers[worker.slot()];
        if held == 0 {
            return self.interrupt(now, worker);
        }
        let mut pending = self.completions.take(|next| next.worker == worker && next.interrupts == interrupts);
        pending.sort();
        let mut spared = 0.0;
        let mut begins = now;
        for next in pending {
            let ends = next.at.0;
            if cancelled.binary_search(&(worker, next.lease)).is_ok() {
                spared += ends - begins.max(now);
                self.recycle(Some(next.ending));
            } else {
                self.completions.push(Completion { at: Time(ends - spared), ..next });
            }
            begins = ends;
        }
        self.workers[worker.slot()].free_at -= spared;
    }

    fn release(&mut self, worker: WorkerId) {
        self.workers[worker.slot()].held -= 1;
        self.assigned -= 1;
    }

    /// Returns the next lease that ends by itself.
    pub(super) fn next_ended(&mut self) -> Option<(f64, WorkerId, LeaseId, Report<'_>)> {
        let reported = self.reported.take();
        self.recycle(reported);
        self.next_at()?;
        let Completion { at, lease, worker, ending, .. } = self.completions.pop()?;
        self.release(worker);
        let report = match self.reported.insert(ending) {
            CompletionKind::One(time) => Report::Done { busy_s: std::slice::from_ref(&time.0), waited_s: 0.0 },
            CompletionKind::Several(place) => Report::Done { busy_s: &self.busy[*place as usize], waited_s: 0.0 },
            CompletionKind::Failure => Report::Failed { uncomputable: false },
        };
        Some((at.0, worker, lease, report))
    }

    fn recycle(&mut self, ending: Option<CompletionKind>) {
        if let Some(CompletionKind::Several(place)) = ending {
            self.free.push(place);
        }
    }

    /// Gives a worker a lease that it can begin at `ready`.
    pub(super) fn assign_from(&mut self, now: f64, ready: f64, worker: WorkerId, lease: Lease) {
        self.settle(now);
        self.assigned += 1;
        let state = &mut self.workers[worker.slot()];
        state.held += 1;
        let mut at = state.free_at;
        if at <= ready {
            at = ready + self.overhead.as_mut().map_or(0.0, |overhead| overhead.draw(worker));
        }
        let mut draw = || {
            let time = (state.slowness * self.times.draw(state.law)).min(LONGEST);
            at += time;
            time
        };
        let ending = if lease.tasks.count == 1 {
            CompletionKind::One(Time(draw()))
        } else if state.fuses {
            let time = (state.slowness * self.times.draw_batch(state.law, lease.tasks.count)).min(LONGEST);
            at += time;
            CompletionKind::One(Time(time))
        } else {
            let place = self.free.pop().unwrap_or_else(|| {
                self.busy.push(Vec::new());
                self.busy.len() as u32 - 1
            });
            let busy = &mut self.busy[place as usize];
            busy.clear();
            busy.extend(lease.tasks.indices().map(|_| draw()));
            CompletionKind::Several(place)
        };
        state.free_at = at;
        let ending = match state.health {
            Health::Good => ending,
            Health::Fails => CompletionKind::Failure,
            Health::Hangs => return,
        };
        let interrupts = state.interrupts;
        self.completions.push(Completion { at: Time(at), lease: lease.id, worker, interrupts, ending });
    }

    /// Lets a worker draw from a law from now on, and take `slowness` times as long.
    fn set_speed(&mut self, worker: WorkerId, law: WorkerId, slowness: f64) {
        let state = &mut self.workers[worker.slot()];
        (state.law, state.slowness) = (law, slowness);
        self.times.changed(worker, law, slowness);
    }

    /// Sets the worker's health from now on; if it hangs, its current computation never finishes either.
    fn set_health(&mut self, now: f64, worker: WorkerId, health: Health) {
        self.workers[worker.slot()].health = health;
        if health == Health::Hangs {
            self.any_hung = true;
            self.interrupt(now, worker);
        }
    }
}

impl<T: TaskTimes> Cluster for VirtualWorkers<'_, T> {
    fn start(&mut self, now: f64, worker: WorkerId) -> Option<MachineId> {
        self.interrupt(now, worker);
        Some(worker.into())
    }

    fn stop(&mut self, now: f64, worker: WorkerId) -> bool {
        self.interrupt(now, worker);
        true
    }

    fn change(&mut self, now: f64, change: Change) {
        match change {
            Change::Swap(a, b) => {
                let (first, second) = (self.workers[a.slot()], self.workers[b.slot()]);
                self.set_speed(a, second.law, second.slowness);
                self.set_speed(b, first.law, first.slowness);
            }
            Change::SlowDown(worker, factor) => {
                let VirtualWorker { law, slowness, .. } = self.workers[worker.slot()];
                self.set_speed(worker, law, (slowness * factor).clamp(1.0 / LONGEST, LONGEST));
            }
            Change::Hang(worker) => self.set_health(now, worker, Health::Hangs),
            Change::Fail(worker) => self.set_health(now, worker, Health::Fails),
            Change::Join(worker) => self.set_health(now, worker, Health::Good),
            Change::Leave(_) | Change::SlowLink(..) => {}
        }
    }

    fn begins(&mut self, iteration: u64) {
        self.times.begins(iteration);
        if let Some(overhead) = &mut self.overhead {
            overhead.begins(iteration);
        }
    }

    fn mean(&self, worker: WorkerId, of_laws: &[f64]) -> f64 {
        let worker = &self.workers[worker.slot()];
        worker.slowness * of_laws[worker.law.slot()]
    }

    fn fuses(&self, worker: WorkerId) -> bool {
        self.workers[worker.slot()].fuses
    }

    fn assign(&mut self, now: f64, worker: WorkerId, lease: Lease) {
        self.assign_from(now, now, worker, lease);
    }

    fn end(&mut self, now: f64, worker: WorkerId, lease: &Lease, outcome: TaskOutcome, is_computed: bool) {
        match outcome {
            TaskOutcome::Cancelled if !is_computed => self.cancel(worker, lease.id),
            TaskOutcome::Lost if !is_computed => self.lose(now, worker),
            _ => {}
        }
    }

    fn close(&mut self, now: f64, worker: WorkerId) -> Option<f64> {
        let VirtualWorker { free_at, health, .. } = self.workers[worker.slot()];
        self.interrupt(now, worker);
        // The worker comes back when it finishes its leases, or at once if it hangs.
        Some(if health == Health::Hangs { now } else { free_at.max(now) })
    }

    /// Stops workers from computing what was cancelled, and lets them continue with the other leases they hold. Often many leases of
    /// a worker are cancelled at once.
    fn settle(&mut self, now: f64) {
        if !self.cancelled.is_empty() {
            let mut cancelled = std::mem::take(&mut self.cancelled);
            cancelled.sort_unstable();
            for of_worker in cancelled.chunk_by(|a, b| a.0 == b.0) {
                self.stop(now, of_worker[0].0, of_worker);
            }
            cancelled.clear();
            self.cancelled = cancelled;
        }
        self.clear_out();
    }

    fn next_at(&mut self) -> Option<f64> {
        while let Some(&next) = self.completions.peek() {
            let none_is_void = self.completions.len() == self.assigned && !self.any_hung;
            if none_is_void || next.interrupts == self.workers[next.worker.slot()].interrupts {
                return Some(next.at.0);
            }
            let void = self.completions.pop();
            self.recycle(void.map(|void| void.ending));
        }
        None
    }

    fn pop(&mut self, _engine: &Engine, _observer: &mut impl Observer) -> Option<(f64, Occurrence<'_>)> {
        let (at, worker, lease, report) = self.next_ended()?;
        Some((at, Occurrence::Report(worker, lease, report)))
    }
}

#[cfg(test)]
mod tests {
    use ata_types::{Iteration, TaskRange};

    use super::*;
    use crate::times::LawTimes;

    /// At the end of each iteration of a greedy policy, nearly all workers are cancelled.
    #[test]
    fn many_that_are_cancelled_at_once_are_looked_at_once() {
        const WORKERS: u32 = 10_000;
        let times = || LawTimes::new(&"const(1)".parse().unwrap(), WORKERS, 1).unwrap();
        let (mut times, mut overhead) = (times(), times());
        let mut cluster = VirtualWorkers::new(WORKERS, &mut times, Some(&mut overhead));
        let lease = |at| {
            let lease = Lease { id: LeaseId(at), iteration: Iteration::FIRST, tasks: TaskRange::single(at), own: None };
            (WorkerId::from_slot(at as usize), lease)
        };
        let leases: Vec<(WorkerId, Lease)> = (0..WORKERS.into()).map(lease).collect();
        for (worker, lease) in &leases {
            cluster.assign(0.0, *worker, *lease);
        }
        for (worker, lease) in &leases[1..] {
            cluster.cancel(*worker, lease.id);
        }
        cluster.settle(1.0);
        assert!(cluster.completions.looked_at <= leases.len(), "{} looks", cluster.completions.looked_at);
        assert_eq!(cluster.next_ended().unwrap().2, LeaseId(0));
        assert!(cluster.next_ended().is_none(), "the others are void");
    }
}
