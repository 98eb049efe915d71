//! The engine's effects: carried out, and checked.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use ata_scheduler::{AbortReason, Collect, Decision, Effect, IterationCost, LeaseTime};
use ata_types::{Lease, LeaseId, TaskOutcome, TaskRange, WorkerId};

use super::{Act, Coordinator, Iteration, MAX_FAILURES, Record, Saving};
use crate::network::ToWorker;

impl Coordinator {
    pub(super) fn apply(&mut self, now_s: f64, effect: Effect) {
        assert!(!self.is_over, "{effect:?} after the end");
        match effect {
            Effect::Start { iteration, workers, decision } => self.started(iteration.number(), &workers, decision),
            Effect::Assign { worker, lease } => self.assigned(worker, lease),
            Effect::End { worker, lease, outcome, time } => self.lease_ended(worker, lease, outcome, time),
            Effect::Step { iteration, tasks, .. } => self.step(iteration.number(), &tasks),
            Effect::Committed { cost } => self.commit(&cost),
            Effect::Evict { worker, silent_s } => {
                self.counts.failures += 1;
                assert!(silent_s > 0.0);
                let session = self.sessions.remove(&worker).expect("only a worker that is present is evicted").token;
                self.acts.push(Act::Send(worker, ToWorker::Gone { session }));
            }
            // It comes back under another name.
            Effect::Expel { worker, strikes, .. } => {
                assert!(u64::from(strikes) <= self.counts.failures);
                let session = self.sessions.remove(&worker).expect("only a worker that is present is expelled").token;
                self.acts.push(Act::Send(worker, ToWorker::Gone { session }));
            }
            Effect::Compare { .. } => panic!("no lease is checked by a second worker"),
            // Of failures before a crash, too.
            Effect::Rest { rest_s, strikes, .. } => assert!(rest_s >= 0.0 && strikes > 0),
            Effect::Wait { .. } => {}
            Effect::Finish { .. } => self.is_over = true,
            Effect::Abort { reason: AbortReason::TasksFailed { .. } } => {
                assert!(
                    self.counts.failures >= MAX_FAILURES,
                    "given up at {now_s} s after {} failures",
                    self.counts.failures
                );
                self.is_over = true;
                self.acts.push(Act::Abort);
            }
            Effect::Abort { reason } => panic!("{reason}"),
        }
    }

    fn started(&mut self, iteration: u64, workers: &[WorkerId], decision: Arc<Decision>) {
        assert!(
            self.iteration.is_none() && self.saving != Saving::AndTheNext,
            "an iteration begins when the one before is committed"
        );
        assert_eq!(iteration, self.record.parameters.len() as u64, "iterations come in order");
        assert!(workers.iter().all(|worker| self.sessions.contains_key(worker)));
        if self.takes_all {
            assert_eq!(tasks_of(&decision), self.budget, "{decision:?}");
        }
        self.iteration = Some(Iteration { decision, employed: BTreeSet::new(), taken: Vec::new(), step: None });
    }

    fn assigned(&mut self, worker: WorkerId, lease: Lease) {
        let session = self.sessions.get(&worker).expect("only workers that are present get tasks").token;
        assert_eq!(lease.id, LeaseId(self.record.next_lease), "a lease's number is used once");
        self.record.next_lease += 1;
        assert_eq!(lease.iteration.number(), self.record.parameters.len() as u64);
        let iteration = self.iteration.as_mut().expect("leases are of an iteration");
        assert!(iteration.step.is_none() && lease.tasks.count > 0);
        iteration.employed.insert(worker);
        self.held.insert(lease.id, (worker, lease));
        let parameters = *self.record.parameters.last().expect("there are some from the start");
        self.acts.push(Act::Send(worker, ToWorker::Assign { session, lease, parameters }));
    }

    fn lease_ended(&mut self, worker: WorkerId, lease: Lease, outcome: TaskOutcome, time: LeaseTime) {
        match (time, self.arrived.remove(&lease.id)) {
            (LeaseTime::Reported { factor, .. }, Some((sender, gradient))) => {
                assert!(
                    matches!(outcome, TaskOutcome::Applied | TaskOutcome::Ignored) && (0.0..=1.0).contains(&factor)
                );
                assert_eq!((sender, gradient.lease), (worker, lease));
                assert_eq!(gradient.parameters, self.record.parameters[lease.iteration.number() as usize - 1]);
            }
            (LeaseTime::Censored { .. }, None) => {
                assert!(matches!(outcome, TaskOutcome::Cancelled | TaskOutcome::Lost | TaskOutcome::Failed));
                assert_eq!(self.held.remove(&lease.id), Some((worker, lease)), "every lease ends once: {outcome:?}");
            }
            (_, arrived) => panic!("{lease:?} ended as {outcome:?}, and what arrived is {arrived:?}"),
        }
        let iteration = self.iteration.as_mut();
        match (outcome, self.sessions.get(&worker)) {
            (TaskOutcome::Applied, _) => iteration.expect("a step takes it").taken.push((worker, lease)),
            (TaskOutcome::Lost, session) => assert!(session.is_none(), "its worker is present"),
            (TaskOutcome::Cancelled, Some(session)) => {
                let (session, lease) = (session.token, lease.id);
                self.acts.push(Act::Send(worker, ToWorker::Cancel { session, lease }));
            }
            _ => {}
        }
    }

    /// A step takes what it should, each task once.
    fn step(&mut self, number: u64, tasks: &[TaskRange]) {
        let Iteration { decision, taken, step, .. } = self.iteration.as_mut().expect("a step is of an iteration");
        assert_eq!(number, self.record.parameters.len() as u64, "steps come in order");
        let mut expected: Vec<u64> = taken.iter().flat_map(|(_, lease)| lease.tasks.indices()).collect();
        expected.sort_unstable();
        assert!(expected.is_sorted_by(|a, b| a < b), "each task once: {expected:?}");
        assert!(tasks.iter().flat_map(|range| range.indices()).eq(expected.iter().copied()), "{tasks:?}");
        assert_eq!(expected.len() as u64, tasks_of(decision), "{decision:?}");
        match decision.collect {
            Collect::All | Collect::InParts { .. } | Collect::Race { .. } => {
                assert_eq!((tasks.len(), tasks[0].first), (1, 0));
            }
            Collect::Each { max_delay, .. } => assert!(number - taken[0].1.iteration.number() < max_delay),
            Collect::First { .. } | Collect::Soonest { .. } => {}
        }
        assert!(step.replace(expected.len() as u64).is_none(), "one step per iteration");
        let of = |lease: &Lease| (lease.iteration, lease.tasks.indices());
        let mut entered: Vec<(u64, u64)> =
            taken.iter().flat_map(|(_, lease)| of(lease).1.map(|task| (lease.iteration.number(), task))).collect();
        entered.sort_unstable();
        let before = self.record.parameters.last().expect("there are some from the start");
        self.record.parameters.push(after(*before, &entered));
        self.acts.push(Act::Step(number));
    }

    /// The ledger holds what happened.
    fn commit(&mut self, cost: &IterationCost) {
        let Iteration { employed, taken, step, .. } = self.iteration.take().expect("it was begun");
        let tasks = step.expect("its step was taken");
        assert_eq!((cost.iteration.number() + 1, cost.tasks_applied), (self.record.parameters.len() as u64, tasks));
        assert_eq!(cost.employments, employed.len() as u64);
        assert!(cost.runtime_s >= 0.0 && cost.total_worker_time_s >= 0.0, "{cost:?}");
        self.record.applied += tasks;
        for (worker, lease) in taken {
            *self.record.by_worker.entry(worker).or_default() += lease.tasks.count;
        }
        self.check_ledger();
        self.is_committed = true;
    }

    pub(super) fn check_ledger(&self) {
        let ledger = self.engine.ledger();
        let Record { parameters, applied, by_worker, .. } = &self.record;
        assert_eq!((ledger.iterations + 1, ledger.tasks_applied), (parameters.len() as u64, *applied));
        let workers = (0..).map(WorkerId::from_slot).zip(&ledger.workers);
        for (worker, cost) in workers {
            assert_eq!(cost.tasks_applied, by_worker.get(&worker).copied().unwrap_or(0), "worker {worker}");
        }
    }
}

/// How many tasks make the step.
fn tasks_of(decision: &Decision) -> u64 {
    match decision.collect {
        Collect::All => decision.allocation.iter().sum(),
        Collect::First { take, .. } | Collect::Soonest { take } => take,
        Collect::InParts { tasks } | Collect::Race { tasks } => tasks,
        Collect::Each { .. } => 1,
    }
}

/// What a step makes of the parameters: it depends on the tasks in it, each named by iteration and index.
pub(crate) fn after(parameters: u64, tasks: &[(u64, u64)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (parameters, tasks).hash(&mut hasher);
    hasher.finish()
}
