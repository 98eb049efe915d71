//! The coordinator: drives the engine as the real one does, and checks at every event what must never happen.

mod effects;

pub(crate) use effects::after;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ata_scheduler::{Decision, Effect, Engine, Event, Report, SavedEngine, StepOutcome, WorkerStatistics};
use ata_types::{Lease, LeaseId, MachineId, WorkerId};

use crate::Counts;
use crate::network::{Gradient, ToCoordinator, ToWorker, Token};
use crate::scenario::Scenario;
use crate::simulation::LOOK_S;
use crate::worker::SILENCE_S;

/// Attempts after which tasks may be given up.
const MAX_FAILURES: u64 = 3;

/// What it wants done.
#[derive(Debug)]
pub(crate) enum Act {
    Send(WorkerId, ToWorker),
    /// Take the step, which takes a while.
    Step(u64),
    /// Write this, which takes a while.
    Save(Box<Saved>),
    /// The run is over, and saved.
    End,
    /// The run was given up.
    Abort,
}

/// What is known of the steps that were taken, by other means than the engine's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The parameters before each step, and after the last one.
    pub(crate) parameters: Vec<u64>,
    /// Tasks in steps.
    pub(crate) applied: u64,
    /// The same by worker.
    by_worker: BTreeMap<WorkerId, u64>,
    /// Which machine has a worker's number.
    machines: BTreeMap<WorkerId, u64>,
    next_lease: u64,
}

/// What outlives a crash.
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    /// Of the run's clock.
    pub(crate) time_s: f64,
    engine: String,
    pub(crate) record: Record,
}

struct Session {
    token: Token,
    process: u64,
    heard_s: f64,
}

/// The iteration whose results are awaited, or whose step is being taken.
struct Iteration {
    decision: Arc<Decision>,
    employed: BTreeSet<WorkerId>,
    taken: Vec<(WorkerId, Lease)>,
    /// Tasks of the step, once it is due.
    step: Option<u64>,
}

/// What is being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Saving {
    #[default]
    Nothing,
    One,
    /// The next iteration waits until this is written, as the next save is due.
    AndTheNext,
}

pub(crate) struct Coordinator {
    engine: Engine,
    takes_all: bool,
    budget: u64,
    save_every: u64,
    iterations: u64,
    sessions: BTreeMap<WorkerId, Session>,
    next_token: Token,
    /// Leases that workers hold.
    held: BTreeMap<LeaseId, (WorkerId, Lease)>,
    /// Gradients that were accepted, whose leases have not ended yet.
    arrived: BTreeMap<LeaseId, (WorkerId, Gradient)>,
    pub(crate) record: Record,
    iteration: Option<Iteration>,
    is_committed: bool,
    saving: Saving,
    is_over: bool,
    /// The longest that the engine may hand out nothing after failures.
    longest_pause_s: f64,
    /// Since when workers are present, and none computes.
    idle_since_s: Option<f64>,
    pub(crate) counts: Counts,
    acts: Vec<Act>,
}

impl Coordinator {
    /// Starts or goes on from what was saved. Its tokens begin at `next_token`.
    pub(crate) fn start(scenario: &Scenario, saved: Option<&Saved>, next_token: Token) -> Self {
        let (config, policy) = (scenario.engine, scenario.policy());
        let (engine, record) = match saved {
            None => (Engine::new(config, policy), Record { parameters: vec![0], ..Record::default() }),
            Some(Saved { engine, record, .. }) => {
                let engine: SavedEngine = serde_json::from_str(engine).unwrap();
                (Engine::restore(config, policy, engine).unwrap(), record.clone())
            }
        };
        assert_eq!(engine.iteration().number(), record.parameters.len() as u64, "no saved step is lost");
        assert_eq!(engine.present().count(), 0);
        let mut coordinator = Self {
            engine,
            takes_all: scenario.takes_all(),
            budget: config.budget,
            save_every: scenario.save_every,
            iterations: config.iterations,
            sessions: BTreeMap::new(),
            next_token,
            held: BTreeMap::new(),
            arrived: BTreeMap::new(),
            record,
            iteration: None,
            is_committed: false,
            saving: Saving::Nothing,
            is_over: false,
            longest_pause_s: config.rest_s.max(config.outage_s),
            idle_since_s: None,
            counts: Counts::default(),
            acts: Vec::new(),
        };
        coordinator.check_ledger();
        coordinator.tell(saved.map_or(0.0, |saved| saved.time_s), Event::Proceed);
        coordinator
    }

    /// What is to be done since the last call.
    pub(crate) fn acts(&mut self) -> Vec<Act> {
        std::mem::take(&mut self.acts)
    }

    pub(crate) fn next_token(&self) -> Token {
        self.next_token
    }

    /// Time passes: sessions and leases expire.
    pub(crate) fn look(&mut self, now_s: f64) {
        if self.is_over {
            return;
        }
        let silent = |session: &Session| now_s - session.heard_s > SILENCE_S;
        let silent: Vec<WorkerId> =
            self.sessions.iter().filter(|(_, session)| silent(session)).map(|(worker, _)| *worker).collect();
        for worker in silent {
            // A loss may end the run: if it was the last worker on which tasks had not failed.
            if !self.is_over {
                self.close(now_s, worker);
            }
        }
        if !self.is_over && self.engine.poll_timeout().is_some_and(|at_s| at_s <= now_s) {
            self.tell(now_s, Event::Timeout);
        }
        self.check_progress(now_s);
    }

    pub(crate) fn receive(&mut self, now_s: f64, message: ToCoordinator) {
        match message {
            _ if self.is_over => {}
            ToCoordinator::Hello { worker, machine, process, fuses } => {
                self.hello(now_s, worker, machine, process, fuses);
            }
            ToCoordinator::Heartbeat { worker, session } => {
                let is_alive = self.session_of(now_s, worker, session);
                let answer = if is_alive { ToWorker::Alive { session } } else { ToWorker::Gone { session } };
                self.acts.push(Act::Send(worker, answer));
            }
            ToCoordinator::Failed { worker, session, lease } => {
                if self.session_of(now_s, worker, session) {
                    let is_held = self.held.get(&lease).is_some_and(|(holder, _)| *holder == worker);
                    let told = self.report(now_s, worker, lease, Report::Failed);
                    assert_eq!(told, is_held);
                }
            }
            ToCoordinator::Done { worker, session, gradient } => self.done(now_s, worker, session, &gradient),
        }
    }

    /// The step was taken.
    pub(crate) fn stepped(&mut self, now_s: f64, iteration: u64) {
        self.tell(
            now_s,
            Event::StepCommitted { iteration: ata_types::Iteration(iteration), outcome: StepOutcome::default() },
        );
    }

    /// Something was written.
    pub(crate) fn saved(&mut self, now_s: f64) {
        if std::mem::take(&mut self.saving) == Saving::AndTheNext {
            self.save(now_s);
            self.tell(now_s, Event::Proceed);
        } else if self.is_over {
            self.acts.push(Act::End);
        }
    }

    fn hello(&mut self, now_s: f64, worker: WorkerId, machine: u64, process: u64, fuses: bool) {
        match self.sessions.get(&worker) {
            // The session of another process, dead or alive: that one tries again.
            Some(session) if session.process != process => return,
            Some(_) => self.close(now_s, worker),
            None => {}
        }
        if self.is_over {
            return;
        }
        if self.record.machines.insert(worker, machine).is_some_and(|before| before != machine) {
            self.tell(now_s, Event::WorkerForgotten { worker });
            self.record.by_worker.remove(&worker);
        }
        let session = self.next_token;
        self.next_token += 1;
        self.sessions.insert(worker, Session { token: session, process, heard_s: now_s });
        self.acts.push(Act::Send(worker, ToWorker::Welcome { process, session }));
        let (machine, prior) = (MachineId(machine), WorkerStatistics::default());
        self.tell(now_s, Event::WorkerJoined { worker, machine, prior, fuses });
    }

    fn close(&mut self, now_s: f64, worker: WorkerId) {
        self.sessions.remove(&worker);
        self.tell(now_s, Event::WorkerLost { worker });
        assert!(self.held.values().all(|(holder, _)| *holder != worker), "an absent worker holds no lease");
    }

    /// Whether a session is that of a worker that is present, which was heard from now.
    fn session_of(&mut self, now_s: f64, worker: WorkerId, token: Token) -> bool {
        let session = self.sessions.get_mut(&worker).filter(|session| session.token == token);
        session.map(|session| session.heard_s = now_s).is_some()
    }

    fn done(&mut self, now_s: f64, worker: WorkerId, session: Token, gradient: &Gradient) {
        let lease = gradient.lease;
        if !self.session_of(now_s, worker, session) {
            self.counts.late += 1;
            self.counts.impostors += u64::from(self.engine.lease(worker, lease.id).is_some());
            return;
        }
        let held = self.engine.lease(worker, lease.id);
        assert_eq!(held, self.held.get(&lease.id).filter(|(holder, _)| *holder == worker).map(|(_, lease)| *lease));
        if held.is_none() {
            self.counts.not_held += 1;
        } else {
            assert_eq!(held, Some(lease), "within a session, a lease's number stands for one lease");
            self.held.remove(&lease.id);
            self.arrived.insert(lease.id, (worker, gradient.clone()));
        }
        let told = self.report(now_s, worker, lease.id, Report::Done { busy_s: &gradient.busy_s });
        assert_eq!(told, held.is_some());
    }

    /// Whether the engine accepted a report.
    fn report(&mut self, now_s: f64, worker: WorkerId, lease: LeaseId, report: Report<'_>) -> bool {
        let mut effects = Vec::new();
        let told = self.engine.report(now_s, worker, lease, report, &mut effects);
        assert!(told.is_ok() || effects.is_empty(), "a refused report changes nothing");
        self.counts.failures += u64::from(told.is_ok() && matches!(report, Report::Failed));
        self.carry_out(now_s, effects);
        told.is_ok()
    }

    fn tell(&mut self, now_s: f64, event: Event) {
        let mut effects = Vec::new();
        self.engine.handle(now_s, event, &mut effects);
        self.carry_out(now_s, effects);
    }

    fn carry_out(&mut self, now_s: f64, effects: Vec<Effect>) {
        for effect in effects {
            self.apply(now_s, effect);
        }
        if std::mem::take(&mut self.is_committed) {
            self.committed(now_s);
        }
        self.check_progress(now_s);
    }

    /// After several failures in a row workers may have nothing to do, but only for a while.
    fn check_progress(&mut self, now_s: f64) {
        let is_collecting = self.iteration.as_ref().is_some_and(|iteration| iteration.step.is_none());
        let nobody_computes = self.held.is_empty() && !self.sessions.is_empty();
        if self.is_over || !is_collecting || !nobody_computes {
            self.idle_since_s = None;
            return;
        }
        let idle_s = now_s - *self.idle_since_s.get_or_insert(now_s);
        let may_pause = self.counts.failures >= MAX_FAILURES && self.engine.poll_timeout().is_some();
        // It learns of a timeout when it looks next.
        let in_time = idle_s <= self.longest_pause_s + LOOK_S;
        assert!(may_pause && in_time, "workers are present, and none has computed for {idle_s} s");
    }

    /// Saves what is due, as the real one does; the next iteration begins unless it has to wait for that.
    fn committed(&mut self, now_s: f64) {
        let number = self.record.parameters.len() as u64 - 1;
        let is_due = self.is_over || number.is_multiple_of(self.save_every);
        if is_due && self.saving != Saving::Nothing {
            self.saving = Saving::AndTheNext;
            return;
        }
        if is_due {
            self.save(now_s);
        }
        self.tell(now_s, Event::Proceed);
    }

    fn save(&mut self, time_s: f64) {
        self.saving = Saving::One;
        let engine = self.engine.save();
        assert_eq!(engine.next_iteration().number(), self.record.parameters.len() as u64);
        let engine = serde_json::to_string(&engine).unwrap();
        self.acts.push(Act::Save(Box::new(Saved { time_s, engine, record: self.record.clone() })));
    }

    /// The steps that the run needs were taken, and no other.
    pub(crate) fn check_end(&self) {
        assert_eq!(self.record.parameters.len() as u64 - 1, self.iterations);
        if self.takes_all {
            assert_eq!(self.record.applied, self.iterations * self.budget);
        }
    }
}
