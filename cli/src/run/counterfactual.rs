//! What other policies would have cost on the task times that a run recorded.

use ata_scheduler::{Engine, EngineConfig, Ledger, PolicyContext, PolicyKind, StepOutcome, build_policy, policy_kind};
use ata_simulator::experiment::PolicyResolver;
use ata_simulator::{RecordedTimes, Simulation, Step};
use serde::Serialize;

use crate::failure::Failure;

/// The cost of a policy, not counting transport and optimizer steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Counterfactual {
    pub(crate) policy: &'static str,
    pub(crate) mean_iteration_s: f64,
    pub(crate) mean_total_worker_time_s: f64,
    /// Per iteration.
    pub(crate) mean_tasks_wasted: f64,
}

/// Simulated iterations: the mean of this many is accurate to well within a percent.
const ITERATIONS: u64 = 1000;

/// Simulated tasks, which limit the iterations if the budget is large: they take a second or two.
const TASKS: u64 = 2_000_000;

/// The policies that a run is compared with: the oracle that knows the mean times, the plain rule that one would try
/// first, the work queue, greedy and uniform allocation.
const OTHERS: [&str; 5] = ["fta", "ema", "pull", "gta", "uta"];

/// The costs of [`OTHERS`].
pub(crate) fn counterfactuals(task_times_s: &[Vec<f64>], budget: u64, seed: u64) -> Vec<Counterfactual> {
    let iterations = (TASKS / budget).clamp(1, ITERATIONS);
    let Some(replay) = Replay::new(task_times_s, budget, iterations) else { return Vec::new() };
    OTHERS
        .into_iter()
        .filter_map(|policy| {
            let Cost { ledger, .. } = replay.cost(policy, build_policy, seed).ok()?;
            Some(Counterfactual {
                policy,
                mean_iteration_s: ledger.mean_iteration_s(),
                mean_total_worker_time_s: ledger.mean_total_worker_time_s(),
                mean_tasks_wasted: ledger.tasks_wasted as f64 / iterations as f64,
            })
        })
        .collect()
}

/// Replays recorded times under other policies.
pub(crate) struct Replay {
    /// Seconds of each task, by worker; workers without any are left out.
    times_s: Vec<Vec<f64>>,
    context: PolicyContext,
    budget: u64,
    iterations: u64,
}

/// What a policy would have cost.
pub(crate) struct Cost {
    pub(crate) ledger: Ledger,
    /// Share of tasks whose time was drawn again.
    pub(crate) bootstrapped: f64,
}

impl Replay {
    /// Prepares a replay; `None` if no times were recorded.
    pub(crate) fn new(task_times_s: &[Vec<f64>], budget: u64, iterations: u64) -> Option<Self> {
        let times_s: Vec<Vec<f64>> = task_times_s.iter().filter(|times| !times.is_empty()).cloned().collect();
        let mean = |times: &Vec<f64>| (times.iter().sum::<f64>() / times.len() as f64).max(f64::MIN_POSITIVE);
        let (means, workers) = (Some(times_s.iter().map(mean).collect()), Some(times_s.len() as u32));
        let context = PolicyContext { means, workers, ..PolicyContext::default() };
        (!times_s.is_empty()).then_some(Self { times_s, context, budget, iterations })
    }

    /// The costs of a policy. An asynchronous one takes as many steps as the iterations of others have tasks.
    pub(crate) fn cost(&self, policy: &str, policies: PolicyResolver, seed: u64) -> Result<Cost, Failure> {
        let steps_per_iteration = if policy_kind(policy) == PolicyKind::Asynchronous { self.budget } else { 1 };
        let policy = policies(policy, &self.context)?;
        let workers = self.times_s.len();
        let config = EngineConfig {
            budget: self.budget,
            iterations: self.iterations * steps_per_iteration,
            min_workers: workers,
            seed,
            ..EngineConfig::default()
        };
        let mut engine = Engine::new(config, policy);
        let times = RecordedTimes::new(self.times_s.clone(), seed).expect("workers without times are left out");
        let mut simulation = Simulation::new(workers as u32, times);
        simulation.run(&mut engine, &mut |_: &Step<'_>| StepOutcome::default()).map_err(Failure::internal)?;
        let ledger = engine.ledger().clone();
        let tasks = ledger.tasks_applied + ledger.tasks_wasted;
        Ok(Cost { bootstrapped: simulation.times.bootstrapped() as f64 / tasks.max(1) as f64, ledger })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Constant times 1 and 3, B = 4: the oracle allocates (3, 1), and `ema` after trying (2, 2) once, uniform (2, 2);
    /// greedy takes the first four results, and a queue ends with worker 2's only task.
    #[test]
    fn constant_times() {
        let costs = counterfactuals(&[vec![1.0; 5], vec![], vec![3.0; 5]], 4, 1);
        let cost = |policy| {
            let cost = costs.iter().find(|cost| cost.policy == policy).unwrap();
            (cost.mean_iteration_s, cost.mean_total_worker_time_s)
        };
        let close = |(a, b): (f64, f64), (c, d): (f64, f64)| (a - c).abs() < 1e-9 && (b - d).abs() < 1e-9;
        assert!(close(cost("fta"), (3.0, 6.0)));
        assert!(close(cost("ema"), (3.003, 6.002)));
        assert!(close(cost("pull"), (3.0, 6.0)));
        assert!(close(cost("gta"), (3.0, 6.0)));
        assert!(close(cost("uta"), (6.0, 8.0)));
    }

    #[test]
    fn nothing_recorded() {
        assert_eq!(counterfactuals(&[vec![]], 4, 1), []);
    }

    /// Every result of an asynchronous policy is a step; in all it applies as many tasks as the others.
    #[test]
    fn asynchronous_policies_take_as_many_tasks() {
        let replay = Replay::new(&[vec![1.0; 3], vec![2.0; 3]], 4, 10).unwrap();
        for policy in ["asgd", "ringmaster:R=9", "uta"] {
            assert_eq!(replay.cost(policy, build_policy, 1).unwrap().ledger.tasks_applied, 40, "{policy}");
        }
        assert!(replay.cost("uta", build_policy, 1).unwrap().bootstrapped > 0.5);
    }
}
