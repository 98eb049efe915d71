//! The vocabulary.

use serde::{Deserialize, Serialize};

/// The version of [`RunEvent`] that this release writes. It reads all up to it: version 1 had only allocations, tasks and
/// steps, and no first line that says its version.
pub const JOURNAL_VERSION: u32 = 2;

/// Something that happened in a run: one line of its journal.
///
/// Times named `time_s` are seconds since the coordinator began, without the time for which its process was stopped; all
/// others are durations in seconds. Losses are in nats. Workers are named by their 1-based number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// The run began. The first line.
    Run {
        /// [`JOURNAL_VERSION`]
        version: u32,
        /// Its name.
        run_id: String,
        /// As `--policy` takes it.
        policy: String,
        /// B.
        budget: u64,
        /// Iterations asked for.
        iterations: u64,
        /// Samples per task.
        task_batch: u32,
        /// Of everything random.
        seed: u64,
    },
    /// The run waits for workers.
    Wait {
        /// When.
        time_s: f64,
        /// How many are present.
        present: usize,
        /// How many it takes.
        needed: usize,
    },
    /// A worker can compute.
    Join {
        /// When.
        time_s: f64,
        /// Its number.
        worker: u32,
        /// Its name across sessions.
        name: String,
        /// What it computes on.
        device: String,
    },
    /// A worker is gone.
    Loss {
        /// When.
        time_s: f64,
        /// Its number.
        worker: u32,
        /// Why.
        why: String,
    },
    /// A worker failed or hung, and gets no work for a while.
    Rest {
        /// When it began.
        time_s: f64,
        /// Its number.
        worker: u32,
        /// How long it lasts.
        rest_s: f64,
        /// How often it has failed without a result in between.
        strikes: u32,
    },
    /// An iteration began with this allocation.
    Allocation {
        /// k.
        iteration: u64,
        /// When.
        time_s: f64,
        /// The workers it is about.
        workers: Vec<u32>,
        /// Tasks of each of them; empty in an asynchronous run, where all compute one task at a time.
        allocation: Vec<u64>,
        /// Those of them that compute one task more, as a probe.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        probes: Vec<u32>,
        /// The policy's bounds on seconds per task, or its estimates; empty if it looks at no speeds.
        scores_s: Vec<f64>,
        /// Why: the rule that made the allocation.
        rule: String,
    },
    /// A task's attempt ended, with its lease.
    Task {
        /// The iteration it belongs to.
        iteration: u64,
        /// Its index.
        task: u64,
        /// Who computed it.
        worker: u32,
        /// The lease it was part of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<u64>,
        /// When.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time_s: Option<f64>,
        /// Seconds it took; null if it was not computed to its end.
        busy_s: Option<f64>,
        /// Seconds after which it was cut short, if it was begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut_s: Option<f64>,
        /// With the last task that a worker held: its seconds since its first one that were not computation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        overhead_s: Option<f64>,
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
        loss: f64,
        /// C_k: from the first assignment to the last result that the step needed.
        runtime_s: f64,
        /// Seconds workers spent.
        total_worker_time_s: f64,
        /// Tasks that entered it.
        tasks: u64,
        /// Tasks begun that did not.
        wasted: u64,
        /// Workers that got a task.
        #[serde(default)]
        employments: u64,
    },
    /// Something that a worker sent, or reported to have failed, does not count.
    Refusal {
        /// When.
        time_s: f64,
        /// Who sent it.
        worker: u32,
        /// Of which kind.
        kind: RefusalKind,
        /// For people.
        reason: String,
    },
    /// The evaluation began.
    Evaluating {
        /// When.
        time_s: f64,
        /// The iteration whose parameters are evaluated.
        iteration: u64,
    },
    /// The evaluation on the test data.
    Evaluation {
        /// When.
        time_s: f64,
        /// The iteration whose parameters were evaluated.
        iteration: u64,
        /// Mean loss.
        loss: f64,
        /// Share of samples classified right, 0 to 1.
        accuracy: f64,
    },
    /// A checkpoint is durable.
    Checkpoint {
        /// When.
        time_s: f64,
        /// The last iteration it holds.
        iteration: u64,
        /// Where it is.
        path: String,
    },
    /// The run ended. The last line.
    End {
        /// When.
        time_s: f64,
        /// How.
        state: EndState,
        /// Which rule ended it, what stopped it, or what went wrong.
        reason: String,
    },
}

/// What became of a task's attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Its gradient entered a step.
    Applied,
    /// Its gradient entered no step: a probe, or too late.
    Ignored,
    /// It was not needed any more.
    Cancelled,
    /// Its worker was lost.
    Lost,
    /// It failed, or its gradient was refused.
    Failed,
}

/// Why something does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RefusalKind {
    /// A gradient without a lease: late, repeated, or another worker's.
    #[serde(rename = "lease not held")]
    NotHeld,
    /// A gradient of another length than the model's.
    #[serde(rename = "wrong size")]
    WrongSize,
    /// A gradient that arrived changed.
    #[serde(rename = "wrong checksum")]
    WrongChecksum,
    /// A gradient or a loss that is not a number, or infinite.
    #[serde(rename = "not finite")]
    NotFinite,
    /// Times that no tasks can have taken.
    #[serde(rename = "wrong times")]
    WrongTimes,
    /// A gradient that stopped coming.
    #[serde(rename = "not received")]
    NotReceived,
    /// The worker says that it could not compute it.
    #[serde(rename = "not computed")]
    NotComputed,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// As `summary.json` names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}
