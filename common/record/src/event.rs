//! The events of a run.

mod end_state;
mod fields;

use std::collections::BTreeMap;

use ata_types::{Iteration, LeaseId, TaskOutcome, WorkerId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::labels::Labels;
pub use end_state::EndState;
use fields::{is_zero, named_numbers, number, numbers};

/// The version of [`RunEvent`], which is the only one that this release reads.
pub const JOURNAL_VERSION: u32 = 3;

/// A worker's own link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerLink {
    /// The worker.
    pub worker: WorkerId,
    /// Seconds that a gradient takes on it.
    pub up_s: f64,
    /// Bytes of gradients per second that it carries at least.
    pub bytes_per_s: f64,
}

/// Something that happened in a run: one line of its journal.
///
/// Times named `time_s` are seconds since the coordinator started, not counting the time for which its process was
/// stopped; all others are durations in seconds. Losses are the problem's own; cross-entropies are in nats. Workers are
/// identified by their 1-based number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// The run began. The first line.
    Run {
        /// The version of the journal.
        version: u32,
        /// The run's name.
        run_id: String,
        /// The policy, as `--policy` takes it.
        policy: String,
        /// B, the number of tasks per iteration.
        budget: u64,
        /// Number of iterations that the run is to take.
        iterations: u64,
        /// Samples per task.
        task_batch: u32,
        /// Seed of everything random.
        seed: u64,
        /// The model, as `--model` takes it.
        model: String,
        /// The run's own name and tags.
        #[serde(default, skip_serializing_if = "Labels::is_empty")]
        labels: Labels,
    },
    /// A new process resumed the run from a checkpoint; no worker is present. Events between the checkpoint's last step
    /// and the end of the process before are not in the journal.
    Resume {
        /// When, by the run's clock, which went on from the checkpoint.
        time_s: f64,
        /// The version of the journal.
        version: u32,
        /// How often the run was resumed, this time included.
        epoch: u64,
        /// The last iteration that the checkpoint holds.
        iteration: Iteration,
        /// The policy, as `--policy` takes it.
        policy: String,
        /// Number of iterations that the run is to take.
        iterations: u64,
    },
    /// The run waits for workers.
    Wait {
        /// When.
        time_s: f64,
        /// Workers present.
        present: usize,
        /// Workers needed.
        needed: usize,
    },
    /// A worker is ready to compute.
    Join {
        /// When.
        time_s: f64,
        /// The worker's number.
        worker: WorkerId,
        /// The worker's name across sessions.
        name: String,
        /// The device it computes on.
        device: String,
    },
    /// A worker is gone.
    Loss {
        /// When.
        time_s: f64,
        /// The worker's number.
        worker: WorkerId,
        /// Why.
        why: String,
    },
    /// A worker failed or hung, and gets no work for a while.
    Rest {
        /// When the rest began.
        time_s: f64,
        /// The worker's number.
        worker: WorkerId,
        /// How long it lasts.
        rest_s: f64,
        /// Consecutive failures, without a result in between.
        strikes: u32,
    },
    /// A worker failed too often: its session ended, and its name is refused for the rest of the run.
    Expulsion {
        /// When.
        time_s: f64,
        /// The worker's number.
        worker: WorkerId,
        /// Why.
        why: String,
    },
    /// An iteration began with this allocation.
    Allocation {
        /// k, the iteration's number.
        iteration: Iteration,
        /// When.
        time_s: f64,
        /// The workers that the allocation covers; if there are hundreds, only those that got a task.
        workers: Vec<WorkerId>,
        /// Tasks of each of them; empty in an asynchronous run, where each computes one task at a time.
        allocation: Vec<u64>,
        /// Those of them that compute an extra task as a probe.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        probes: Vec<WorkerId>,
        /// The policy's bounds on seconds per task, or its estimates; empty if it does not use speeds. Null is not a number.
        #[serde(deserialize_with = "numbers")]
        scores_s: Vec<f64>,
        /// The rule that made the allocation.
        rule: String,
    },
    /// An attempt at a task ended, with its lease.
    Task {
        /// The iteration it belongs to.
        iteration: Iteration,
        /// The task's index.
        task: u64,
        /// The worker that held it.
        worker: WorkerId,
        /// The lease it was part of.
        lease: LeaseId,
        /// When.
        time_s: f64,
        /// Seconds it took; null if it was not completed.
        busy_s: Option<f64>,
        /// Seconds after which it was interrupted, if it had begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        censored_s: Option<f64>,
        /// On the last task that the worker held: seconds since its first one that were not computation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        overhead_s: Option<f64>,
        /// On the last task of the lease: how many of its tasks took longer than their emulated time.
        #[serde(default, skip_serializing_if = "is_zero")]
        outlasted: u64,
        /// How it ended.
        outcome: TaskOutcome,
    },
    /// An optimizer step was taken.
    Step {
        /// k, the iteration's number.
        iteration: Iteration,
        /// When.
        time_s: f64,
        /// Mean loss of its tasks.
        #[serde(deserialize_with = "number")]
        loss: f64,
        /// C_k: from the first assignment to the last result that the step needed.
        runtime_s: f64,
        /// Seconds that workers spent on the iteration.
        total_worker_time_s: f64,
        /// Tasks that entered the step.
        tasks: u64,
        /// Wasted tasks: begun, but not in the step.
        wasted: u64,
        /// Workers that got a task.
        employments: u64,
        /// Results that workers sent, each the gradient of one task or the sum of several.
        results: u64,
        /// The learning rate of the step.
        #[serde(deserialize_with = "number")]
        learning_rate: f64,
        /// Euclidean norm of the mean gradient before it was clipped; absent if gradients are not clipped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gradient_norm: Option<f64>,
        /// Values of its tasks' gradients that were too large for their unit, and were clamped; absent if there were none.
        #[serde(default, skip_serializing_if = "is_zero")]
        saturated: u64,
        /// Values of its tasks' gradients that were not 0, and that the wire format `compact` rounded to 0; absent if there were none.
        #[serde(default, skip_serializing_if = "is_zero")]
        vanished: u64,
        /// Workers that exchanged their vectors in shards; absent if they were exchanged in a star.
        #[serde(default, skip_serializing_if = "is_zero")]
        shards: u64,
    },
    /// The time that vectors take on the links, when it was first measured or has changed by more than a tenth.
    Links {
        /// When.
        time_s: f64,
        /// Seconds that a gradient takes on the coordinator's link; 0 if that is not the narrow part of the way.
        up_s: f64,
        /// Seconds that parameters take on the coordinator's link; 0 as above.
        down_s: f64,
        /// Seconds that the slower of the two takes on the fastest own link of a worker.
        own_s: f64,
        /// The links of workers that were first measured, or have changed by more than a tenth; 64 at most.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        workers: Vec<WorkerLink>,
    },
    /// Results were refused, or a worker reported failures. Those of one worker and kind within a second share an event.
    Refusal {
        /// When.
        time_s: f64,
        /// The worker that sent it.
        worker: WorkerId,
        /// Its kind.
        kind: RefusalKind,
        /// Why, human-readable; if there were several, the last one's reason.
        reason: String,
        /// How many results the event stands for.
        count: u64,
    },
    /// The last evaluation began, after the last step.
    Evaluating {
        /// When.
        time_s: f64,
        /// The iteration whose parameters are evaluated.
        iteration: Iteration,
    },
    /// An evaluation on the test data ended. Iterations go on meanwhile, so it may be of earlier parameters.
    Evaluation {
        /// When.
        time_s: f64,
        /// The iteration whose parameters were evaluated.
        iteration: Iteration,
        /// Mean loss; null if it is not a number, as when the training diverged.
        #[serde(deserialize_with = "number")]
        loss: f64,
        /// Share of samples classified correctly, from 0 to 1, if the problem has classes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        accuracy: Option<f64>,
        /// Metrics of the problem's own, by name: means over the samples.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "named_numbers")]
        metrics: BTreeMap<String, f64>,
    },
    /// A checkpoint is durable.
    Checkpoint {
        /// When.
        time_s: f64,
        /// The last iteration it holds.
        iteration: Iteration,
        /// Where it is.
        path: String,
        /// How long it took to write.
        seconds: f64,
    },
    /// A checkpoint could not be written; those before it are still there.
    CheckpointFailed {
        /// When.
        time_s: f64,
        /// The last iteration it would have held.
        iteration: Iteration,
        /// Why.
        reason: String,
    },
    /// The run ended. The last line.
    End {
        /// When.
        time_s: f64,
        /// How it ended.
        state: EndState,
        /// Which rule ended it, what stopped it, or what went wrong.
        reason: String,
    },
}

/// Why a result does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RefusalKind {
    /// A gradient for a lease that ended before the gradient arrived. Honest workers are late, too.
    #[serde(rename = "stale lease")]
    Stale,
    /// A gradient for a lease that the worker never held, or for another iteration than the lease's.
    #[serde(rename = "foreign lease")]
    Foreign,
    /// A gradient that arrived before, or is arriving.
    #[serde(rename = "replayed lease")]
    Replayed,
    /// A gradient whose length is not the model's.
    #[serde(rename = "wrong size")]
    WrongSize,
    /// A gradient that does not match its checksum.
    #[serde(rename = "wrong checksum")]
    WrongChecksum,
    /// A gradient or a loss that is infinite or not a number.
    #[serde(rename = "not finite")]
    NotFinite,
    /// Reported times that are impossible.
    #[serde(rename = "wrong times")]
    WrongTimes,
    /// A gradient whose transfer broke off.
    #[serde(rename = "not received")]
    NotReceived,
    /// A lease that the worker could not compute.
    #[serde(rename = "not computed")]
    NotComputed,
    /// A lease that, as far as its worker can tell, no worker can compute: its gradient is not finite, or the problem's own code
    /// raises an error.
    #[serde(rename = "uncomputable")]
    Uncomputable,
    /// A gradient that differs from the one on which two other workers agree.
    #[serde(rename = "mismatched")]
    Mismatched,
    /// A gradient that differs from those of other workers, of which no two agree.
    #[serde(rename = "disputed")]
    Disputed,
}

impl RunEvent {
    /// The iteration that it belongs to.
    pub(crate) fn iteration(&self) -> Option<Iteration> {
        match self {
            Self::Allocation { iteration, .. } | Self::Task { iteration, .. } | Self::Step { iteration, .. } => {
                Some(*iteration)
            }
            _ => None,
        }
    }
}

impl RefusalKind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Stale,
        Self::Foreign,
        Self::Replayed,
        Self::WrongSize,
        Self::WrongChecksum,
        Self::NotFinite,
        Self::WrongTimes,
        Self::NotReceived,
        Self::NotComputed,
        Self::Uncomputable,
        Self::Mismatched,
        Self::Disputed,
    ];

    /// Its name, as in the journal.
    pub fn name(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(name)) => name,
            other => unreachable!("a kind is serialized as its name, not as {other:?}"),
        }
    }

    /// Whether the tasks are to blame: they fail the same way on any sound worker.
    pub fn is_uncomputable(self) -> bool {
        matches!(self, Self::NotFinite | Self::Uncomputable)
    }

    /// Whether it violates the protocol although no lease fails by it: no honest worker sends it.
    pub fn is_violation(self) -> bool {
        matches!(self, Self::Foreign | Self::Replayed)
    }
}

#[cfg(test)]
pub(crate) mod tests;
