//! Runs in virtual time, from the first iteration to the end, with sound workers, outages, and broken machines.

use std::collections::{BTreeMap, VecDeque};

use ata_policies::build_policy;
use ata_scheduler::{
    AbortReason, Effect, Engine, EngineConfig, Event, PolicyContext, Report, StepOutcome, WorkerStatistics,
};
use ata_types::{CollectionId, Iteration, Lease, MachineId, TaskOutcome, WorkerId};

use crate::engine::support::worker;

/// Seconds until a task fails, because its data cannot be opened or its first number is NaN.
const FAILS_S: f64 = 0.001;

/// Seconds that a machine takes to come back after a failure.
const BACK_S: f64 = 0.01;

pub(crate) fn config(budget: u64, iterations: u64) -> EngineConfig {
    EngineConfig {
        budget,
        iterations,
        lease_timeout_s: Some(60.0),
        rest_s: 1.0,
        expel_after: Some(8),
        outage_s: 120.0,
        seed: 3,
        ..EngineConfig::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Nature {
    /// The worker computes its leases, in this many seconds per task.
    Sound(f64),
    Fails,
    Hangs,
    /// The worker computes its leases, in this many seconds per task, but every sum that it sends is refused.
    Refused(f64),
}

impl Nature {
    fn task_s(self) -> Option<f64> {
        match self {
            Self::Sound(task_s) | Self::Refused(task_s) => Some(task_s),
            Self::Fails | Self::Hangs => None,
        }
    }
}

/// The name under which a broken machine returns after each failure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Return {
    /// It keeps its old name, and never left.
    Same,
    /// It gets a new name.
    Renamed,
    /// It gets a new name and a new address.
    Moved,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) address: u64,
    pub(crate) nature: Nature,
    pub(crate) returns: Return,
}

/// The leases of a worker in the order in which they are computed, and the time at which the first one began.
struct Working {
    machine: Machine,
    leases: Vec<Lease>,
    begun_s: f64,
}

pub(crate) struct Drill {
    engine: Engine,
    pub(crate) now_s: f64,
    workers: BTreeMap<WorkerId, Working>,
    /// The machines that come back, with the time and the number.
    away: Vec<(f64, Machine, u32)>,
    /// Whether all machines have the same address, as behind a router.
    pub(crate) is_one_address: bool,
    /// The time span in which no lease can be computed.
    pub(crate) outage_s: (f64, f64),
    /// The address that the outage spares, if there is one.
    pub(crate) spared: Option<u64>,
    /// Seconds until a task fails, in which its worker may try again.
    pub(crate) fails_s: f64,
    /// Returns whether the worker reports that the tasks are to blame, given the time at which a failure begins.
    pub(crate) uncomputable: fn(f64) -> bool,
    asked: BTreeMap<CollectionId, WorkerId>,
    /// Events for the engine once its effects so far are carried out.
    next: VecDeque<Event>,
    names: u32,
    is_over: bool,
    pub(crate) aborted: Option<AbortReason>,
    starts_s: Vec<f64>,
    pub(crate) failures_s: Vec<f64>,
    pub(crate) expelled: Vec<WorkerId>,
}

impl Drill {
    pub(crate) fn new(policy: &str, config: EngineConfig) -> Self {
        let engine = Engine::new(config, build_policy(policy, &PolicyContext::default()).unwrap());
        Self {
            engine,
            now_s: 0.0,
            workers: BTreeMap::new(),
            away: Vec::new(),
            is_one_address: false,
            outage_s: (0.0, 0.0),
            spared: None,
            fails_s: FAILS_S,
            uncomputable: |_| false,
            asked: BTreeMap::new(),
            next: VecDeque::new(),
            names: 0,
            is_over: false,
            aborted: None,
            starts_s: Vec::new(),
            failures_s: Vec::new(),
            expelled: Vec::new(),
        }
    }

    /// Adds sound workers, each on its own machine, from address 1 on.
    pub(crate) fn sound(self, workers: u64, task_s: f64) -> Self {
        let sound = |address| Machine { address, nature: Nature::Sound(task_s), returns: Return::Same };
        (1..=workers).map(sound).fold(self, Self::with)
    }

    pub(crate) fn with(self, machine: Machine) -> Self {
        self.later(0.0, machine)
    }

    pub(crate) fn later(mut self, at_s: f64, machine: Machine) -> Self {
        let number = self.new_number();
        self.away.push((at_s, machine, number));
        self
    }

    pub(crate) fn run(mut self) -> Self {
        self.tell(Event::Proceed);
        for _ in 0..1_000_000 {
            if self.is_over {
                return self;
            }
            self.advance();
        }
        panic!("the run does not end: {} failures", self.failures_s.len());
    }

    /// Returns the seconds per iteration from the 21st on.
    pub(crate) fn pace_s(&self) -> f64 {
        (self.now_s - self.starts_s[20]) / (self.starts_s.len() as f64 - 20.0)
    }

    fn advance(&mut self) {
        let back = self.away.iter().map(|(at_s, ..)| *at_s).fold(f64::INFINITY, f64::min);
        let ready = self.workers.iter().filter_map(|(worker, working)| Some((self.ends(working)?, *worker)));
        let (result_s, first) = ready.min_by(|a, b| a.0.total_cmp(&b.0)).unzip();
        let result_s = result_s.unwrap_or(f64::INFINITY);
        let timeout_s = self.engine.poll_timeout().unwrap_or(f64::INFINITY);
        let next_s = back.min(result_s).min(timeout_s);
        assert!(next_s.is_finite(), "nothing will ever happen after {} s", self.now_s);
        self.now_s = self.now_s.max(next_s);
        if next_s == back {
            let at = self.away.iter().position(|(at_s, ..)| *at_s == back).unwrap();
            let (_, machine, number) = self.away.remove(at);
            self.join(machine, worker(number));
        } else if next_s == result_s {
            self.answer(first.unwrap());
        } else {
            // A deadline has passed only after its time.
            self.now_s = self.now_s.next_up();
            self.tell(Event::Timeout);
        }
    }

    /// Returns when a worker answers for its first lease.
    fn ends(&self, working: &Working) -> Option<f64> {
        let tasks = working.leases.first()?.tasks.count as f64;
        let lasts_s = if self.fails(working) { self.fails_s } else { working.machine.nature.task_s()? * tasks };
        Some(working.begun_s + lasts_s)
    }

    fn fails(&self, working: &Working) -> bool {
        let (from_s, until_s) = self.outage_s;
        let is_out = (from_s..until_s).contains(&working.begun_s) && self.spared != Some(working.machine.address);
        working.machine.nature == Nature::Fails || is_out
    }

    fn answer(&mut self, worker: WorkerId) {
        let working = &self.workers[&worker];
        let lease = working.leases[0];
        let has_failed = self.fails(working);
        let busy_s = vec![working.machine.nature.task_s().unwrap_or_default(); lease.tasks.count as usize];
        let uncomputable = (self.uncomputable)(working.begun_s);
        // A result that must be confirmed ends its lease only then, but its worker continues.
        self.computed(worker, lease);
        let own = lease.own.filter(|_| !has_failed).map(|own| self.arrival(worker, own));
        self.next.extend(own);
        let report =
            if has_failed { Report::Failed { uncomputable } } else { Report::Done { busy_s: &busy_s, waited_s: 0.0 } };
        let mut effects = Vec::new();
        self.engine.report(self.now_s, worker, lease.id, report, &mut effects).unwrap();
        self.carry_out(effects);
        let Some(machine) = self.workers.get(&worker).map(|working| working.machine) else { return };
        if has_failed && !self.is_over && machine.returns != Return::Same {
            self.workers.remove(&worker);
            self.tell(Event::WorkerLost { worker });
            self.come_back(machine, worker);
        }
    }

    /// Lets the collections of a step arrive in any order, before the step is taken. Some are refused; a machine that changes its name is
    /// lost instead.
    fn collect(&mut self, iteration: Iteration, mut collections: Vec<CollectionId>) {
        let order = iteration.number() as usize % collections.len().max(1);
        collections.rotate_left(order);
        for collection in collections {
            let Some(&worker) = self.asked.get(&collection) else { continue };
            let arrival = self.arrival(worker, collection);
            self.next.push_back(arrival);
        }
        self.next.push_back(Event::StepCommitted { iteration, outcome: StepOutcome::default() });
    }

    fn arrival(&self, worker: WorkerId, collection: CollectionId) -> Event {
        match self.workers.get(&worker).map(|working| working.machine) {
            Some(Machine { nature: Nature::Refused(_), returns: Return::Same, .. }) => {
                Event::CollectionFailed { worker, collection }
            }
            Some(Machine { nature: Nature::Refused(_), .. }) => Event::WorkerLost { worker },
            _ => Event::Delivered { worker, collection },
        }
    }

    fn new_number(&mut self) -> u32 {
        self.names += 1;
        self.names
    }

    fn come_back(&mut self, mut machine: Machine, worker: WorkerId) {
        let number = if machine.returns == Return::Same { worker.number() } else { self.new_number() };
        if machine.returns == Return::Moved {
            machine.address = 1000 + u64::from(number);
        }
        self.away.push((self.now_s + BACK_S, machine, number));
    }

    fn join(&mut self, machine: Machine, worker: WorkerId) {
        self.workers.insert(worker, Working { machine, leases: Vec::new(), begun_s: self.now_s });
        let address = if self.is_one_address { 0 } else { machine.address };
        let (machine, prior) = (MachineId(address), WorkerStatistics::default());
        self.tell(Event::WorkerJoined { worker, machine, prior, fuses: false });
    }

    fn tell(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.engine.handle(self.now_s, event, &mut effects);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.apply(effect);
        }
        if let Some(event) = self.next.pop_front() {
            if let Event::WorkerLost { worker } = event
                && let Some(Working { machine, .. }) = self.workers.remove(&worker)
            {
                self.come_back(machine, worker);
            }
            self.tell(event);
        }
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Start { .. } => self.starts_s.push(self.now_s),
            Effect::Assign { worker, lease, .. } => {
                let working = self.workers.get_mut(&worker).expect("only workers that are present get tasks");
                if working.leases.is_empty() {
                    working.begun_s = self.now_s;
                }
                working.leases.push(lease);
            }
            Effect::End { worker, lease, outcome, .. } => {
                if outcome == TaskOutcome::Failed {
                    self.failures_s.push(self.now_s);
                }
                self.computed(worker, lease);
            }
            Effect::Evict { worker, .. } => {
                let machine = self.workers.remove(&worker).expect("only workers that are present are evicted").machine;
                self.come_back(machine, worker);
            }
            Effect::Expel { worker, .. } => {
                self.expelled.push(worker);
                if let Some(at) = self.away.iter().position(|(.., number)| *number == worker.number()) {
                    // Its old name is refused.
                    self.away.remove(at);
                } else if let Some(Working { machine, .. }) = self.workers.remove(&worker)
                    && machine.returns != Return::Same
                {
                    self.come_back(machine, worker);
                }
            }
            Effect::Collect { collections, .. } => {
                self.asked.extend(collections.into_iter().map(|asked| (asked.id, asked.worker)));
            }
            Effect::Step { iteration, collections, .. } => self.collect(iteration, collections),
            Effect::Committed { .. } => self.next.push_back(Event::Proceed),
            Effect::Finish { .. } => self.is_over = true,
            Effect::Abort { reason } => (self.is_over, self.aborted) = (true, Some(reason)),
            Effect::Compare { tasks, first, second } => {
                self.next.push_back(Event::Compared { tasks, first, second, agree: true });
            }
            Effect::Left { .. } | Effect::Rest { .. } | Effect::Wait { .. } | Effect::ProbeLink { .. } => {}
        }
    }

    /// Records that a worker no longer computes a lease.
    fn computed(&mut self, worker: WorkerId, lease: Lease) {
        let Some(working) = self.workers.get_mut(&worker) else { return };
        if working.leases.first() == Some(&lease) {
            working.begun_s = self.now_s;
        }
        working.leases.retain(|held| *held != lease);
    }
}
