//! Simulated runs of a policy on the fastest machines.

use std::sync::Arc;

use ata_scheduler::{Engine, EngineConfig, PolicyContext, PolicyResolver};
use ata_simulator::{ClusterTruth, ExchangeTime, LawTimes, LinksSpec, OracleTimes, Simulation, TimeLaws};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use crate::PlanError;

/// The seed of every run. With constant times, seeds only affect how ties are broken.
const SEED: u64 = 1;

/// Settings that all runs have in common.
pub(crate) struct Runs<'a> {
    pub(crate) budget: u64,
    /// The times of tasks, in milliseconds.
    pub(crate) law: &'a str,
    pub(crate) iterations: u64,
    pub(crate) links: Option<&'a LinksSpec>,
}

/// The means of a run's iterations, in milliseconds.
pub(crate) struct SimulatedRun {
    /// The number of machines that took part.
    pub(crate) workers: u32,
    pub(crate) iteration_ms: f64,
    pub(crate) worker_time_ms: f64,
    /// Time in which vectors travel after the last task is computed.
    pub(crate) exchange_ms: f64,
    /// Mean number of tasks of each machine.
    pub(crate) allocation: Vec<f64>,
}

impl Runs<'_> {
    /// Runs the policy once for each number of workers, and returns the runs in that order. `progress` is called with the number of
    /// iterations that were done.
    pub(crate) fn of(
        &self,
        policy: &str,
        counts: &[u32],
        policies: PolicyResolver,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Vec<SimulatedRun>, PlanError> {
        counts.par_iter().map(|workers| self.run(policy, *workers, policies, progress)).collect()
    }

    fn run(
        &self,
        policy: &str,
        workers: u32,
        policies: PolicyResolver,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<SimulatedRun, PlanError> {
        let laws: TimeLaws = self.law.parse()?;
        let truth = ClusterTruth { times: OracleTimes::new(LawTimes::new(&laws, workers, SEED)?), overhead: None };
        let context =
            PolicyContext { means: laws.means(workers)?, workers: Some(workers), truth: Some(Arc::new(truth.clone())) };
        let policy = policies(policy, &context)?;
        let links = self.links.map(LinksSpec::links).transpose()?;
        let mut simulation = Simulation { links, ..Simulation::new(workers, truth.times) };
        let config = EngineConfig {
            budget: self.budget,
            iterations: self.iterations,
            min_workers: workers as usize,
            seed: SEED,
            lease_timeout_s: None,
            ..EngineConfig::default()
        };
        let mut engine = Engine::new(config, policy);
        let mut exchanges = ExchangeTime::default();
        simulation.run(&mut engine, &mut exchanges)?;
        progress(self.iterations);
        let ledger = engine.ledger();
        let mean = |sum: f64| sum / ledger.iterations.max(1) as f64;
        let mut allocation: Vec<f64> = ledger.workers.iter().map(|worker| mean(worker.tasks_applied as f64)).collect();
        allocation.resize(workers as usize, 0.0);
        Ok(SimulatedRun {
            workers,
            iteration_ms: ledger.mean_iteration_s(),
            worker_time_ms: ledger.mean_total_worker_time_s(),
            exchange_ms: mean(exchanges.total()),
            allocation,
        })
    }
}
