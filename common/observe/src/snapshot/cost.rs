//! The costs of policies.

use ata_record::RunState;
use serde::{Deserialize, Serialize};

/// The cost of a policy per iteration, measured in a run, or computed for the run's times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyCost {
    /// The policy, in the form of `--policy`.
    pub policy: String,
    /// The policy's label in comparisons.
    pub label: String,
    /// The seconds from the assignment to the last result.
    pub iteration_s: f64,
    /// The seconds that workers spend on tasks.
    pub worker_time_s: f64,
    /// The number of wasted tasks.
    pub wasted: f64,
    /// The share of tasks whose time was resampled because the run recorded fewer tasks of the worker; 0 if the cost was measured.
    pub bootstrapped: f64,
    /// A remark on the comparison with the run's own policy; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl PolicyCost {
    /// Returns the cost of a run so far; `None` before the first step.
    pub fn of_run(run: &RunState) -> Option<Self> {
        let iterations = run.iterations as f64;
        (run.iterations > 0).then(|| Self {
            policy: run.policy.clone(),
            label: format!("{} (this run)", run.policy),
            iteration_s: run.iteration_time_s / iterations,
            worker_time_s: run.total_worker_time_s / iterations,
            wasted: run.tasks_wasted as f64 / iterations,
            bootstrapped: 0.0,
            note: String::new(),
        })
    }
}
