//! The virtual cluster: what each worker computes, and when it finishes.

use std::collections::VecDeque;

use ata_types::{Iteration, Lease, LeaseId, WorkerId};

use crate::completions::{Completion, Completions, End};
use crate::law::LONGEST;
use crate::times::TaskTimes;

/// So few void results are not worth clearing out.
const FEW: usize = 1024;

pub(crate) struct VirtualCluster<'a, T> {
    times: &'a mut T,
    /// What each assignment costs before computation begins, if anything.
    overhead: Option<&'a mut T>,
    workers: Vec<VirtualWorker>,
    completions: Completions,
    /// Task times of pending results of several tasks; places are reused.
    busy: Vec<Vec<f64>>,
    free: Vec<u32>,
    /// How many leases are assigned, by iteration, ascending…
    out: VecDeque<(Iteration, u64)>,
    /// …and in total.
    all_out: usize,
    /// Leases that have just ended before they were done, and that their workers still compute.
    cancelled: Vec<(WorkerId, LeaseId)>,
    /// Whether a worker ever hung: some leases may then never end by themselves.
    any_hung: bool,
}

#[derive(Clone, Copy)]
struct VirtualWorker {
    /// When it finishes what it has.
    free_at: f64,
    /// Factor on the law's draws.
    slowness: f64,
    /// The worker whose law it draws from.
    law: WorkerId,
    health: Health,
    /// Whether it computes a lease as one batch.
    fuses: bool,
    /// How often it was interrupted: results from before are void.
    interrupts: u32,
    /// How many leases it holds.
    held: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Good,
    Hangs,
    Fails,
}

/// A lease that ended by itself.
pub(crate) struct Ended {
    pub(crate) at: f64,
    pub(crate) worker: WorkerId,
    pub(crate) lease: LeaseId,
    end: End,
}

impl<'a, T: TaskTimes> VirtualCluster<'a, T> {
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
            out: VecDeque::new(),
            all_out: 0,
            cancelled: Vec::new(),
            any_hung: false,
        }
    }

    /// Iteration `iteration` is about to begin.
    pub(crate) fn begins(&mut self, iteration: u64) {
        self.times.begins(iteration);
        if let Some(overhead) = &mut self.overhead {
            overhead.begins(iteration);
        }
    }

    pub(crate) fn assign(&mut self, now: f64, worker: WorkerId, lease: Lease) {
        self.settle(now);
        match self.out.back_mut() {
            Some((iteration, out)) if *iteration == lease.iteration => *out += 1,
            _ => self.out.push_back((lease.iteration, 1)),
        }
        self.all_out += 1;
        let state = &mut self.workers[worker.slot()];
        state.held += 1;
        let mut at = state.free_at;
        if at <= now {
            at = now + self.overhead.as_mut().map_or(0.0, |overhead| overhead.draw(worker));
        }
        let mut draw = || {
            let time = (state.slowness * self.times.draw(state.law)).min(LONGEST);
            at += time;
            time
        };
        let end = if lease.tasks.count == 1 {
            End::One(draw())
        } else if state.fuses {
            let time = (state.slowness * self.times.draw_batch(state.law, lease.tasks.count)).min(LONGEST);
            at += time;
            End::One(time)
        } else {
            let place = self.free.pop().unwrap_or_else(|| {
                self.busy.push(Vec::new());
                self.busy.len() as u32 - 1
            });
            let busy = &mut self.busy[place as usize];
            busy.clear();
            busy.extend(lease.tasks.indices().map(|_| draw()));
            End::Several(place)
        };
        state.free_at = at;
        let end = match state.health {
            Health::Good => end,
            Health::Fails => End::Failure,
            Health::Hangs => return,
        };
        let interrupts = state.interrupts;
        self.completions.push(Completion { at, lease: lease.id, worker, interrupts, end });
    }

    /// Whether a worker computes a lease as one batch.
    pub(crate) fn fuses(&self, worker: WorkerId) -> bool {
        self.workers[worker.slot()].fuses
    }

    /// The worker stops at once; its pending results are void.
    pub(crate) fn interrupt(&mut self, now: f64, worker: WorkerId) {
        let state = &mut self.workers[worker.slot()];
        state.free_at = now;
        state.interrupts = state.interrupts.wrapping_add(1);
    }

    /// A worker is to stop computing a lease that has just ended: see [`Self::settle`].
    pub(crate) fn cancel(&mut self, worker: WorkerId, lease: &Lease) {
        self.cancelled.push((worker, lease.id));
    }

    /// Workers stop computing what was cancelled, and go on with the other leases they hold. Often many leases of a worker
    /// are cancelled at once.
    pub(crate) fn settle(&mut self, now: f64) {
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

    /// Drops the results of interrupted workers, which are void and pile up. Only once everything is settled do at least half
    /// of so many results go, so that each look pays for itself.
    fn clear_out(&mut self) {
        if self.completions.len() > 2 * self.all_out + FEW {
            let workers = &self.workers;
            let is_live = |next: &Completion| next.interrupts == workers[next.worker.slot()].interrupts;
            self.completions.retain(self.all_out == 0, is_live);
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
            let ends = next.at;
            if cancelled.binary_search(&(worker, next.lease)).is_ok() {
                spared += ends - begins.max(now);
                self.recycle(Some(next.end));
            } else {
                self.completions.push(Completion { at: ends - spared, ..next });
            }
            begins = ends;
        }
        self.workers[worker.slot()].free_at -= spared;
    }

    /// A lease is over, however it ended.
    pub(crate) fn ended(&mut self, worker: WorkerId, lease: &Lease) {
        self.workers[worker.slot()].held -= 1;
        let at = self.out.partition_point(|(iteration, _)| *iteration < lease.iteration);
        self.out[at].1 -= 1;
        self.all_out -= 1;
        while self.out.len() > 1 && self.out[0].1 == 0 {
            self.out.pop_front();
        }
    }

    /// When the next lease ends by itself.
    pub(crate) fn next_at(&mut self) -> Option<f64> {
        while let Some(&next) = self.completions.peek() {
            let none_is_void = self.completions.len() == self.all_out && !self.any_hung;
            if none_is_void || next.interrupts == self.workers[next.worker.slot()].interrupts {
                return Some(next.at);
            }
            let void = self.completions.pop();
            self.recycle(void.map(|void| void.end));
        }
        None
    }

    /// The next lease that ends by itself; call [`Self::told`] once the engine has its report.
    pub(crate) fn pop(&mut self) -> Option<Ended> {
        self.next_at()?;
        let Completion { at, lease, worker, end, .. } = self.completions.pop()?;
        Some(Ended { at, worker, lease, end })
    }

    /// The time of each of its tasks, or of the whole batch; `None` if it failed.
    pub(crate) fn busy<'b>(&'b self, ended: &'b Ended) -> Option<&'b [f64]> {
        match &ended.end {
            End::One(time) => Some(std::slice::from_ref(time)),
            End::Several(place) => Some(&self.busy[*place as usize]),
            End::Failure => None,
        }
    }

    pub(crate) fn told(&mut self, ended: &Ended) {
        self.recycle(Some(ended.end));
    }

    fn recycle(&mut self, end: Option<End>) {
        if let Some(End::Several(place)) = end {
            self.free.push(place);
        }
    }

    /// From now on the two draw from each other's laws.
    pub(crate) fn swap(&mut self, a: WorkerId, b: WorkerId) {
        let (first, second) = (self.workers[a.slot()], self.workers[b.slot()]);
        (self.workers[a.slot()].law, self.workers[a.slot()].slowness) = (second.law, second.slowness);
        (self.workers[b.slot()].law, self.workers[b.slot()].slowness) = (first.law, first.slowness);
        self.changed(a);
        self.changed(b);
    }

    /// From now on the worker's tasks take `factor` times as long.
    pub(crate) fn slow_down(&mut self, worker: WorkerId, factor: f64) {
        let slowness = &mut self.workers[worker.slot()].slowness;
        *slowness = (*slowness * factor).clamp(1.0 / LONGEST, LONGEST);
        self.changed(worker);
    }

    fn changed(&mut self, worker: WorkerId) {
        let VirtualWorker { law, slowness, .. } = self.workers[worker.slot()];
        self.times.changed(worker, law, slowness);
    }

    /// Sets the worker's health from now on; if it hangs, what it is computing never finishes either.
    pub(crate) fn set_health(&mut self, now: f64, worker: WorkerId, health: Health) {
        self.workers[worker.slot()].health = health;
        if health == Health::Hangs {
            self.any_hung = true;
            self.interrupt(now, worker);
        }
    }

    /// When a worker that was evicted comes back: when it finishes what it has, or at once if it hangs.
    pub(crate) fn back_at(&self, now: f64, worker: WorkerId) -> f64 {
        let state = &self.workers[worker.slot()];
        if state.health == Health::Hangs { now } else { state.free_at.max(now) }
    }
}

/// What an observer may ask of a cluster.
pub(crate) trait View {
    /// The earliest iteration whose parameters a lease is computed at; `None` if no lease is assigned.
    fn oldest_iteration(&self) -> Option<u64>;

    /// The current mean of a worker, from the laws' means.
    fn mean(&self, worker: WorkerId, of_laws: &[f64]) -> f64;
}

impl<T> View for VirtualCluster<'_, T> {
    fn oldest_iteration(&self) -> Option<u64> {
        self.out.iter().find(|(_, out)| *out > 0).map(|(iteration, _)| iteration.number())
    }

    fn mean(&self, worker: WorkerId, of_laws: &[f64]) -> f64 {
        let worker = &self.workers[worker.slot()];
        worker.slowness * of_laws[worker.law.slot()]
    }
}

#[cfg(test)]
mod tests {
    use ata_types::TaskRange;

    use super::*;

    /// Every task takes as long.
    struct Constant;

    impl TaskTimes for Constant {
        fn draw(&mut self, _worker: WorkerId) -> f64 {
            1.0
        }
    }

    /// At the end of each iteration of a greedy policy, nearly all workers are cancelled.
    #[test]
    fn many_that_are_cancelled_at_once_are_looked_at_once() {
        const WORKERS: u32 = 10_000;
        let (mut times, mut overhead) = (Constant, Constant);
        let mut cluster = VirtualCluster::new(WORKERS, &mut times, Some(&mut overhead));
        let leases: Vec<(WorkerId, Lease)> = (0..u64::from(WORKERS))
            .map(|at| {
                (
                    WorkerId::from_slot(at as usize),
                    Lease { id: LeaseId(at), iteration: Iteration::FIRST, tasks: TaskRange::single(at) },
                )
            })
            .collect();
        for (worker, lease) in &leases {
            cluster.assign(0.0, *worker, *lease);
        }
        for (worker, lease) in &leases[1..] {
            cluster.ended(*worker, lease);
            cluster.cancel(*worker, lease);
        }
        cluster.settle(1.0);
        assert!(cluster.completions.looked_at <= leases.len(), "{} looks", cluster.completions.looked_at);
        assert_eq!(cluster.pop().unwrap().lease, LeaseId(0));
        assert!(cluster.pop().is_none(), "the others are void");
    }
}
