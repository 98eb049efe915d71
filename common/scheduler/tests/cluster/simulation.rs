//! Virtual time: what happens next, and the faults.

use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap};

use ata_types::WorkerId;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use crate::coordinator::{self, Act, Coordinator, Saved, after};
use crate::network::{Message, Network};
use crate::scenario::{Rates, Scenario};
use crate::worker::{self, HEARTBEAT_S, Worker};
use crate::{Counts, Log};

/// Virtual seconds within which a run must end once the faults are over. The longest wait is for a worker that was evicted
/// several times in a row, as its messages were lost: its deadline doubles each time.
const END_WITHIN_S: f64 = 600.0;

/// Seconds between two looks at the time.
pub(crate) const LOOK_S: f64 = 0.25;

#[derive(Clone, Debug)]
enum Happening {
    Arrives(Message),
    Tick { worker: WorkerId, process: u64 },
    Computed { worker: WorkerId, job: u64 },
    WorkerStarts(WorkerId),
    Stepped { incarnation: u64, iteration: u64 },
    Written { incarnation: u64 },
    Look { incarnation: u64 },
    CoordinatorStarts,
    Fault,
    Mended(BTreeSet<(WorkerId, bool)>),
    FaultsEnd,
}

struct Due {
    at_s: f64,
    number: u64,
    what: Happening,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    /// The earliest is the greatest, as a heap wants it.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at_s.total_cmp(&self.at_s).then(other.number.cmp(&self.number))
    }
}

pub(crate) struct Simulation {
    scenario: Scenario,
    rng: ChaCha8Rng,
    now_s: f64,
    due: BinaryHeap<Due>,
    happenings: u64,
    network: Network,
    workers: Vec<Worker>,
    coordinator: Option<Coordinator>,
    incarnation: u64,
    next_token: u64,
    /// What the time of the simulation is ahead of the run's clock, which stands still while the coordinator is down.
    ahead_s: f64,
    /// After so many more events the coordinator crashes.
    crash_after: Option<u64>,
    writing: Option<Box<Saved>>,
    disk: Option<Box<Saved>>,
    is_over: bool,
    counts: Counts,
    log: Log,
}

impl Simulation {
    pub(crate) fn new(scenario: Scenario, mut log: Log) -> Self {
        log.note(0.0, &scenario);
        let stream = |number: u64| {
            let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed);
            rng.set_stream(number + 1);
            rng
        };
        let worker = |number: u32| {
            let id = WorkerId::new(number).expect("numbers begin at 1");
            Worker::new(id, stream(1 + u64::from(number)), scenario.task_s, scenario.fail)
        };
        let mut simulation = Self {
            rng: stream(0),
            now_s: 0.0,
            due: BinaryHeap::new(),
            happenings: 0,
            network: Network::new(stream(1), scenario.rates),
            workers: (1..=scenario.workers).map(worker).collect(),
            coordinator: None,
            incarnation: 0,
            next_token: 1,
            ahead_s: 0.0,
            crash_after: None,
            writing: None,
            disk: None,
            is_over: false,
            counts: Counts::default(),
            log,
            scenario,
        };
        simulation.later(0.0, Happening::CoordinatorStarts);
        for worker in 0..simulation.workers.len() {
            let after_s = simulation.rng.random_range(0.0..2.0);
            simulation.later(after_s, Happening::WorkerStarts(WorkerId::from_slot(worker)));
        }
        simulation.later(0.0, Happening::Fault);
        simulation.later(simulation.scenario.faults_end_s, Happening::FaultsEnd);
        simulation
    }

    pub(crate) fn run(&mut self) {
        while !self.is_over {
            let Due { at_s, what, .. } = self.due.pop().expect("the coordinator looks at the time again and again");
            self.now_s = at_s;
            assert!(at_s < self.scenario.faults_end_s + END_WITHIN_S, "the run does not end");
            self.counts.events += 1;
            self.log.note(at_s, &what);
            self.happens(what);
        }
    }

    /// The hash of the log, and what happened.
    pub(crate) fn ended(mut self) -> (u64, Counts) {
        if let Some(coordinator) = &self.coordinator {
            self.counts += coordinator.counts;
        }
        (self.log.hash(), self.counts)
    }

    fn later(&mut self, after_s: f64, what: Happening) {
        self.happenings += 1;
        self.due.push(Due { at_s: self.now_s + after_s, number: self.happenings, what });
    }

    fn happens(&mut self, what: Happening) {
        match what {
            Happening::Arrives(Message::ToCoordinator(message)) => {
                self.coordinate(|coordinator, now_s| coordinator.receive(now_s, message));
            }
            Happening::Arrives(Message::ToWorker(worker, message)) => {
                let acts = self.workers[worker.slot()].receive(self.now_s, message);
                self.work(worker, acts);
            }
            Happening::Tick { worker, process } if self.workers[worker.slot()].process == Some(process) => {
                let acts = self.workers[worker.slot()].tick(self.now_s);
                self.work(worker, acts);
                self.later(HEARTBEAT_S, Happening::Tick { worker, process });
            }
            Happening::Computed { worker, job } => {
                let acts = self.workers[worker.slot()].computed(job);
                self.work(worker, acts);
            }
            Happening::WorkerStarts(worker) => {
                let process = self.workers[worker.slot()].start();
                self.happens(Happening::Tick { worker, process });
            }
            Happening::Stepped { incarnation, iteration } if incarnation == self.incarnation => {
                self.coordinate(|coordinator, now_s| coordinator.stepped(now_s, iteration));
            }
            Happening::Written { incarnation } if incarnation == self.incarnation && self.coordinator.is_some() => {
                self.written();
                self.coordinate(Coordinator::saved);
            }
            Happening::Look { incarnation } if incarnation == self.incarnation && self.coordinator.is_some() => {
                self.coordinate(Coordinator::look);
                self.later(LOOK_S, Happening::Look { incarnation });
            }
            Happening::CoordinatorStarts => self.start_coordinator(),
            Happening::Fault if self.now_s < self.scenario.faults_end_s => self.fault(),
            Happening::Mended(ways) => self.network.mend(&ways),
            Happening::FaultsEnd => {
                self.network.rates = Rates::NONE;
                self.crash_after = None;
                self.workers.iter_mut().for_each(Worker::recover);
            }
            // Of a process that is no more.
            Happening::Tick { .. }
            | Happening::Stepped { .. }
            | Happening::Written { .. }
            | Happening::Look { .. }
            | Happening::Fault => {}
        }
    }

    fn start_coordinator(&mut self) {
        self.incarnation += 1;
        self.counts.resumed += u64::from(self.disk.is_some());
        self.ahead_s = self.now_s - self.disk.as_ref().map_or(0.0, |saved| saved.time_s);
        self.coordinator = Some(Coordinator::start(&self.scenario, self.disk.as_deref(), self.next_token));
        self.happens(Happening::Look { incarnation: self.incarnation });
    }

    /// What was being written is on the disk. It never takes back a step that was there before.
    fn written(&mut self) {
        let saved = self.writing.take().expect("something is being written");
        if let Some(before) = &self.disk {
            assert!(saved.record.parameters.starts_with(&before.record.parameters), "a saved step is lost");
        }
        self.disk = Some(saved);
    }

    /// Lets the coordinator handle an event, and does what it wants done.
    fn coordinate(&mut self, handle: impl FnOnce(&mut Coordinator, f64)) {
        let Some(coordinator) = &mut self.coordinator else { return };
        let now_s = self.now_s - self.ahead_s;
        handle(coordinator, now_s);
        self.next_token = coordinator.next_token();
        let mut acts = coordinator.acts();
        let crashes = self.crash_after.as_mut().is_some_and(|left| {
            *left = left.saturating_sub(1);
            *left == 0
        });
        if crashes && acts.len() > 1 {
            // It crashes before all is done.
            self.counts.torn += 1;
            acts.truncate(self.rng.random_range(0..acts.len()));
        }
        for act in acts {
            self.log.note(self.now_s, &act);
            self.act(act);
        }
        if crashes && !self.is_over {
            self.crash_coordinator();
        }
    }

    fn act(&mut self, act: coordinator::Act) {
        match act {
            Act::Send(worker, message) => self.send(&Message::ToWorker(worker, message)),
            Act::Step(iteration) => {
                let seconds = self.rng.random_range(0.001..0.1);
                self.later(seconds, Happening::Stepped { incarnation: self.incarnation, iteration });
            }
            Act::Save(saved) => {
                assert!(self.writing.replace(saved).is_none(), "one at a time");
                let seconds = self.rng.random_range(0.001..1.0);
                self.later(seconds, Happening::Written { incarnation: self.incarnation });
            }
            Act::Abort => {
                self.counts.aborts += 1;
                self.crash_coordinator();
            }
            Act::End => self.end(),
        }
    }

    fn end(&mut self) {
        self.is_over = true;
        self.counts.slowest_s = (self.now_s - self.scenario.faults_end_s).max(0.0) as u64;
        let coordinator = self.coordinator.as_ref().expect("the run has ended");
        coordinator.check_end();
        // As without any fault: the steps took the tasks 0..B of their iterations, whichever worker computed them.
        if self.scenario.is_reproducible() {
            let tasks =
                |iteration| (0..self.scenario.engine.budget).map(move |task| (iteration, task)).collect::<Vec<_>>();
            let undisturbed = (1..=self.scenario.engine.iterations).fold(0, |before, k| after(before, &tasks(k)));
            assert_eq!(coordinator.record.parameters.last(), Some(&undisturbed));
        }
    }

    fn work(&mut self, worker: WorkerId, acts: Vec<worker::Act>) {
        for act in acts {
            match act {
                worker::Act::Send(message) => self.send(&Message::ToCoordinator(message)),
                worker::Act::Compute { job, seconds } => self.later(seconds, Happening::Computed { worker, job }),
            }
        }
    }

    fn send(&mut self, message: &Message) {
        for at_s in self.network.arrivals(self.now_s, message, &mut self.counts) {
            self.later(at_s - self.now_s, Happening::Arrives(message.clone()));
        }
    }

    fn fault(&mut self) {
        let next_s = self.rng.random_range(0.0..2.0 * self.scenario.fault_every_s);
        self.later(next_s, Happening::Fault);
        match self.rng.random_range(0..6) {
            0 | 1 => {
                let worker = self.rng.random_range(0..self.workers.len());
                if self.workers[worker].process.is_some() {
                    self.counts.worker_crashes += 1;
                    self.workers[worker].crash();
                    let down_s = self.rng.random_range(0.05..5.0);
                    self.later(down_s, Happening::WorkerStarts(WorkerId::from_slot(worker)));
                }
            }
            2 | 3 if self.crash_after.is_none() => self.crash_after = Some(self.rng.random_range(1..40)),
            _ => self.partition(),
        }
    }

    /// Cuts some workers off, in one direction or in both.
    fn partition(&mut self) {
        let directions: &[bool] = [&[false, true][..], &[false], &[true]][self.rng.random_range(0..3)];
        let ids: Vec<WorkerId> = self.workers.iter().map(|worker| worker.id).collect();
        let cut_off: Vec<WorkerId> = ids.into_iter().filter(|_| self.rng.random_bool(0.5)).collect();
        let ways = cut_off.iter().flat_map(|id| directions.iter().map(|to_worker| (*id, *to_worker))).collect();
        self.network.cut(&ways);
        let seconds = self.rng.random_range(0.1..6.0);
        self.later(seconds, Happening::Mended(ways));
    }

    fn crash_coordinator(&mut self) {
        let Some(coordinator) = self.coordinator.take() else { return };
        self.crash_after = None;
        self.writing = None;
        self.counts.coordinator_crashes += 1;
        let saved = self.disk.as_ref().map_or(1, |saved| saved.record.parameters.len());
        self.counts.undone += (coordinator.record.parameters.len() - saved) as u64;
        self.counts += coordinator.counts;
        let down_s = self.rng.random_range(0.05..2.0);
        self.later(down_s, Happening::CoordinatorStarts);
    }
}
