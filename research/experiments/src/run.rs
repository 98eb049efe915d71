//! Runs all cases of an experiment in parallel.

use std::sync::Arc;

use ata_policies::POLICIES;
use ata_scheduler::{
    Effect, Engine, EngineConfig, Policy, PolicyContext, PolicyKind, PolicyResolver, StepOutcome, Truth, Verify,
    WorkerStatistics,
};
use ata_simulator::{
    ClusterTruth, ExchangeTime, IterationStart, LawError, LawTimes, LinksSpec, Observer, OracleTimes, SettingError,
    Simulation, Step, TaskTimes, TimeLaws,
};
use ata_types::WorkerId;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use serde::Serialize;

use crate::descent::{CachedDescent, DescentCache};
use crate::problem::{LinearRegression, Quadratic, RegressionSizes};
use crate::regret::Regret;
use crate::spec::{Experiment, ExperimentError, LearningSpec};
use crate::trace::{Trace, Tracer};

/// The result of one simulated run. Times have no unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunResult {
    /// The policy, as written.
    pub policy: String,
    /// The law, as written.
    pub law: String,
    /// The number of workers, n.
    pub workers: u32,
    /// Tasks per iteration, B.
    pub budget: u64,
    /// The number of committed iterations.
    pub iterations: u64,
    /// The run's seed.
    pub seed: u64,
    /// The share of tasks that was allocated beyond B.
    pub overcommit: f64,
    /// The prior knowledge, as in [`Experiment::warm_start`].
    pub warm_start: String,
    /// The mean runtime of an iteration.
    pub mean_iteration_time: f64,
    /// The mean total worker time of an iteration.
    pub mean_total_worker_time: f64,
    /// The cumulative proxy regret for barrier policies, exact for the bandit paper's policies on exponential times; null for others.
    pub cumulative_regret: Option<f64>,
    /// The number of tasks that were started but whose gradient entered no step.
    pub tasks_wasted: u64,
    /// The mean number of results per iteration, each the gradient of one task or the sum of several.
    pub mean_results: f64,
    /// The number of worker-iterations with at least one task.
    pub employments: u64,
    /// The mean time from an iteration's last computed task to its step, in which vectors travel; only for barrier policies.
    pub mean_exchange_time: f64,
    /// The mean number of applied tasks per iteration of each worker, worker 1 first.
    pub mean_allocation: Vec<f64>,
    /// The objective (or mean loss) after the last step, if the run trained something.
    pub final_objective: Option<f64>,
    /// The number of tasks of each worker in the last iteration, worker 1 first.
    pub final_allocation: Vec<u64>,
    /// The progress of the run.
    #[serde(skip)]
    pub trace: Trace,
}

#[derive(Clone, Debug)]
struct Case<'a> {
    experiment: &'a Experiment,
    policy: &'a str,
    law: &'a str,
    workers: u32,
    overcommit: f64,
    warm_start: &'a str,
    seed: u64,
}

/// The largest number of workers whose allocation is kept over time: more cannot be distinguished in a figure.
const MAX_TRACED_WORKERS: u32 = 200;
const PROGRESS_EVERY: u64 = 256;

impl Experiment {
    /// Returns the training of this experiment, if it is one of the built-in problems; the caller provides the CNN.
    pub fn learning(&self) -> Result<Option<DescentCache>, ExperimentError> {
        Ok(match self.learning {
            None | Some(LearningSpec::Cnn { .. }) => None,
            Some(LearningSpec::Quadratic { dimension, sigma, step }) => {
                Some(DescentCache::descent(Arc::new(Quadratic::new(dimension, sigma, self.seed)?), step))
            }
            Some(LearningSpec::LinearRegression { samples, dimension, batch, step }) => {
                let sizes = RegressionSizes { samples, dimension, batch };
                Some(DescentCache::descent(Arc::new(LinearRegression::new(sizes, self.seed)?), step))
            }
        })
    }

    /// Returns the total number of simulated iterations, for progress.
    pub fn total_iterations(&self) -> u64 {
        self.iterations.saturating_mul(self.cases().len() as u64)
    }

    fn cases(&self) -> Vec<Case<'_>> {
        let mut cases = Vec::new();
        for law in &self.laws {
            for &workers in &self.workers {
                for policy in &self.policies {
                    // Overcommitment has no meaning for policies without a barrier.
                    let waits = POLICIES.kind(policy) == PolicyKind::Barrier;
                    for &overcommit in self.overcommit.iter().take(if waits { usize::MAX } else { 1 }) {
                        for warm_start in &self.warm_start {
                            let seeds = self.seed..self.seed + self.seeds;
                            let case =
                                |seed| Case { experiment: self, policy, law, workers, overcommit, warm_start, seed };
                            cases.extend(seeds.map(case));
                        }
                    }
                }
            }
        }
        cases
    }
}

/// Runs all cases, in the order of laws, workers, policies, overcommitment, warm start and seeds. `progress` is called with numbers done.
pub fn run(
    experiment: &Experiment,
    policies: PolicyResolver,
    learning: Option<&DescentCache>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<RunResult>, ExperimentError> {
    experiment.check()?;
    let cases = experiment.cases();
    for case in cases.iter().filter(|case| case.seed == experiment.seed) {
        build(case, policies, None)?;
    }
    cases.par_iter().map(|case| run_case(case, policies, learning, progress)).collect()
}

/// Builds the case's policy, with access to `truth` or, if the case is only checked, to the laws' means.
fn build(
    case: &Case<'_>,
    policies: PolicyResolver,
    truth: Option<Arc<dyn Truth>>,
) -> Result<Box<dyn Policy>, ExperimentError> {
    let Case { experiment, policy, law, workers, .. } = *case;
    let means = law.parse::<TimeLaws>()?.means(workers)?;
    let truth = truth.or_else(|| Some(Arc::new(means.clone()?)));
    let context = PolicyContext { means, workers: Some(workers), truth };
    let wrong = |cause| ExperimentError::Invalid(format!("policy {policy}, {workers} workers: {cause}"));
    let policy = policies(policy, &context).map_err(wrong)?;
    if policy.name() == "adaptive-k-sync" && experiment.learning.is_none() {
        let expected = "a problem, because it looks at gradients: add --problem quadratic, or a [learning] section";
        return Err(SettingError::new("policy adaptive-k-sync", "nothing is learned", expected).into());
    }
    Ok(policy)
}

fn run_case(
    case: &Case<'_>,
    policies: PolicyResolver,
    learning: Option<&DescentCache>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<RunResult, ExperimentError> {
    let experiment = case.experiment;
    let with_allocation = case.seed == experiment.seed && case.workers <= MAX_TRACED_WORKERS;
    let laws: TimeLaws = case.law.parse()?;
    let course = Course {
        experiment,
        workers: case.workers,
        progress,
        regret: Regret::new(&laws, case.workers, experiment.budget)?,
        tracer: Tracer::new(experiment.iterations, with_allocation),
        learning: learning.map(DescentCache::begin),
        exchange_time: ExchangeTime::default(),
        allocation: Vec::new(),
        objective: None,
        failed: None,
    };
    // The seed of the overhead must differ from that of the task times.
    let overhead = experiment.overhead.as_ref();
    let overhead = overhead.map(|law| times(case, &law.parse()?, !case.seed)).transpose()?;
    let times = times(case, &laws, case.seed)?;
    let truth = ClusterTruth { times: OracleTimes::new(times), overhead: overhead.map(OracleTimes::new) };
    let policy = build(case, policies, Some(Arc::new(truth.clone())))?;
    // If the policy has not kept the true times, the simulation avoids their cost.
    match truth.into_times() {
        Ok((times, overhead)) => simulate(case, policy, times, overhead, course),
        Err(ClusterTruth { times, overhead }) => simulate(case, policy, times, overhead, course),
    }
}

/// Returns the task times of a case's workers. The first seed plays traces as they are; further seeds resample those that have blocks.
fn times(case: &Case<'_>, laws: &TimeLaws, seed: u64) -> Result<LawTimes, LawError> {
    let mut times = LawTimes::new(laws, case.workers, seed)?;
    if case.seed != case.experiment.seed {
        times.resample(case.seed);
    }
    Ok(times)
}

fn simulate<T: TaskTimes>(
    case: &Case<'_>,
    policy: Box<dyn Policy>,
    times: T,
    overhead: Option<T>,
    mut course: Course<'_>,
) -> Result<RunResult, ExperimentError> {
    let Case { experiment, policy: name, law, workers, overcommit, warm_start, seed } = *case;
    let (changes, priors) = (experiment.changes(workers)?, priors(case)?);
    let links = experiment.links.as_ref().map(LinksSpec::links).transpose()?;
    let mut simulation = Simulation { overhead, changes, priors, links, ..Simulation::new(workers, times) };
    let waits = POLICIES.kind(name) == PolicyKind::Barrier && overcommit == 0.0;
    let is_checked = waits && experiment.verify > 0.0;
    let config = EngineConfig {
        budget: experiment.budget,
        iterations: experiment.iterations,
        min_workers: simulation.present_at_first().max(1),
        seed,
        overcommit,
        takes_local_steps: links.is_some_and(|links| links.whole),
        lease_timeout_s: experiment.lease_timeout,
        // The secret must differ from the seed, which other things are drawn with.
        verify: is_checked.then_some(Verify { share: experiment.verify, secret: !seed }),
        limits: experiment.limits.limits(),
        ..EngineConfig::default()
    };
    let mut engine = Engine::new(config, policy);
    simulation.run(&mut engine, &mut course).map_err(|cause| {
        ExperimentError::Run(format!("policy {name}, law {law}, {workers} workers, seed {seed}: {cause}"))
    })?;
    let Course { regret, tracer, exchange_time, allocation, objective, failed, progress, .. } = course;
    if let Some(reason) = failed {
        return Err(ExperimentError::Run(format!("learning failed: {reason}")));
    }
    let ledger = engine.ledger();
    let per_iteration = |sum: f64| sum / ledger.iterations.max(1) as f64;
    let mut mean_allocation: Vec<f64> =
        ledger.workers.iter().map(|worker| per_iteration(worker.tasks_applied as f64)).collect();
    mean_allocation.resize(workers as usize, 0.0);
    progress(experiment.iterations - ledger.iterations / PROGRESS_EVERY * PROGRESS_EVERY);
    Ok(RunResult {
        policy: name.into(),
        law: law.into(),
        workers,
        budget: experiment.budget,
        iterations: ledger.iterations,
        seed,
        overcommit,
        warm_start: warm_start.into(),
        mean_iteration_time: ledger.mean_iteration_s(),
        mean_total_worker_time: ledger.mean_total_worker_time_s(),
        cumulative_regret: regret.sum,
        tasks_wasted: ledger.tasks_wasted,
        mean_results: ledger.mean_results(),
        employments: ledger.employments,
        mean_exchange_time: per_iteration(exchange_time.total),
        mean_allocation,
        final_objective: objective,
        final_allocation: allocation,
        trace: tracer.finish(ledger, regret.sum),
    })
}

struct Course<'a> {
    experiment: &'a Experiment,
    workers: u32,
    progress: &'a (dyn Fn(u64) + Sync),
    regret: Regret,
    tracer: Tracer,
    learning: Option<CachedDescent<'a>>,
    exchange_time: ExchangeTime,
    allocation: Vec<u64>,
    objective: Option<f64>,
    /// The reason why learning failed.
    failed: Option<String>,
}

impl Observer for Course<'_> {
    fn started(&mut self, start: &IterationStart<'_>) {
        self.regret.started(start);
        if start.iteration >= self.experiment.iterations || !self.experiment.limits.is_empty() {
            self.allocation = vec![0; self.workers as usize];
            // In an asynchronous run, every worker computes one task at a time.
            let shares = start.decision.allocation.iter().chain(std::iter::repeat(&1));
            for (worker, &tasks) in start.workers.iter().zip(shares) {
                self.allocation[worker.slot()] = tasks;
            }
        }
    }

    fn effect(&mut self, now: f64, effect: &Effect) {
        self.exchange_time.effect(now, effect);
    }

    fn step(&mut self, step: &Step<'_>) -> StepOutcome {
        self.exchange_time.step(step);
        self.tracer.committed(step.ledger, self.regret.sum);
        self.regret.stepped();
        if step.iteration.is_multiple_of(PROGRESS_EVERY) {
            (self.progress)(PROGRESS_EVERY);
        }
        match self.learning.as_mut().map(|learning| learning.step(step)) {
            Some(Ok(learned)) => {
                self.tracer.learned(learned.objective);
                self.objective = Some(learned.objective);
                return learned.outcome;
            }
            Some(Err(error)) => {
                self.learning = None;
                self.failed = Some(error);
            }
            None => {}
        }
        StepOutcome::default()
    }
}

/// Returns the statistics that an earlier run under the law `warm_start` would have learned.
fn priors(case: &Case<'_>) -> Result<Vec<WorkerStatistics>, ExperimentError> {
    if case.warm_start == "none" {
        return Ok(Vec::new());
    }
    // The draws must differ from those of the run.
    let mut times = LawTimes::new(&case.warm_start.parse()?, case.workers, case.seed ^ (1 << 63))?;
    let prior = |slot: usize| {
        let mut statistics = WorkerStatistics::default();
        for _ in 0..case.experiment.warm_tasks {
            statistics.observe(times.draw(WorkerId::from_slot(slot)));
        }
        statistics
    };
    Ok((0..case.workers as usize).map(prior).collect())
}
