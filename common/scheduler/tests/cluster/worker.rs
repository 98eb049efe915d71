//! A worker: it computes its leases in order, and connects again when its session is over.

use std::collections::VecDeque;

use ata_types::{Lease, LeaseId, WorkerId};
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use crate::network::{Gradient, ToCoordinator, ToWorker, Token};
use crate::scenario::SLOWEST;

/// Seconds between two heartbeats.
pub(crate) const HEARTBEAT_S: f64 = 0.5;

/// Seconds without a word after which a session is over, for either side.
pub(crate) const SILENCE_S: f64 = 2.0;

/// A computation.
#[derive(Clone, Debug)]
struct Job {
    session: Token,
    gradient: Gradient,
}

/// What a worker does.
#[derive(Debug)]
pub(crate) enum Act {
    Send(ToCoordinator),
    /// It computes the job of this number for so long.
    Compute {
        job: u64,
        seconds: f64,
    },
}

pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    rng: ChaCha8Rng,
    /// Changes when another machine gets this worker's number.
    machine: u64,
    /// Changes with every start; `None` while it is down.
    pub(crate) process: Option<u64>,
    processes: u64,
    fuses: bool,
    task_s: f64,
    fail: f64,
    session: Option<Token>,
    heard_s: f64,
    waiting: VecDeque<Job>,
    computing: Option<Job>,
    jobs: u64,
}

impl Worker {
    pub(crate) fn new(id: WorkerId, mut rng: ChaCha8Rng, task_s: f64, fail: f64) -> Self {
        Self {
            id,
            machine: 0,
            process: None,
            processes: 0,
            fuses: rng.random_bool(0.2),
            // Some are ten times as fast as others.
            task_s: task_s * SLOWEST / 1.5 * rng.random_range(0.1..1.0),
            fail,
            rng,
            session: None,
            heard_s: 0.0,
            waiting: VecDeque::new(),
            computing: None,
            jobs: 0,
        }
    }

    /// Starts, maybe on another machine that gets its number.
    pub(crate) fn start(&mut self) -> u64 {
        self.machine += u64::from(self.rng.random_bool(0.2));
        self.processes += 1;
        self.process = Some(self.processes);
        self.processes
    }

    pub(crate) fn crash(&mut self) {
        (self.process, self.session, self.computing) = (None, None, None);
        self.waiting.clear();
    }

    /// The faults are over: its leases no longer fail.
    pub(crate) fn recover(&mut self) {
        self.fail = 0.0;
    }

    /// Says that it is alive.
    pub(crate) fn tick(&mut self, now_s: f64) -> Vec<Act> {
        let Some(process) = self.process else { return Vec::new() };
        if now_s - self.heard_s > SILENCE_S {
            self.session = None;
        }
        let worker = self.id;
        vec![Act::Send(match self.session {
            Some(session) => ToCoordinator::Heartbeat { worker, session },
            None => ToCoordinator::Hello { worker, machine: self.machine, process, fuses: self.fuses },
        })]
    }

    pub(crate) fn receive(&mut self, now_s: f64, message: ToWorker) -> Vec<Act> {
        match message {
            _ if self.process.is_none() => return Vec::new(),
            ToWorker::Welcome { process, session } if self.process == Some(process) && self.session.is_none() => {
                (self.session, self.heard_s) = (Some(session), now_s);
                self.waiting.clear();
                // It should stop what it computes for the session before, but may be late in doing so.
                if self.rng.random_bool(0.2) {
                    self.computing = None;
                }
            }
            ToWorker::Gone { session } if self.session == Some(session) => self.session = None,
            ToWorker::Alive { session } if self.session == Some(session) => self.heard_s = now_s,
            ToWorker::Cancel { session, lease } if self.session == Some(session) => self.cancel(lease),
            ToWorker::Assign { session, lease, parameters } if self.session == Some(session) => {
                self.heard_s = now_s;
                let gradient = Gradient { lease, parameters, busy_s: self.times(&lease) };
                self.waiting.push_back(Job { session, gradient });
            }
            _ => {}
        }
        self.begin()
    }

    /// A computation is over, unless it was given up.
    pub(crate) fn computed(&mut self, job: u64) -> Vec<Act> {
        if self.jobs != job {
            return Vec::new();
        }
        let Some(Job { session, gradient }) = self.computing.take() else { return self.begin() };
        let worker = self.id;
        let report = if self.rng.random_bool(self.fail) {
            ToCoordinator::Failed { worker, session, lease: gradient.lease.id }
        } else {
            ToCoordinator::Done { worker, session, gradient }
        };
        let mut acts = vec![Act::Send(report)];
        acts.extend(self.begin());
        acts
    }

    fn cancel(&mut self, lease: LeaseId) {
        self.waiting.retain(|job| job.gradient.lease.id != lease);
        if self.computing.as_ref().is_some_and(|job| job.gradient.lease.id == lease) {
            self.computing = None;
        }
    }

    fn begin(&mut self) -> Vec<Act> {
        if self.computing.is_some() {
            return Vec::new();
        }
        let Some(job) = self.waiting.pop_front() else { return Vec::new() };
        let seconds = job.gradient.busy_s.iter().sum();
        self.computing = Some(job);
        self.jobs += 1;
        // It may claim to have taken less time, or more.
        if let Some(job) = &mut self.computing
            && self.rng.random_bool(0.05)
        {
            let factor = [0.0, 100.0][self.rng.random_range(0..2)];
            job.gradient.busy_s.iter_mut().for_each(|time_s| *time_s *= factor);
        }
        vec![Act::Compute { job: self.jobs, seconds }]
    }

    fn times(&mut self, lease: &Lease) -> Vec<f64> {
        let tasks = (0..lease.tasks.count).map(|_| self.task_s * self.rng.random_range(0.5..1.5));
        let times: Vec<f64> = tasks.collect();
        if self.fuses { vec![times.iter().sum()] } else { times }
    }
}
