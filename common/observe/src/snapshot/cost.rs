//! What policies cost.

use ata_record::RunState;
use serde::{Deserialize, Serialize};

/// What a policy costs per iteration, as a run measured it or as it would have been on the run's times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyCost {
    /// The policy, as `--policy` takes it.
    pub policy: String,
    /// What it is called where it is compared.
    pub label: String,
    /// Seconds from the assignment to the last result.
    pub iteration_s: f64,
    /// Seconds that workers spend.
    pub worker_time_s: f64,
    /// Wasted tasks.
    pub wasted: f64,
    /// Share of tasks whose time was drawn again because the run recorded fewer tasks of the worker; 0 if it was measured.
    pub bootstrapped: f64,
}

impl PolicyCost {
    /// What a run has cost so far; `None` before the first step.
    pub fn of_run(run: &RunState) -> Option<Self> {
        let iterations = run.iterations as f64;
        (run.iterations > 0).then(|| Self {
            policy: run.policy.clone(),
            label: format!("{} (this run)", run.policy),
            iteration_s: run.iteration_time_s / iterations,
            worker_time_s: run.total_worker_time_s / iterations,
            wasted: run.tasks_wasted as f64 / iterations,
            bootstrapped: 0.0,
        })
    }
}
