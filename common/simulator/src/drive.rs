//! The virtual-time driver of the engine.

use std::collections::VecDeque;
use std::sync::Arc;

use ata_scheduler::{
    AbortReason, Decision, Effect, Engine, Event, FinishReason, Ledger, Report, StepOutcome, WorkerStatistics,
};
use ata_types::{Iteration, Lease, TaskOutcome, WorkerId};

use crate::change::{Change, When};
use crate::cluster::{Health, View, VirtualCluster};
use crate::times::TaskTimes;

/// A virtual cluster and what happens to it.
#[derive(Debug)]
pub struct Simulation<T> {
    /// The number of workers, n. All are present from the start, except those whose first change of membership is a
    /// [`Change::Join`].
    pub workers: u32,
    /// How long tasks take.
    pub times: T,
    /// What each assignment costs a worker before it begins to compute, if anything: communication.
    pub overhead: Option<T>,
    /// Changes in any order, except that those of one worker are in the order in which they happen.
    pub changes: Vec<(When, Change)>,
    /// What is known about each worker beforehand, by slot; may be shorter than `workers`.
    pub priors: Vec<WorkerStatistics>,
}

/// Why a simulated run did not reach its end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimulationError {
    /// The engine aborted the run.
    #[error("the run was aborted: {0}")]
    Aborted(AbortReason),
    /// All workers left, and none will join; or those that are left hang, and there is no lease timeout.
    #[error("at time {at}, in iteration {iteration}, the run cannot continue: no worker computes, and none will join")]
    NobodyLeft {
        /// The virtual time.
        at: f64,
        /// The iteration, k.
        iteration: u64,
    },
}

/// Watches a simulated run, and says what comes of its steps.
pub trait Observer {
    /// An iteration begins.
    fn started(&mut self, _start: &Start<'_>) {}

    /// The engine asks for an optimizer step; returns its outcome.
    fn step(&mut self, step: &Step<'_>) -> StepOutcome;

    /// An iteration is committed, and the next one has not begun: the engine may now be saved, or replaced by another
    /// one. Effects are carried out as usual.
    fn committed(&mut self, _now: f64, _engine: &mut Engine, _effects: &mut Vec<Effect>) {}

    /// An effect is about to be carried out.
    fn effect(&mut self, _now: f64, _effect: &Effect) {}
}

impl<F: FnMut(&Step<'_>) -> StepOutcome> Observer for F {
    fn step(&mut self, step: &Step<'_>) -> StepOutcome {
        self(step)
    }
}

/// An iteration that begins.
pub struct Start<'a> {
    /// The iteration, k.
    pub iteration: u64,
    /// The workers that the decision is about, ascending.
    pub workers: &'a Arc<[WorkerId]>,
    /// Their shares, and why.
    pub decision: &'a Decision,
    /// Changes that happened so far.
    pub changes: usize,
    cluster: &'a dyn View,
}

impl Start<'_> {
    /// The current mean time of each of [`Self::workers`], if the laws' means are `of_laws`, by slot.
    pub fn means(&self, of_laws: &[f64]) -> Vec<f64> {
        self.workers.iter().map(|&worker| self.cluster.mean(worker, of_laws)).collect()
    }
}

/// An optimizer step that the engine asks for.
pub struct Step<'a> {
    /// The iteration, k.
    pub iteration: u64,
    /// The virtual time.
    pub now: f64,
    /// The leases whose results enter it, in the order in which they arrived.
    pub leases: &'a [Lease],
    /// Factor on the learning rate.
    pub lr_factor: f64,
    /// What the iterations before it cost.
    pub ledger: &'a Ledger,
    cluster: &'a dyn View,
}

impl Step<'_> {
    /// Parameters of iterations before this one will not be needed again.
    pub fn oldest_iteration(&self) -> u64 {
        self.cluster.oldest_iteration().unwrap_or(u64::MAX)
    }
}

impl<T: TaskTimes> Simulation<T> {
    /// Workers without overhead, changes or priors.
    pub fn new(workers: u32, times: T) -> Self {
        Self { workers, times, overhead: None, changes: Vec::new(), priors: Vec::new() }
    }

    /// How many workers are present from the start.
    pub fn present_at_first(&self) -> usize {
        self.at_first().len()
    }

    fn at_first(&self) -> Vec<WorkerId> {
        let mut joins_late = vec![None; self.workers as usize];
        for (_, change) in &self.changes {
            if let Change::Leave(worker) | Change::Join(worker) = change
                && let Some(joins_late) = joins_late.get_mut(worker.slot())
            {
                joins_late.get_or_insert(matches!(change, Change::Join(_)));
            }
        }
        let at_first = joins_late.iter().enumerate().filter(|(_, joins_late)| **joins_late != Some(true));
        at_first.map(|(slot, _)| WorkerId::from_slot(slot)).collect()
    }

    /// Runs `engine` to its end; an optimizer step takes no time, and `observer` says what comes of it.
    ///
    /// Returns the virtual time at the end.
    pub fn run(&mut self, engine: &mut Engine, observer: &mut impl Observer) -> Result<f64, SimulationError> {
        let at_first = self.at_first();
        let cluster = VirtualCluster::new(self.workers, &mut self.times, self.overhead.as_mut());
        let mut driver = Driver {
            engine,
            observer,
            cluster,
            effects: Vec::new(),
            done: 0,
            taken: Vec::new(),
            speeds: Vec::new(),
            at_iterations: Vec::new(),
            at_times: Vec::new(),
            membership: VecDeque::new(),
            changed: 0,
            priors: &self.priors,
            now: 0.0,
        };
        driver.schedule(&self.changes);
        for worker in at_first {
            driver.join(worker);
        }
        driver.proceed();
        driver.run()
    }
}

/// Changes at iterations come before those at times, each kind in order.
fn in_order(changes: &[(When, Change)]) -> Vec<(When, Change)> {
    let mut ordered = changes.to_vec();
    ordered.sort_by(|(a, _), (b, _)| match (a, b) {
        (When::Iteration(a), When::Iteration(b)) => a.cmp(b),
        (When::Time(a), When::Time(b)) => a.total_cmp(b),
        (When::Iteration(_), When::Time(_)) => std::cmp::Ordering::Less,
        (When::Time(_), When::Iteration(_)) => std::cmp::Ordering::Greater,
    });
    ordered
}

/// What ends the driver's loop.
type End = Result<f64, SimulationError>;

/// Something that happens at a time.
#[derive(Clone, Copy)]
enum Due {
    Change(Change),
    /// A worker that was evicted comes back.
    Return(WorkerId),
}

struct Driver<'a, T, O> {
    engine: &'a mut Engine,
    observer: &'a mut O,
    cluster: VirtualCluster<'a, T>,
    /// The engine's effects, in order…
    effects: Vec<Effect>,
    /// …and how many of them are done.
    done: usize,
    /// Leases taken since the last step.
    taken: Vec<Lease>,
    /// Changes of speed at iterations, latest first…
    speeds: Vec<(u64, Change)>,
    /// …and the others.
    at_iterations: Vec<(u64, Change)>,
    /// Latest first.
    at_times: Vec<(f64, Due)>,
    /// Joins and losses that happen once the tasks of the iteration that just began are assigned.
    membership: VecDeque<Change>,
    changed: usize,
    priors: &'a [WorkerStatistics],
    now: f64,
}

impl<T: TaskTimes, O: Observer> Driver<'_, T, O> {
    fn schedule(&mut self, changes: &[(When, Change)]) {
        for (when, change) in in_order(changes).into_iter().rev() {
            match when {
                When::Iteration(iteration) if change.is_of_speed() => self.speeds.push((iteration, change)),
                When::Iteration(iteration) => self.at_iterations.push((iteration, change)),
                When::Time(time) => self.at_times.push((time, Due::Change(change))),
            }
        }
    }

    fn run(mut self) -> End {
        loop {
            while let Some(effect) = self.effects.get_mut(self.done) {
                // Leaves something small in its place.
                let effect = std::mem::replace(effect, Effect::Finish { reason: FinishReason::Iterations });
                self.done += 1;
                self.observer.effect(self.now, &effect);
                if let Some(end) = self.carry_out(effect) {
                    return end;
                }
            }
            self.effects.clear();
            self.done = 0;
            self.cluster.settle(self.now);
            match self.membership.pop_front() {
                Some(change) => self.change(change),
                None => self.advance()?,
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) -> Option<End> {
        match effect {
            Effect::Start { iteration, workers, decision } => self.started(iteration.number(), &workers, &decision),
            Effect::Assign { worker, lease } => self.cluster.assign(self.now, worker, lease),
            Effect::End { worker, lease, outcome, .. } => {
                self.cluster.ended(worker, &lease);
                match outcome {
                    TaskOutcome::Applied => self.taken.push(lease),
                    TaskOutcome::Cancelled => self.cluster.cancel(worker, &lease),
                    TaskOutcome::Lost => self.cluster.interrupt(self.now, worker),
                    TaskOutcome::Ignored | TaskOutcome::Failed | TaskOutcome::Mismatched | TaskOutcome::Disputed => {}
                }
            }
            Effect::Evict { worker, .. } => {
                let back_at = self.cluster.back_at(self.now, worker);
                self.cluster.interrupt(self.now, worker);
                let place = self.at_times.partition_point(|(at, _)| *at > back_at);
                self.at_times.insert(place, (back_at, Due::Return(worker)));
            }
            Effect::Expel { worker, .. } => {
                self.cluster.interrupt(self.now, worker);
                self.at_times.retain(|(_, due)| !matches!(due, Due::Return(returning) if *returning == worker));
            }
            // Virtual workers compute nothing that could differ.
            Effect::Compare { tasks, first, second } => {
                self.tell(Event::Compared { tasks, first, second, agree: true });
            }
            Effect::Step { iteration, lr_factor, .. } => self.step(iteration.number(), lr_factor),
            Effect::Committed { .. } => self.committed(),
            Effect::Finish { .. } => return Some(Ok(self.now)),
            Effect::Abort { reason } => return Some(Err(SimulationError::Aborted(reason))),
            Effect::Rest { .. } | Effect::Wait { .. } => {}
        }
        None
    }

    /// Changes of health apply from the iteration's first task on, those of membership once its tasks are assigned.
    fn started(&mut self, iteration: u64, workers: &Arc<[WorkerId]>, decision: &Decision) {
        while let Some((_, change)) = self.at_iterations.pop_if(|(at, _)| *at <= iteration) {
            match change {
                Change::Leave(_) | Change::Join(_) => self.membership.push_back(change),
                _ => self.change(change),
            }
        }
        let changes = self.changed;
        self.observer.started(&Start { iteration, workers, decision, changes, cluster: &self.cluster });
    }

    fn change(&mut self, change: Change) {
        self.changed += 1;
        match change {
            Change::Swap(a, b) => self.cluster.swap(a, b),
            Change::SlowDown(worker, factor) => self.cluster.slow_down(worker, factor),
            Change::Hang(worker) => self.cluster.set_health(self.now, worker, Health::Hangs),
            Change::Fail(worker) => self.cluster.set_health(self.now, worker, Health::Fails),
            Change::Join(worker) => {
                self.cluster.set_health(self.now, worker, Health::Good);
                self.join(worker);
            }
            Change::Leave(worker) => {
                self.cluster.interrupt(self.now, worker);
                self.tell(Event::WorkerLost { worker });
            }
        }
    }

    fn join(&mut self, worker: WorkerId) {
        self.cluster.interrupt(self.now, worker);
        let prior = self.priors.get(worker.slot()).copied().unwrap_or_default();
        let fuses = self.cluster.fuses(worker);
        self.tell(Event::WorkerJoined { worker, machine: worker.into(), prior, fuses });
    }

    fn step(&mut self, iteration: u64, lr_factor: f64) {
        let step = Step {
            iteration,
            now: self.now,
            leases: &self.taken,
            lr_factor,
            ledger: self.engine.ledger(),
            cluster: &self.cluster,
        };
        let outcome = self.observer.step(&step);
        self.taken.clear();
        self.tell(Event::StepCommitted { iteration: Iteration(iteration), outcome });
    }

    fn committed(&mut self) {
        self.observer.committed(self.now, self.engine, &mut self.effects);
        self.proceed();
    }

    /// Changes of speed come before the decision of their iteration, which an oracle makes by the speeds as they are
    /// then. No task begins in between, so that its tasks are the first to take the time that they now do.
    fn proceed(&mut self) {
        let next = self.engine.iteration().number();
        while let Some((_, change)) = self.speeds.pop_if(|(at, _)| *at <= next) {
            self.change(change);
        }
        self.cluster.begins(next);
        self.tell(Event::Proceed);
    }

    /// Goes on to the next result, change or timeout.
    fn advance(&mut self) -> Result<(), SimulationError> {
        let next_result = self.cluster.next_at();
        let next_change = self.at_times.last().map(|(at, _)| *at);
        let timeout = self.engine.poll_timeout();
        let earlier = |a: Option<f64>, b: Option<f64>| a.is_some_and(|a| b.is_none_or(|b| a < b));
        if earlier(next_change, next_result)
            && !earlier(timeout, next_change)
            && let Some((at, due)) = self.at_times.pop()
        {
            self.now = self.now.max(at);
            match due {
                Due::Change(change) => self.change(change),
                Due::Return(worker) => self.join(worker),
            }
        } else if earlier(timeout, next_result)
            && let Some(at) = timeout
        {
            // A deadline has passed only after its time.
            self.now = self.now.max(at.next_up());
            self.tell(Event::Timeout);
        } else if let Some(ended) = self.cluster.pop() {
            self.now = self.now.max(ended.at);
            let report = self.cluster.busy(&ended).map_or(Report::Failed, |busy_s| Report::Done { busy_s });
            // An engine that replaced another one refuses reports on leases that it does not know.
            self.engine.report(self.now, ended.worker, ended.lease, report, &mut self.effects).unwrap_or(());
            self.cluster.told(&ended);
        } else {
            return Err(SimulationError::NobodyLeft { at: self.now, iteration: self.engine.iteration().number() });
        }
        Ok(())
    }

    fn tell(&mut self, event: Event) {
        self.engine.handle(self.now, event, &mut self.effects);
    }
}
