//! The costs of a run: runtime, total worker time, and wasted tasks.

use serde::{Deserialize, Serialize};

use ata_types::{Iteration, WorkerId};

/// The cost of one iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IterationCost {
    /// The iteration, k.
    pub iteration: Iteration,
    /// The time at which its tasks were assigned, in seconds since the run began.
    pub started_s: f64,
    /// Its runtime C_k: seconds from `started_s` until the last result that its step needed.
    pub runtime_s: f64,
    /// Seconds that workers spent. For a barrier policy, this is the sum of busy times including wasted tasks (waiting at the
    /// barrier costs nothing); for any other policy, it is workers × runtime, because every worker is busy all the time.
    pub total_worker_time_s: f64,
    /// The number of tasks that entered the step.
    pub tasks_applied: u64,
    /// The number of tasks that were begun, but whose gradient did not enter the step.
    pub tasks_wasted: u64,
    /// The number of results that workers sent, each the gradient of one task or the sum of several.
    pub results: u64,
    /// The number of workers that got a task.
    pub employments: u64,
}

/// The cost of one worker in the committed iterations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerCost {
    /// The number of tasks of this worker that entered a step.
    pub tasks_applied: u64,
    /// Seconds that it spent on those tasks.
    pub busy_s: f64,
    /// Seconds between assignment and last result that were not busy: transport, waiting, encoding.
    pub overhead_s: f64,
    /// The number of iterations in which it got a task.
    pub employments: u64,
}

/// Sums over the committed iterations of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// The number of committed iterations.
    pub iterations: u64,
    /// Sum of the runtimes C_k, in seconds.
    pub iteration_time_s: f64,
    /// Sum of the total worker times, in seconds.
    pub total_worker_time_s: f64,
    /// The number of tasks that entered a step.
    pub tasks_applied: u64,
    /// The number of tasks that were begun, but whose gradient entered no step.
    pub tasks_wasted: u64,
    /// The number of results that workers sent.
    pub results: u64,
    /// The number of worker-iterations with at least one task.
    pub employments: u64,
    /// The cost of each worker, by [`WorkerId::slot`].
    pub workers: Vec<WorkerCost>,
    /// The last committed iteration.
    pub last: Option<IterationCost>,
}

impl Ledger {
    /// Returns the mean runtime of an iteration, in seconds; 0 before the first step.
    pub fn mean_iteration_s(&self) -> f64 {
        self.per_iteration(self.iteration_time_s)
    }

    /// Returns the mean total worker time per iteration, in seconds; 0 before the first step.
    pub fn mean_total_worker_time_s(&self) -> f64 {
        self.per_iteration(self.total_worker_time_s)
    }

    /// Returns the mean number of results that workers sent in an iteration; 0 before the first step.
    pub fn mean_results(&self) -> f64 {
        self.per_iteration(self.results as f64)
    }

    /// Returns the mean number of applied tasks per iteration for each worker, by slot.
    pub fn allocation_mean(&self) -> Vec<f64> {
        self.workers.iter().map(|worker| self.per_iteration(worker.tasks_applied as f64)).collect()
    }

    pub(crate) fn commit(&mut self, cost: IterationCost) {
        self.iterations += 1;
        self.iteration_time_s += cost.runtime_s;
        self.total_worker_time_s += cost.total_worker_time_s;
        self.tasks_applied = self.tasks_applied.saturating_add(cost.tasks_applied);
        self.tasks_wasted = self.tasks_wasted.saturating_add(cost.tasks_wasted);
        self.results = self.results.saturating_add(cost.results);
        self.employments = self.employments.saturating_add(cost.employments);
        self.last = Some(cost);
    }

    pub(crate) fn worker(&mut self, worker: WorkerId) -> &mut WorkerCost {
        if self.workers.len() <= worker.slot() {
            self.workers.resize(worker.slot() + 1, WorkerCost::default());
        }
        &mut self.workers[worker.slot()]
    }

    fn per_iteration(&self, sum: f64) -> f64 {
        if self.iterations == 0 { 0.0 } else { sum / self.iterations as f64 }
    }
}
