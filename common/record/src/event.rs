//! The events of a run.

mod fields;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use fields::{is_one, is_zero, number, numbers, one};

/// The version of [`RunEvent`] that this release writes. It reads all versions up to this one: version 1 had only
/// allocations, tasks and steps, and no first line with its version.
pub const JOURNAL_VERSION: u32 = 2;

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
        /// [`JOURNAL_VERSION`]
        version: u32,
        /// The run's name.
        run_id: String,
        /// The policy, as `--policy` takes it.
        policy: String,
        /// B.
        budget: u64,
        /// Iterations asked for.
        iterations: u64,
        /// Samples per task.
        task_batch: u32,
        /// Seed of everything random.
        seed: u64,
        /// The model, as `--model` takes it; not written by the first releases.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
    /// The run was resumed from a checkpoint, by a new process: no worker is present. Events between the checkpoint's last
    /// step and the end of the process before are not in the journal.
    Resume {
        /// When, by the run's clock, which went on from the checkpoint.
        time_s: f64,
        /// [`JOURNAL_VERSION`]
        version: u32,
        /// How often the run was resumed, this time included.
        epoch: u64,
        /// The last iteration that the checkpoint holds.
        iteration: u64,
        /// The policy, as `--policy` takes it.
        policy: String,
        /// Iterations asked for.
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
    /// A worker can compute.
    Join {
        /// When.
        time_s: f64,
        /// The worker's number.
        worker: u32,
        /// The worker's name across sessions.
        name: String,
        /// What it computes on.
        device: String,
    },
    /// A worker is gone.
    Loss {
        /// When.
        time_s: f64,
        /// The worker's number.
        worker: u32,
        /// Why.
        why: String,
    },
    /// A worker failed or hung, and gets no work for a while.
    Rest {
        /// When the rest began.
        time_s: f64,
        /// The worker's number.
        worker: u32,
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
        worker: u32,
        /// Why.
        why: String,
    },
    /// An iteration began with this allocation.
    Allocation {
        /// k.
        iteration: u64,
        /// When.
        time_s: f64,
        /// The workers that the allocation covers; if there are hundreds, only those that got a task.
        workers: Vec<u32>,
        /// Tasks of each of them; empty in an asynchronous run, where each computes one task at a time.
        allocation: Vec<u64>,
        /// Those of them that compute an extra task as a probe.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        probes: Vec<u32>,
        /// The policy's bounds on seconds per task, or its estimates; empty if it does not use speeds. Null is no number.
        #[serde(deserialize_with = "numbers")]
        scores_s: Vec<f64>,
        /// The rule that made the allocation.
        rule: String,
    },
    /// An attempt at a task ended, with its lease.
    Task {
        /// The iteration it belongs to.
        iteration: u64,
        /// The task's index.
        task: u64,
        /// The worker that held it.
        worker: u32,
        /// The lease it was part of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<u64>,
        /// When.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time_s: Option<f64>,
        /// Seconds it took; null if it was not completed.
        busy_s: Option<f64>,
        /// Seconds after which it was cut short, if it had begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut_s: Option<f64>,
        /// On the last task that the worker held: seconds since its first one that were not computation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        overhead_s: Option<f64>,
        /// On the last task of the lease: how many of its tasks took longer than their emulated time.
        #[serde(default, skip_serializing_if = "is_zero")]
        outlasted: u64,
        /// What became of it.
        outcome: Fate,
    },
    /// An optimizer step was taken.
    Step {
        /// k.
        iteration: u64,
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
        #[serde(default)]
        employments: u64,
        /// Results that workers sent, each the gradient of one task or the sum of several.
        #[serde(default)]
        results: u64,
        /// The learning rate of the step; not written by the first releases.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        learning_rate: Option<f64>,
        /// Euclidean norm of the mean gradient before it was clipped; absent if none is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gradient_norm: Option<f64>,
    },
    /// Results were refused, or a worker reported failures. Those of one worker and kind within a second share an event.
    Refusal {
        /// When.
        time_s: f64,
        /// The worker that sent it.
        worker: u32,
        /// Its kind.
        kind: RefusalKind,
        /// Why, human-readable; if there were several, the last one's.
        reason: String,
        /// How many they are.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        count: u64,
    },
    /// The last evaluation began, after the last step.
    Evaluating {
        /// When.
        time_s: f64,
        /// The iteration whose parameters are evaluated.
        iteration: u64,
    },
    /// An evaluation on the test data ended. It took place beside the iterations, so it may be of earlier parameters.
    Evaluation {
        /// When.
        time_s: f64,
        /// The iteration whose parameters were evaluated.
        iteration: u64,
        /// Mean loss; null if it is no number, as when the training diverged.
        #[serde(deserialize_with = "number")]
        loss: f64,
        /// Share of samples classified correctly, from 0 to 1, if the problem has classes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        accuracy: Option<f64>,
    },
    /// A checkpoint is durable.
    Checkpoint {
        /// When.
        time_s: f64,
        /// The last iteration it holds.
        iteration: u64,
        /// Where it is.
        path: String,
        /// How long it took to write.
        #[serde(default)]
        seconds: f64,
    },
    /// A checkpoint could not be written; those before it are still there.
    CheckpointFailed {
        /// When.
        time_s: f64,
        /// The last iteration it would have held.
        iteration: u64,
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

/// The outcome of an attempt at a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Its gradient entered a step.
    Applied,
    /// Its gradient entered no step: it was a probe, or too late.
    Ignored,
    /// It was no longer needed.
    Cancelled,
    /// Its worker was lost.
    Lost,
    /// It failed, or its gradient was refused.
    Failed,
}

/// Why a result does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RefusalKind {
    /// A gradient for a lease that the worker held, and which ended before its gradient was there. Honest workers are late,
    /// too. Earlier releases did not tell this kind from the next two.
    #[serde(rename = "stale lease", alias = "lease not held")]
    Stale,
    /// A gradient for a lease that the worker never held, or for another iteration than the lease's.
    #[serde(rename = "foreign lease")]
    Foreign,
    /// A gradient that arrived before, or is arriving.
    #[serde(rename = "replayed lease")]
    Replayed,
    /// More gradients at a time than a worker may send.
    #[serde(rename = "too many at a time")]
    TooMany,
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
    /// A gradient that differs from the one on which two other workers agree.
    #[serde(rename = "refuted")]
    Refuted,
    /// A gradient that differs from those of other workers, of which no two agree.
    #[serde(rename = "disputed")]
    Disputed,
}

impl RunEvent {
    /// The iteration that it is part of.
    pub(crate) fn iteration(&self) -> Option<u64> {
        match self {
            Self::Allocation { iteration, .. } | Self::Task { iteration, .. } | Self::Step { iteration, .. } => {
                Some(*iteration)
            }
            _ => None,
        }
    }
}

impl RefusalKind {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Stale,
        Self::Foreign,
        Self::Replayed,
        Self::TooMany,
        Self::WrongSize,
        Self::WrongChecksum,
        Self::NotFinite,
        Self::WrongTimes,
        Self::NotReceived,
        Self::NotComputed,
        Self::Refuted,
        Self::Disputed,
    ];

    /// Its name, as in the journal.
    pub fn name(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(name)) => name,
            other => unreachable!("it is written as its name, not as {other:?}"),
        }
    }

    /// Whether no honest worker sends such a thing, although no lease fails by it.
    pub fn is_offence(self) -> bool {
        matches!(self, Self::Foreign | Self::Replayed | Self::TooMany)
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndState {
    /// All iterations are done, or a limit is reached.
    Finished,
    /// It was told to stop.
    Stopped,
    /// Something went wrong.
    Failed,
}

impl EndState {
    /// Its name in `summary.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A step, for tests of what becomes of events.
    pub(crate) fn step(iteration: u64) -> RunEvent {
        RunEvent::Step {
            iteration,
            time_s: iteration as f64,
            loss: 0.5,
            runtime_s: 1.0,
            total_worker_time_s: 2.0,
            tasks: 4,
            wasted: 0,
            employments: 2,
            results: 3,
            learning_rate: None,
            gradient_norm: None,
        }
    }
}
