//! Simulated runs of a policy on the fastest machines.

use std::sync::Arc;

use ata_scheduler::{Engine, EngineConfig, PolicyContext, PolicyResolver, TaskChoice};
use ata_simulator::{ClusterTruth, ExchangeTime, LawTimes, Links, Observer, OracleTimes, Simulation, TimeLaws};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use crate::{PlanError, RoundSteps, StepCost, iterations};

/// The seed of every run. With constant times, seeds only affect how ties are broken.
const SEED: u64 = 1;

#[derive(Clone, Copy)]
pub(crate) struct Runs<'a> {
    pub(crate) budget: u64,
    pub(crate) links: Option<Links>,
    /// The numbers of local steps of a round, if there are rounds.
    pub(crate) rounds: Option<RoundSteps>,
    pub(crate) policies: PolicyResolver,
    /// Called with the number of iterations that were done.
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

/// The means of a run's iterations.
pub(crate) struct SimulatedRun {
    pub(crate) cost: StepCost,
    /// Mean number of tasks of each machine.
    pub(crate) allocation: Vec<f64>,
}

impl Runs<'_> {
    /// Runs the policy once for each number of workers, and returns the runs in that order. The law's times are in milliseconds.
    pub(crate) fn of(&self, policy: &str, law: &str, counts: &[u32]) -> Result<Vec<SimulatedRun>, PlanError> {
        counts.par_iter().map(|workers| self.run(policy, law, *workers)).collect()
    }

    fn run(&self, policy: &str, law: &str, workers: u32) -> Result<SimulatedRun, PlanError> {
        let mut exchanges = ExchangeTime::default();
        let engine = self.simulate(policy, law, workers, &mut exchanges)?;
        (self.progress)(iterations(self.budget));
        let ledger = engine.ledger();
        let mean = |sum: f64| sum / ledger.iterations.max(1) as f64;
        let mut allocation: Vec<f64> = ledger.workers.iter().map(|worker| mean(worker.tasks_applied as f64)).collect();
        allocation.resize(workers as usize, 0.0);
        let (iteration_ms, worker_time_ms) = (ledger.mean_iteration_s(), ledger.mean_total_worker_time_s());
        let cost = StepCost {
            machines: workers,
            step_s: iteration_ms / 1e3,
            worker_time_s: worker_time_ms / 1e3,
            transfer_share: mean(exchanges.total) / iteration_ms,
        };
        Ok(SimulatedRun { cost, allocation })
    }

    /// Returns the engine at the end of the run. Times are in milliseconds.
    pub(crate) fn simulate(
        &self,
        policy: &str,
        law: &str,
        workers: u32,
        observer: &mut impl Observer,
    ) -> Result<Engine, PlanError> {
        let laws: TimeLaws = law.parse()?;
        let truth = ClusterTruth { times: OracleTimes::new(LawTimes::new(&laws, workers, SEED)?), overhead: None };
        let context =
            PolicyContext { means: laws.means(workers)?, workers: Some(workers), truth: Some(Arc::new(truth.clone())) };
        let policy = (self.policies)(policy, &context)?;
        let mut simulation = Simulation { links: self.links, ..Simulation::new(workers, truth.times) };
        let config = EngineConfig {
            budget: self.rounds.map_or(self.budget, |rounds| rounds.first),
            choice: self.rounds.map(|rounds| TaskChoice::of_rounds(rounds.first, rounds.most)),
            takes_local_steps: self.rounds.is_some(),
            iterations: self.rounds.map_or(iterations(self.budget), RoundSteps::iterations),
            min_workers: workers as usize,
            seed: SEED,
            lease_timeout_s: None,
            ..EngineConfig::default()
        };
        let mut engine = Engine::new(config, policy);
        simulation.run(&mut engine, observer)?;
        Ok(engine)
    }
}
