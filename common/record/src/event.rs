//! The events of a run.

mod fields;
mod refusal;

use std::collections::BTreeMap;

use ata_types::{Iteration, LeaseId, TaskOutcome, WorkerId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::labels::Labels;
use fields::{is_zero, numbers};
pub(crate) use fields::{named_numbers, number};
pub use refusal::RefusalKind;

/// The version of [`RunEvent`]. Version 3 lacks [`RunEvent::Folded`], and is read as well.
pub const JOURNAL_VERSION: u32 = 4;

/// The version of this program, which its journals and checkpoints name.
pub const PROGRAM_VERSION: &str = env!("CARGO_PKG_VERSION");

/// An event of a run, written as one line of its journal.
///
/// Times named `time_s` are seconds since the coordinator started, not counting the time for which its process was
/// stopped; all other times are durations in seconds. Losses are in the problem's own unit; cross-entropies are in nats. Workers are
/// identified by their 1-based number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// The run began. This is the first event.
    Run(RunStart),
    /// A new process resumed the run from a checkpoint; no worker is present yet. Events between the checkpoint's last step
    /// and the end of the previous process are not in the journal.
    Resume {
        /// The time of the event, by the run's clock, which continues from the checkpoint.
        time_s: f64,
        /// The version of the journal.
        version: u32,
        /// The version of the program that wrote it; absent before version 4.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        written_by: String,
        /// The number of times that the run was resumed, including this one.
        epoch: u64,
        /// The last iteration that the checkpoint holds.
        iteration: Iteration,
        /// The policy, as `--policy` takes it.
        policy: String,
        /// The number of iterations that the run is to take.
        iterations: u64,
    },
    /// What the events up to a step add up to, in the place of those that were removed or that a crash took.
    Folded {
        /// The time of the step.
        time_s: f64,
        /// The iteration of the step.
        iteration: Iteration,
        /// The state of the run, which only this program reads.
        #[schemars(with = "BTreeMap<String, Value>")]
        state: Value,
    },
    /// The run waits for workers.
    Wait {
        /// The time of the event.
        time_s: f64,
        /// The number of workers present.
        present: usize,
        /// The number of workers needed.
        needed: usize,
    },
    /// A worker is ready to compute.
    Join {
        /// The time of the event.
        time_s: f64,
        /// The worker's number.
        worker: WorkerId,
        /// The worker's name, which stays the same across sessions.
        name: String,
        /// The device it computes on.
        device: String,
        /// The machine that it runs on: the address that it connected from, or the names in its certificate.
        #[serde(default)]
        machine: String,
    },
    /// A worker is gone: it was lost, left, or was expelled.
    Loss {
        /// The time of the event.
        time_s: f64,
        /// The worker's number.
        worker: WorkerId,
        /// The reason, in words.
        why: String,
    },
    /// A worker failed or hung, and gets no work for a while.
    Rest {
        /// The time at which the rest began.
        time_s: f64,
        /// The worker's number.
        worker: WorkerId,
        /// The length of the rest.
        rest_s: f64,
        /// The number of consecutive failures, without a result in between.
        strikes: u32,
    },
    /// A worker failed too often: its session ended, and it may not join again under this name, from the same machine.
    Expulsion {
        /// The time of the event.
        time_s: f64,
        /// The worker's number.
        worker: WorkerId,
        /// The reason, in words.
        why: String,
    },
    /// The operator lifted everything that counted against the workers of a name, on all machines.
    Forgive {
        /// The time of the event.
        time_s: f64,
        /// The name.
        name: String,
    },
    /// An iteration began with this allocation.
    Allocation {
        /// k, the iteration's number.
        iteration: Iteration,
        /// The time of the event.
        time_s: f64,
        /// The workers that the allocation covers; if there are hundreds, only those that got a task are listed.
        workers: Vec<WorkerId>,
        /// The number of tasks of each of these workers; empty in an asynchronous run, where each computes one task at a time.
        allocation: Vec<u64>,
        /// The workers among these that compute an extra task as a probe.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        probes: Vec<WorkerId>,
        /// The policy's bounds on seconds per task, or its estimates; empty if it does not use speeds. Null stands for a
        /// number that is not finite.
        #[serde(deserialize_with = "numbers")]
        scores_s: Vec<f64>,
        /// The seconds after which the policy expects each of these workers to be done with one task less, with its tasks, and with one
        /// task more, in four digits. Null stands for tasks that it does not plan, and three zeros for a speed that it does not know.
        /// Empty if it uses no speeds.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        finish_s: Vec<[Option<f64>; 3]>,
        /// The rule that made the allocation.
        rule: String,
    },
    /// An attempt at a task ended, together with its lease.
    Task {
        /// The iteration it belongs to.
        iteration: Iteration,
        /// The task's index.
        task: u64,
        /// The worker that held it.
        worker: WorkerId,
        /// The lease it was part of.
        lease: LeaseId,
        /// The time of the event.
        time_s: f64,
        /// The seconds that the task took; null if it was not completed.
        busy_s: Option<f64>,
        /// The seconds after which the task was interrupted, if it had begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        censored_s: Option<f64>,
        /// On the last task that the worker held: the seconds since its first task that were not computation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        overhead_s: Option<f64>,
        /// On the last task of the lease: the number of its tasks that took longer than their emulated time.
        #[serde(default, skip_serializing_if = "is_zero")]
        outlasted: u64,
        /// Whether it is a local step that its worker took before it had the parameters of the iteration.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ahead: bool,
        /// The way in which it ended.
        outcome: TaskOutcome,
    },
    /// An optimizer step was taken.
    Step(StepEvent),
    /// The time that vectors take on the links was measured for the first time, or changed by more than a tenth.
    Links {
        /// The time of the event.
        time_s: f64,
        /// Seconds that a gradient takes on the coordinator's link; 0 if that link is not the bottleneck.
        up_s: f64,
        /// Seconds that parameters take on the coordinator's link; 0 if that link is not the bottleneck.
        down_s: f64,
        /// Seconds that the slower of gradient and parameters takes on the fastest worker's own link.
        own_s: f64,
        /// The workers' own links that were measured for the first time, or changed by more than a tenth; at most 64.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        workers: Vec<WorkerLink>,
    },
    /// What workers' processes use changed by more than a tenth.
    Resources {
        /// The time of the event.
        time_s: f64,
        /// The workers of which something changed.
        workers: Vec<WorkerResources>,
    },
    /// Results were refused, or a worker reported failures. Refusals of the same worker and kind within a second share an event.
    Refusal {
        /// The time of the event.
        time_s: f64,
        /// The worker that sent the results.
        worker: WorkerId,
        /// The kind of refusal.
        kind: RefusalKind,
        /// The reason, in words; if there were several refusals, the reason of the last one.
        reason: String,
        /// The number of results that the event stands for.
        count: u64,
    },
    /// The final evaluation began, after the last step.
    Evaluating {
        /// The time of the event.
        time_s: f64,
        /// The iteration whose parameters are evaluated.
        iteration: Iteration,
    },
    /// An evaluation on the test data ended. Iterations continue meanwhile, so it may be of earlier parameters.
    Evaluation {
        /// The time of the event.
        time_s: f64,
        /// The iteration whose parameters were evaluated.
        iteration: Iteration,
        /// Mean loss; null if it is not finite, as when the training diverged.
        #[serde(deserialize_with = "number")]
        loss: f64,
        /// The share of samples that were classified correctly, from 0 to 1, if the problem has classes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        accuracy: Option<f64>,
        /// The problem's own metrics by name, each a mean over the samples.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "named_numbers")]
        metrics: BTreeMap<String, f64>,
        /// The number of evaluations that were due since the last one, and were left out because one was in progress or failed.
        #[serde(default, skip_serializing_if = "is_zero")]
        skipped: u64,
    },
    /// A checkpoint was made durable.
    Checkpoint {
        /// The time of the event.
        time_s: f64,
        /// The last iteration that the checkpoint holds.
        iteration: Iteration,
        /// The path or URL of the checkpoint.
        path: String,
        /// Seconds that it took to write.
        seconds: f64,
    },
    /// A checkpoint could not be written; earlier checkpoints still exist.
    CheckpointFailed {
        /// The time of the event.
        time_s: f64,
        /// The last iteration that the checkpoint would have held.
        iteration: Iteration,
        /// The reason, in words.
        reason: String,
    },
    /// The run ended. This is the last event.
    End {
        /// The time of the event.
        time_s: f64,
        /// The state in which the run ended.
        state: EndState,
        /// The rule that ended the run, what stopped it, or what went wrong.
        reason: String,
    },
}

/// The first event of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct RunStart {
    /// The version of the journal.
    pub version: u32,
    /// The version of the program that wrote it; absent before version 4.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub written_by: String,
    /// The run's id.
    pub run_id: String,
    /// The policy, as `--policy` takes it.
    pub policy: String,
    /// B, the number of tasks per iteration.
    pub budget: u64,
    /// The most tasks of an iteration, if the number is chosen as the run goes on; then B is the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_tasks: Option<u64>,
    /// The number of iterations that the run is to take, or for whose tasks it goes on if their number is chosen.
    pub iterations: u64,
    /// The number of samples per task.
    pub task_batch: u32,
    /// The seed of all randomness.
    pub seed: u64,
    /// The model, as `--model` takes it.
    pub model: String,
    /// The number of training samples, which are an epoch; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// The user's name and tags for the run.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

/// A step in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct StepEvent {
    /// k, the iteration's number.
    pub iteration: Iteration,
    /// The time of the event.
    pub time_s: f64,
    /// Mean loss of the step's tasks.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
    /// C_k: the time from the first assignment to the last result that the step needed.
    pub runtime_s: f64,
    /// Seconds that workers spent on the iteration.
    pub total_worker_time_s: f64,
    /// The number of tasks that entered the step.
    pub tasks: u64,
    /// The number of wasted tasks, which were begun but did not enter the step.
    pub wasted: u64,
    /// The number of workers that got a task.
    pub employments: u64,
    /// The number of results that workers sent, each the gradient of one task or the sum of several.
    pub results: u64,
    /// The learning rate of the step.
    #[serde(deserialize_with = "number")]
    pub learning_rate: f64,
    /// Euclidean norm of the mean gradient before it was clipped; absent if gradients are not clipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_norm: Option<f64>,
    /// The gradient noise scale N of the last steps, in tasks; absent if it is not measured, or unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_scale: Option<f64>,
    /// The number of values in its tasks' gradients that were too large for their unit and were clamped; absent if 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub saturated: u64,
    /// The number of values in its tasks' gradients that were not 0 and that the wire format `compact` rounded to 0; absent if 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub vanished: u64,
    /// The number of workers that exchanged their vectors in shards; absent if they were exchanged in a star.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shards: u64,
}

/// The state in which a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndState {
    /// All iterations are done, or a limit was reached.
    Finished,
    /// The run was stopped before it was done.
    Stopped,
    /// Something went wrong.
    Failed,
}

/// The measured speed of a worker's own link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerLink {
    /// The worker.
    pub worker: WorkerId,
    /// Seconds that a gradient takes on this link.
    pub up_s: f64,
    /// The least rate at which it carries gradients, in bytes per second.
    pub bytes_per_s: f64,
}

/// What a worker's process used of its machine lately.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerResources {
    /// The worker.
    pub worker: WorkerId,
    /// The mean number of processor cores in use; absent if the worker does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    /// The resident memory, in bytes; absent if the worker does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The rate of bytes on its connections to the coordinator, both ways together.
    pub bytes_per_s: f64,
}

#[cfg(test)]
pub(crate) mod tests;
