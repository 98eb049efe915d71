//! Checks that must hold for every event, message and effect of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use ata_scheduler::{
    AbortReason, Collect, Collection, Decision, Effect, Engine, Event, IterationCost, LeaseTime, Refusal,
};
use ata_simulator::{Message, VirtualSession};
use ata_types::{CollectionId, Lease, LeaseId, MachineId, TaskOutcome, TaskRange, TaskRanges, WorkerId};

use crate::faults::Counts;
use crate::faults::collections::Collections;
use crate::faults::scenario::Scenario;

/// The number of attempts after which tasks may be given up.
const MAX_FAILURES: u64 = 3;

const LIAR: u32 = 2;

/// The most by which the engine may be late in virtual seconds, which are rounded.
const ROUNDING_S: f64 = 1e-6;

/// The steps that were taken, as determined independently of the engine.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// The parameters before each step, and after the last one.
    pub(crate) parameters: Vec<u64>,
    applied: u64,
    by_worker: BTreeMap<WorkerId, u64>,
    /// The machine that has each worker's number.
    pub(crate) machines: BTreeMap<WorkerId, MachineId>,
    next_lease: u64,
}

impl Default for Record {
    fn default() -> Self {
        let (by_worker, machines) = (BTreeMap::new(), BTreeMap::new());
        Self { parameters: vec![0], applied: 0, by_worker, machines, next_lease: 0 }
    }
}

/// A gradient that was accepted, whose lease has not ended yet.
#[derive(Clone, Copy, Debug)]
struct Gradient {
    worker: WorkerId,
    lease: Lease,
    parameters: u64,
}

/// The iteration whose results are awaited, or whose step is being taken.
struct OpenIteration {
    decision: Arc<Decision>,
    employed: BTreeSet<WorkerId>,
    caught: BTreeSet<WorkerId>,
    applied: Vec<(WorkerId, Lease)>,
    /// The number of tasks of the step, once it is due.
    step: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    /// The next iteration waits for a save.
    HeldUp,
    Over,
    /// The run was given up, and will be continued.
    Aborted,
    Down,
}

/// Checks a coordinator from one start to the next crash.
pub(crate) struct Checks<'a> {
    scenario: &'a Scenario,
    /// The number of times that the coordinator had restarted.
    pub(crate) restarts: u32,
    present: BTreeSet<WorkerId>,
    /// Leases that workers hold, and the parameters that they were given with.
    held: BTreeMap<LeaseId, (WorkerId, Lease, u64)>,
    /// Leases that were reported, and have not ended.
    arrived: BTreeMap<LeaseId, Gradient>,
    collections: Collections,
    compared: BTreeSet<(CollectionId, CollectionId)>,
    is_committing: bool,
    /// The lease that is being reported on, and whether its worker holds it.
    reporting: Option<(LeaseId, bool)>,
    pub(crate) record: Record,
    iteration: Option<OpenIteration>,
    /// The workers that have begun the iteration after the current one, which is one of local steps.
    ahead: BTreeSet<WorkerId>,
    pub(crate) state: State,
    /// The time since which workers are present and none computes.
    idle_since_s: Option<f64>,
    /// Whether the engine has failures that justify a pause.
    may_pause: bool,
    /// The number of evictions, and of leases that workers reported as failed.
    failures: u64,
    counts: Counts,
}

impl<'a> Checks<'a> {
    pub(crate) fn new(scenario: &'a Scenario, restarts: u32, record: Record, engine: &Engine) -> Self {
        assert_eq!(engine.iteration().number(), record.parameters.len() as u64, "no saved step is lost");
        assert_eq!(engine.present().count(), 0);
        let checks = Self {
            scenario,
            restarts,
            present: BTreeSet::new(),
            held: BTreeMap::new(),
            arrived: BTreeMap::new(),
            collections: Collections::default(),
            compared: BTreeSet::new(),
            is_committing: false,
            reporting: None,
            record,
            iteration: None,
            ahead: BTreeSet::new(),
            state: State::Running,
            idle_since_s: None,
            may_pause: false,
            failures: 0,
            counts: Counts::default(),
        };
        checks.check_ledger(engine);
        checks
    }

    pub(crate) fn event(&mut self, event: &Event) {
        assert!(matches!(self.state, State::Running | State::HeldUp), "{event:?} after the end");
        match event {
            Event::WorkerJoined { worker, machine, .. } => {
                assert!(self.present.insert(*worker), "worker {worker} is present");
                self.record.machines.insert(*worker, *machine);
            }
            Event::WorkerLost { worker } => {
                assert!(self.present.remove(worker), "worker {worker} is absent");
                self.collections.lose(*worker);
            }
            Event::Delivered { worker, collection } => {
                let leases = self.collections.deliver(*worker, *collection);
                let is_computed = leases.iter().all(|lease| self.arrived.contains_key(&lease.id));
                assert!(is_computed, "delivered before it is computed");
            }
            Event::CollectionFailed { collection, .. } => {
                self.failures += 1;
                self.collections.give_up(*collection);
                // This is a failure during which no worker needs to compute, and a pause may begin with it.
                self.idle_since_s = None;
            }
            Event::StepCommitted { .. } => {
                self.collections.commit();
                self.is_committing = true;
            }
            Event::Compared { first, second, .. } => assert!(self.compared.remove(&(*first, *second))),
            Event::WorkerForgotten { worker } => {
                self.counts.add("workers replaced by others", 1);
                self.record.by_worker.remove(worker);
            }
            _ => {}
        }
    }

    pub(crate) fn message(&mut self, engine: &Engine, worker: WorkerId, message: &Message, accepted: bool) {
        match message {
            Message::Done(_, lease, _) if !accepted => {
                let is_held = engine.lease(worker, lease.id).is_some();
                self.counts.add("results for a session that is over", 1);
                self.counts.add("those with the number of a lease that the worker holds now", u64::from(is_held));
            }
            Message::Done(session, lease, _) => self.done(engine, worker, *lease, *session),
            Message::Failed(_, lease) if accepted => self.reporting = Some((*lease, self.holds(worker, *lease))),
            _ => {}
        }
    }

    fn holds(&self, worker: WorkerId, lease: LeaseId) -> bool {
        self.held.get(&lease).is_some_and(|(holder, ..)| *holder == worker)
    }

    fn done(&mut self, engine: &Engine, worker: WorkerId, lease: Lease, session: VirtualSession) {
        assert_eq!(session.restarts, self.restarts, "sessions do not outlive a crash");
        let held = self.held.get(&lease.id).copied().filter(|(holder, ..)| *holder == worker);
        assert_eq!(engine.lease(worker, lease.id), held.map(|(_, lease, _)| lease));
        self.reporting = Some((lease.id, held.is_some()));
        let Some((_, given, parameters)) = held else {
            self.counts.add("results for a lease that is over", 1);
            return;
        };
        assert_eq!(given, lease, "within a session, a lease's number stands for one lease");
        self.held.remove(&lease.id);
        self.arrived.insert(lease.id, Gradient { worker, lease, parameters });
    }

    /// Checks that the engine accepts a report if, and only if, its worker holds the lease.
    pub(crate) fn reported(
        &mut self,
        worker: WorkerId,
        lease: LeaseId,
        answer: Result<(), Refusal>,
        effects: &[Effect],
    ) {
        let (reporting, is_held) = self.reporting.take().expect("a report comes in a message");
        assert_eq!((reporting, is_held), (lease, answer.is_ok()), "worker {worker}");
        assert!(answer.is_ok() || effects.is_empty(), "a refused report changes nothing");
        let has_failed = answer.is_ok() && !self.arrived.contains_key(&lease);
        self.failures += u64::from(has_failed);
    }

    pub(crate) fn effect(&mut self, effect: &Effect) {
        assert_ne!(self.state, State::Over, "{effect:?} after the end");
        match effect {
            Effect::Start { iteration, workers, decision, .. } => self.started(iteration.number(), workers, decision),
            Effect::Assign { worker, lease, .. } => self.assigned(*worker, *lease),
            Effect::End { worker, lease, outcome, time } => self.lease_ended(*worker, *lease, *outcome, *time),
            Effect::Collect { collections, .. } => collections.iter().for_each(|asked| self.asked(asked)),
            Effect::Step { iteration, tasks, collections, collected, .. } => {
                self.collections.order(collections, collected);
                self.step(iteration.number(), tasks, collected);
            }
            Effect::Committed { cost, .. } => self.commit(cost),
            Effect::Left { worker } => panic!("no worker leaves slowly here, but {worker} does"),
            Effect::Evict { worker, silent_s } => {
                self.failures += 1;
                assert!(*silent_s > 0.0);
                assert!(self.present.remove(worker), "only a worker that is present is evicted");
                self.collections.lose(*worker);
            }
            Effect::Expel { worker, strikes, mismatches } => {
                assert!(*strikes > 0 || *mismatches > 0);
                assert!(*mismatches == 0 || worker.number() == LIAR, "an honest worker is found out");
                // A result may turn out to be wrong when its worker has left.
                self.present.remove(worker);
                self.collections.lose(*worker);
            }
            Effect::Compare { tasks, first, second } => {
                let [one, other] = [first, second].map(|collection| self.collections.delivered(*collection));
                assert!(one.0 != other.0 && one.1.tasks == *tasks && other.1.tasks == *tasks, "{one:?}, {other:?}");
                assert!(self.scenario.engine.verify.is_some() && self.compared.insert((*first, *second)));
                self.counts.add("results compared", 1);
            }
            // The failures may have been before a crash.
            Effect::Rest { rest_s, strikes, .. } => assert!(*rest_s >= 0.0 && *strikes > 0),
            Effect::Wait { .. } | Effect::ProbeLink { .. } => {}
            Effect::Finish { .. } => self.state = State::Over,
            Effect::Abort { reason: AbortReason::TasksFailed { .. } } => {
                let failures = self.failures;
                assert!(failures >= MAX_FAILURES, "given up after {failures} failures");
                self.counts.add("runs given up", 1);
                self.state = State::Aborted;
            }
            Effect::Abort { reason } => panic!("{reason}"),
        }
    }

    fn started(&mut self, iteration: u64, workers: &[WorkerId], decision: &Arc<Decision>) {
        assert!(
            self.iteration.is_none() && self.state == State::Running,
            "an iteration begins when the one before is committed"
        );
        assert_eq!(iteration, self.record.parameters.len() as u64, "iterations come in order");
        let has_begun = !self.ahead.is_empty();
        assert!(has_begun || workers.iter().all(|worker| self.present.contains(worker)));
        if self.scenario.takes_all() {
            assert_eq!(tasks_of(decision), self.scenario.engine.budget, "{decision:?}");
        }
        let decision = Arc::clone(decision);
        self.iteration = Some(OpenIteration {
            decision,
            employed: std::mem::take(&mut self.ahead),
            caught: BTreeSet::new(),
            applied: Vec::new(),
            step: None,
        });
    }

    fn assigned(&mut self, worker: WorkerId, lease: Lease) {
        assert!(self.present.contains(&worker), "only workers that are present get tasks");
        assert_eq!(lease.id, LeaseId(self.record.next_lease), "a lease's number is used once");
        self.record.next_lease += 1;
        assert!(lease.tasks.count > 0);
        let current = self.record.parameters.len() as u64;
        match &mut self.iteration {
            Some(iteration) if lease.iteration.number() == current => {
                assert_eq!(iteration.step, None, "a step has its results");
                iteration.employed.insert(worker);
            }
            iteration => {
                assert!(self.scenario.engine.takes_local_steps, "leases are of the iteration");
                assert_eq!(lease.iteration.number(), current + u64::from(iteration.is_some()));
                self.ahead.insert(worker);
                self.is_ahead_in_time();
            }
        }
        let parameters = *self.record.parameters.last().expect("there are some from the start");
        self.held.insert(lease.id, (worker, lease, parameters));
        lease.own.into_iter().for_each(|own| self.collections.ask(worker, own, &[lease]));
    }

    /// Checks that all tasks of the iteration are handed out, since leases of the next one are.
    fn is_ahead_in_time(&mut self) {
        self.counts.add("leases of an iteration ahead", 1);
        let Some(OpenIteration { decision, step: None, .. }) = &self.iteration else { return };
        self.counts.add("those before the iteration has all results", 1);
        let current = self.record.parameters.len() as u64;
        let held = self.held.values().map(|(_, lease, _)| lease);
        let begun = held.chain(self.arrived.values().map(|gradient| &gradient.lease));
        let begun: TaskRanges =
            begun.filter(|lease| lease.iteration.number() == current).map(|lease| lease.tasks).collect();
        assert!(begun.covers(&TaskRange { first: 0, count: tasks_of(decision) }.into()), "{begun:?} are not all");
    }

    fn lease_ended(&mut self, worker: WorkerId, lease: Lease, outcome: TaskOutcome, time: LeaseTime) {
        match (time, self.arrived.remove(&lease.id)) {
            (LeaseTime::Reported { factor, .. }, Some(gradient)) => {
                if let TaskOutcome::Lost | TaskOutcome::Failed = outcome
                    && !self.is_ahead(lease)
                {
                    self.take_back(lease);
                }
                assert!(outcome != TaskOutcome::Applied || self.is_committing);
                assert!((0.0..=1.0).contains(&factor));
                assert_eq!((gradient.worker, gradient.lease), (worker, lease));
                // Local steps may begin at the parameters of the iteration before.
                let iteration = lease.iteration.number() as usize;
                let first = iteration.saturating_sub(1 + usize::from(self.scenario.engine.takes_local_steps));
                assert!(self.record.parameters.iter().take(iteration).skip(first).any(|at| *at == gradient.parameters));
            }
            (LeaseTime::Censored { .. }, None) => {
                assert!(matches!(outcome, TaskOutcome::Cancelled | TaskOutcome::Lost | TaskOutcome::Failed));
                let held = self.held.remove(&lease.id).map(|(holder, lease, _)| (holder, lease));
                assert_eq!(held, Some((worker, lease)), "every lease ends once: {outcome:?}");
            }
            (_, arrived) => panic!("{lease:?} ended as {outcome:?}, and what arrived is {arrived:?}"),
        }
        self.check_outcome(worker, lease, outcome);
        let is_probe = |open: &OpenIteration| lease.tasks.first >= tasks_of(&open.decision);
        if let TaskOutcome::Lost | TaskOutcome::Failed | TaskOutcome::Cancelled = outcome
            && !self.is_ahead(lease)
            && !self.iteration.as_ref().is_some_and(is_probe)
        {
            // The iteration ahead is given up, since this is computed again.
            self.ahead.clear();
        }
        match outcome {
            TaskOutcome::Applied => {
                let iteration = self.iteration.as_mut().expect("a step takes it");
                iteration.applied.push((worker, lease));
            }
            TaskOutcome::Lost => assert!(!self.present.contains(&worker), "its worker is present"),
            _ => {}
        }
        lease.own.into_iter().for_each(|own| self.collections.end(own));
    }

    /// Checks that a result mismatches only if it is wrong, and that what a worker does is in vain only if no step needs it.
    fn check_outcome(&mut self, worker: WorkerId, lease: Lease, outcome: TaskOutcome) {
        let is_wrong = is_wrong(worker, lease.id);
        match outcome {
            TaskOutcome::Cancelled | TaskOutcome::Ignored if self.is_ahead(lease) => {
                self.counts.add("those that were given up", 1);
            }
            TaskOutcome::Cancelled | TaskOutcome::Ignored if self.scenario.is_reproducible() => {
                let iteration = self.iteration.as_ref().expect("leases are of an iteration");
                let is_probe = lease.tasks.first >= tasks_of(&iteration.decision).max(self.scenario.engine.budget);
                let has_other = self.arrived.values().any(|other| other.lease.tasks.overlaps(lease.tasks));
                assert!(
                    is_probe || has_other || iteration.caught.contains(&worker),
                    "{lease:?} of {worker} was needed"
                );
            }
            TaskOutcome::Applied => assert!(
                self.scenario.engine.verify.is_none_or(|verify| verify.share < 1.0) || !is_wrong,
                "a wrong result is used"
            ),
            TaskOutcome::Mismatched => {
                assert!(self.scenario.engine.verify.is_some() && is_wrong, "a right result is found wrong");
                self.iteration.as_mut().expect("it is of an iteration").caught.insert(worker);
                self.counts.add("wrong results found", 1);
            }
            TaskOutcome::Disputed => {
                self.failures += 1;
                self.idle_since_s = None;
                self.counts.add("results disputed", 1);
            }
            _ => {}
        }
    }

    pub(crate) fn is_right(&self, collection: CollectionId) -> bool {
        let (worker, lease) = self.collections.delivered(collection);
        !is_wrong(worker, lease.id)
    }

    /// Returns whether a lease is one of the iteration after the current one.
    fn is_ahead(&self, lease: Lease) -> bool {
        lease.iteration.number() as usize >= self.record.parameters.len() + usize::from(self.iteration.is_some())
    }

    /// Checks that a worker is asked for its own leases, whether it has computed them or not.
    fn asked(&mut self, Collection { worker, id, leases }: &Collection) {
        assert!(self.present.contains(worker), "only workers that are present are asked");
        let of_worker = |lease: &Lease| match (self.held.get(&lease.id), self.arrived.get(&lease.id)) {
            (Some((holder, held, _)), None) => (holder, held) == (worker, lease),
            (None, Some(gradient)) => (&gradient.worker, &gradient.lease) == (worker, lease),
            _ => false,
        };
        assert!(leases.iter().all(|lease| lease.own.is_none() && of_worker(lease)), "{leases:?}");
        self.collections.ask(*worker, *id, leases);
    }

    /// Takes back a lost gradient that its worker kept.
    fn take_back(&mut self, lease: Lease) {
        if self.collections.lose_gradient(lease)
            && let Some(iteration) = &mut self.iteration
        {
            iteration.step = None;
        }
    }

    /// Checks that a step takes the right tasks, each once.
    fn step(&mut self, number: u64, tasks: &[TaskRange], collected: &[(WorkerId, Lease)]) {
        let OpenIteration { decision, step, .. } = self.iteration.as_mut().expect("a step is of an iteration");
        assert_eq!(number, self.record.parameters.len() as u64, "steps come in order");
        let mut expected: Vec<u64> = collected.iter().flat_map(|(_, lease)| lease.tasks.indices()).collect();
        expected.sort_unstable();
        assert!(expected.is_sorted_by(|a, b| a < b), "each task once: {expected:?}");
        assert!(tasks.iter().flat_map(|range| range.indices()).eq(expected.iter().copied()), "{tasks:?}");
        assert_eq!(expected.len() as u64, tasks_of(decision), "{decision:?}");
        match decision.collect {
            Collect::All | Collect::InParts { .. } | Collect::Race { .. } => {
                assert_eq!((tasks.len(), tasks[0].first), (1, 0));
            }
            Collect::Each { max_delay, .. } => assert!(number - collected[0].1.iteration.number() < max_delay),
            Collect::First { .. } | Collect::Soonest { .. } => {}
        }
        assert!(step.replace(expected.len() as u64).is_none(), "one step per iteration");
    }

    fn stepped(&mut self, applied: &[(WorkerId, Lease)]) {
        let named = |lease: Lease| lease.tasks.indices().map(move |task| (lease.iteration.number(), task));
        let mut entered: Vec<(u64, u64)> = applied.iter().flat_map(|(_, lease)| named(*lease)).collect();
        entered.sort_unstable();
        let before = self.record.parameters.last().expect("there are some from the start");
        self.record.parameters.push(after(*before, &entered));
    }

    /// Checks the cost of an iteration against what happened in it.
    fn commit(&mut self, cost: &IterationCost) {
        let OpenIteration { employed, applied, step, .. } = self.iteration.take().expect("it was begun");
        let tasks = step.expect("its step was taken");
        assert_eq!(applied.iter().map(|(_, lease)| lease.tasks.count).sum::<u64>(), tasks, "all of it is applied");
        self.stepped(&applied);
        self.is_committing = false;
        assert_eq!((cost.iteration.next().number(), cost.tasks_applied), (self.record.parameters.len() as u64, tasks));
        assert_eq!(cost.employments, employed.len() as u64);
        assert!(cost.runtime_s >= 0.0 && cost.total_worker_time_s >= 0.0, "{cost:?}");
        self.record.applied += tasks;
        for (worker, lease) in applied {
            *self.record.by_worker.entry(worker).or_default() += lease.tasks.count;
        }
    }

    pub(crate) fn check_ledger(&self, engine: &Engine) {
        let ledger = engine.ledger();
        let Record { parameters, applied, by_worker, .. } = &self.record;
        assert_eq!((ledger.iterations + 1, ledger.tasks_applied), (parameters.len() as u64, *applied));
        let workers = (0..).map(WorkerId::from_slot).zip(&ledger.workers);
        for (worker, cost) in workers {
            assert_eq!(cost.tasks_applied, by_worker.get(&worker).copied().unwrap_or(0), "worker {worker}");
        }
    }

    pub(crate) fn settled(&mut self, now_s: f64, engine: &mut Engine) {
        let is_present = |(holder, ..): &(WorkerId, Lease, u64)| self.present.contains(holder);
        assert!(self.held.values().all(is_present), "an absent worker holds no lease");
        self.may_pause = self.failures >= MAX_FAILURES && engine.poll_timeout().is_some();
        self.progress(now_s);
    }

    /// Checks that workers have nothing to do only for a while, and only after several failures in a row.
    pub(crate) fn progress(&mut self, now_s: f64) {
        let is_collecting = self.iteration.as_ref().is_some_and(|iteration| iteration.step.is_none());
        let is_sent = |gradient: &Gradient| gradient.lease.own.is_some_and(|own| self.collections.is_awaited(own));
        // A result that must be confirmed may wait for a second worker.
        let fewest = usize::from(self.scenario.engine.verify.is_some());
        let is_quiet = self.held.is_empty() && self.compared.is_empty() && !self.arrived.values().any(is_sent);
        let nobody_computes = is_quiet && self.present.len() > fewest;
        if self.state == State::Over || !is_collecting || !nobody_computes {
            self.idle_since_s = None;
            return;
        }
        let idle_s = now_s - *self.idle_since_s.get_or_insert(now_s);
        let longest_pause_s = self.scenario.engine.rest_s.max(self.scenario.engine.outage_s);
        let in_time = idle_s <= longest_pause_s + ROUNDING_S;
        assert!(self.may_pause && in_time, "workers are present, and none has computed for {idle_s} s");
    }

    pub(crate) fn take_counts(&mut self) -> Counts {
        let mut counts = std::mem::take(&mut self.counts);
        counts.add("evictions and failed leases", self.failures);
        counts.add_all(&std::mem::take(&mut self.collections.counts));
        counts
    }

    /// Checks that exactly the steps that the run needs were taken.
    pub(crate) fn check_end(&self, engine: &Engine) {
        assert_eq!(self.state, State::Over);
        self.check_ledger(engine);
        assert_eq!(self.record.parameters.len() as u64 - 1, self.scenario.engine.iterations);
        if self.scenario.takes_all() {
            assert_eq!(self.record.applied, self.scenario.engine.iterations * self.scenario.engine.budget);
        }
    }
}

/// Returns whether a worker's result is wrong. Those of one worker are now and then, each in a different way.
fn is_wrong(worker: WorkerId, lease: LeaseId) -> bool {
    worker.number() == LIAR && lease.0.is_multiple_of(3)
}

fn tasks_of(decision: &Decision) -> u64 {
    match decision.collect {
        Collect::All => decision.allocation.iter().sum(),
        Collect::First { take, .. } | Collect::Soonest { take } => take,
        Collect::InParts { tasks } | Collect::Race { tasks } => tasks,
        Collect::Each { .. } => 1,
    }
}

/// Returns the parameters after a step, which depend on the tasks in it, each named by iteration and index.
pub(crate) fn after(parameters: u64, tasks: &[(u64, u64)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (parameters, tasks).hash(&mut hasher);
    hasher.finish()
}
