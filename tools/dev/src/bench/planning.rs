//! Benchmarks the planning of ATA-Auto: a decision among very many workers against one among few, and a plan after a result against RAS.

use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ata::Failure;
use ata_policies::build_policy;
use ata_scheduler::policy::{Actions, IterationView};
use ata_scheduler::{Decision, EngineConfig, Policy, PolicyContext, Round, SchedulerRng, StepOutcome, ras};
use ata_types::WorkerId;
use rand::SeedableRng;

use crate::bench::{Figure, LAW, TimedRun, median, pair};

pub(crate) fn measure() -> Result<Vec<Figure>, Failure> {
    // With this budget, about 16 workers get tasks.
    let (many, few) = (timed(100_000, 50, 300)?, timed(1000, 50, 300)?);
    let decision =
        Figure::new("decision of ata-auto, n = 10^5, B = 50", median(many.decide), "n = 10^3", median(few.decide));
    let (workers, budget) = (51, 23);
    let plan = timed(workers, budget, 2000)?.resume;
    let scores: Vec<f64> = (1..=workers).map(|i| 58.0 * f64::from(i)).collect();
    let mut rng = SchedulerRng::seed_from_u64(1);
    let (allocation, _) =
        pair(11, || (0..1000).for_each(|_| drop(black_box(ras(black_box(&scores), budget, &mut rng)))), || {});
    let plan = Figure::new("plan of ata-auto after a result, n = 51, B = 23", median(plan), "RAS", allocation / 1000);
    Ok(vec![decision, plan])
}

/// The durations of calls to a policy.
#[derive(Default)]
struct Times {
    decide: Vec<Duration>,
    resume: Vec<Duration>,
}

fn timed(workers: u32, budget: u64, iterations: u64) -> Result<Times, Failure> {
    let config = EngineConfig { budget, iterations, ..EngineConfig::default() };
    let times = Arc::new(Mutex::new(Times::default()));
    let policy = Timed { policy: build_policy("ata-auto", &PolicyContext::default())?, times: Arc::clone(&times) };
    TimedRun::new(Box::new(policy), LAW, workers, config)?.run();
    Ok(std::mem::take(&mut times.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// A policy whose calls are timed.
struct Timed {
    policy: Box<dyn Policy>,
    times: Arc<Mutex<Times>>,
}

impl Timed {
    fn add(&self, started: Instant, to: impl FnOnce(&mut Times) -> &mut Vec<Duration>) {
        to(&mut self.times.lock().unwrap_or_else(PoisonError::into_inner)).push(started.elapsed());
    }
}

impl Policy for Timed {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        let started = Instant::now();
        let decision = self.policy.decide(round, rng);
        self.add(started, |times| &mut times.decide);
        decision
    }

    fn replan(&mut self, view: &IterationView<'_>, actions: &mut Actions) {
        let started = Instant::now();
        self.policy.replan(view, actions);
        self.add(started, |times| &mut times.resume);
    }

    fn observe(&mut self, worker: WorkerId, busy_s: f64) {
        self.policy.observe(worker, busy_s);
    }

    fn censored(&mut self, worker: WorkerId, tasks: u64, elapsed_s: f64) {
        self.policy.censored(worker, tasks, elapsed_s);
    }

    fn stepped(&mut self, step: &StepOutcome) {
        self.policy.stepped(step);
    }
}
