//! The coordinator's side of a run: takes steps, saves the engine, crashes, and starts again from what was saved.

use std::hash::Hasher;

use ata_scheduler::{Effect, Engine, Event, Refusal, SavedEngine, StepOutcome};
use ata_simulator::{Message, Observer, Restart, Step};
use ata_types::{CollectionId, LeaseId, WorkerId};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use crate::faults::checks::{Checks, Record, State, after};
use crate::faults::scenario::Scenario;
use crate::faults::{Counts, Log};

/// Virtual seconds within which a run must end once the faults are over. The longest wait is for a worker that was evicted
/// several times in a row because its messages were lost: its deadline doubles each time.
const END_WITHIN_S: f64 = 600.0;

#[derive(Clone, Debug)]
struct Saved {
    /// The engine's clock at the time of the save.
    time_s: f64,
    engine: String,
    record: Record,
}

pub(crate) struct Coordinator<'a> {
    scenario: &'a Scenario,
    rng: ChaCha8Rng,
    now_s: f64,
    checks: Checks<'a>,
    crashes: &'a [f64],
    /// The number of further events after which the coordinator crashes.
    crash_after: Option<u64>,
    /// The number of effects of that event that are still carried out.
    torn_after: Option<u64>,
    /// The state that is being written, and the time at which that ends.
    writing: Option<(f64, Saved)>,
    disk: Option<Saved>,
    counts: Counts,
    noted: u64,
    log: Log,
}

impl<'a> Coordinator<'a> {
    pub(crate) fn new(scenario: &'a Scenario, mut log: Log) -> (Self, Engine) {
        log.note(0.0, scenario);
        let mut rng = ChaCha8Rng::seed_from_u64(scenario.seed);
        rng.set_stream(1);
        let engine = Engine::new(scenario.engine.clone(), scenario.policy());
        let checks = Checks::new(scenario, 0, Record::default(), &engine);
        let coordinator = Self {
            scenario,
            rng,
            now_s: 0.0,
            checks,
            crashes: &scenario.crashes,
            crash_after: None,
            torn_after: None,
            writing: None,
            disk: None,
            counts: Counts::default(),
            noted: 0,
            log,
        };
        (coordinator, engine)
    }

    /// Returns the hash of the log and the counts of the run, which has ended.
    pub(crate) fn ended(mut self, engine: &Engine) -> (u64, Counts) {
        self.checks.check_end(engine);
        // As without any fault, the steps took the tasks 0..B of their iterations, whichever workers computed them.
        if self.scenario.is_reproducible() {
            let tasks =
                |iteration| (0..self.scenario.engine.budget).map(move |task| (iteration, task)).collect::<Vec<_>>();
            let undisturbed = (1..=self.scenario.engine.iterations).fold(0, |before, k| after(before, &tasks(k)));
            assert_eq!(self.checks.record.parameters.last(), Some(&undisturbed));
        }
        self.counts.add_all(&self.checks.take_counts());
        self.counts.add("events, messages and effects", self.noted);
        (self.log.hasher.finish(), self.counts)
    }

    fn note(&mut self, now_s: f64, what: &dyn std::fmt::Debug) {
        assert!(now_s < self.scenario.faults.end_s + END_WITHIN_S, "the run does not end");
        self.now_s = now_s;
        self.noted += 1;
        self.log.note(now_s, what);
    }

    /// Counts an event, after which the coordinator may crash.
    fn count_down(&mut self) {
        if let Some((at_s, later)) = self.crashes.split_first()
            && *at_s <= self.now_s
            && self.crash_after.is_none()
        {
            self.crashes = later;
            self.crash_after = Some(self.rng.random_range(1..40));
        }
        if let Some(left) = &mut self.crash_after {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.torn_after.get_or_insert(self.rng.random_range(0..6));
            }
        }
        if self.now_s >= self.scenario.faults.end_s {
            (self.crash_after, self.torn_after, self.crashes) = (None, None, &[]);
        }
    }

    /// Moves the state that was written by now to the disk. It never withdraws a step that was there before.
    fn finish_writing(&mut self) {
        if let Some((_, saved)) = self.writing.take_if(|(until_s, _)| *until_s <= self.now_s) {
            if let Some(before) = &self.disk {
                let steps = &before.record.parameters;
                assert!(saved.record.parameters.starts_with(steps), "a saved step is lost");
            }
            self.disk = Some(saved);
        }
    }
}

impl Observer for Coordinator<'_> {
    fn step(&mut self, _step: &Step<'_>) -> StepOutcome {
        StepOutcome::default()
    }

    fn compare(&mut self, first: CollectionId, second: CollectionId) -> (bool, f64) {
        let agree = self.checks.is_right(first) && self.checks.is_right(second);
        (agree, self.rng.random_range(0.0..0.5))
    }

    fn step_time(&mut self) -> f64 {
        self.rng.random_range(0.001..0.1)
    }

    /// Saves what is due, as the real coordinator does; the next iteration begins unless it has to wait for that.
    fn committed(&mut self, now: f64, clock: f64, engine: &mut Engine, _effects: &mut Vec<Effect>) -> Option<f64> {
        self.now_s = now;
        self.finish_writing();
        self.checks.check_ledger(engine);
        let number = self.checks.record.parameters.len() as u64 - 1;
        if number.is_multiple_of(self.scenario.save_every) {
            if let Some((until_s, _)) = &self.writing {
                self.counts.add("iterations that wait for a save", 1);
                self.checks.state = State::HeldUp;
                return Some(*until_s);
            }
            let saved = engine.save();
            assert_eq!(saved.next_iteration().number(), self.checks.record.parameters.len() as u64);
            let engine = serde_json::to_string(&saved).unwrap();
            let until_s = self.now_s + self.rng.random_range(0.001..1.0);
            self.writing = Some((until_s, Saved { time_s: clock, engine, record: self.checks.record.clone() }));
        }
        self.checks.state = State::Running;
        None
    }

    fn event(&mut self, now: f64, event: &Event) {
        self.note(now, event);
        self.checks.progress(now);
        self.checks.event(event);
        self.count_down();
    }

    fn message(&mut self, now: f64, engine: &Engine, worker: WorkerId, message: &Message, accepted: bool) {
        self.note(now, &(worker, message, accepted));
        if self.checks.state == State::Down {
            return;
        }
        self.checks.progress(now);
        self.checks.message(engine, worker, message, accepted);
        self.count_down();
    }

    fn reported(&mut self, worker: WorkerId, lease: LeaseId, answer: Result<(), Refusal>, effects: &[Effect]) {
        self.checks.reported(worker, lease, answer, effects);
    }

    fn effect(&mut self, now: f64, effect: &Effect) {
        self.note(now, effect);
        self.checks.effect(effect);
    }

    fn settled(&mut self, now: f64, engine: &mut Engine) {
        self.checks.settled(now, engine);
    }

    fn crash(&mut self, settled: bool) -> Option<f64> {
        let is_torn = self.torn_after.as_mut().is_some_and(|left| {
            *left = left.saturating_sub(1);
            *left == 0
        });
        let is_due = is_torn || settled && self.torn_after.is_some();
        let is_aborted = self.checks.state == State::Aborted;
        if !is_due && !is_aborted {
            return None;
        }
        self.finish_writing();
        (self.crash_after, self.torn_after, self.writing) = (None, None, None);
        let Self { checks, counts, disk, .. } = self;
        counts.add("coordinator crashes", 1);
        counts.add("crashes between two effects", u64::from(!settled && !is_aborted));
        let steps = disk.as_ref().map_or(1, |saved| saved.record.parameters.len());
        counts.add("steps that a crash undid", (checks.record.parameters.len() - steps) as u64);
        counts.add_all(&checks.take_counts());
        checks.state = State::Down;
        Some(self.rng.random_range(0.05..2.0))
    }

    fn restart(&mut self, _now: f64) -> Option<Restart> {
        let (config, policy) = (self.scenario.engine.clone(), self.scenario.policy());
        let (engine, clock, record) = match &self.disk {
            None => (Engine::new(config, policy), 0.0, Record::default()),
            Some(Saved { engine, record, time_s }) => {
                self.counts.add("restarts from a save", 1);
                let engine: SavedEngine = serde_json::from_str(engine).unwrap();
                (Engine::restore(config, policy, engine).unwrap(), *time_s, record.clone())
            }
        };
        let machines = record.machines.clone();
        self.checks = Checks::new(self.scenario, self.checks.restarts + 1, record, &engine);
        Some(Restart { engine, clock, machines })
    }
}
