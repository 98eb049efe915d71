//! Ranges of task indices, and what became of tasks.

use std::ops::Range;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Consecutive task indices of one iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TaskRange {
    /// First task index.
    pub first: u64,
    /// How many tasks.
    pub count: u64,
}

impl TaskRange {
    /// The single task at this index.
    pub fn single(index: u64) -> Self {
        Self { first: index, count: 1 }
    }

    /// One past the last index.
    pub fn end(self) -> u64 {
        self.first + self.count
    }

    /// The task indices.
    pub fn indices(self) -> Range<u64> {
        self.first..self.end()
    }

    /// Whether a task is in both ranges.
    pub fn overlaps(self, other: Self) -> bool {
        self.first < other.end() && other.first < self.end()
    }
}

/// How the computation of a task, or of the tasks of a lease, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TaskOutcome {
    /// Its gradient entered a step.
    Applied,
    /// Its gradient entered no step: it was a probe, it confirmed another worker's result, another worker was faster, or
    /// it came too late.
    Ignored,
    /// It was no longer needed, and the worker was told to stop.
    Cancelled,
    /// Its worker was lost.
    Lost,
    /// The worker could not compute it, or its gradient was refused.
    Failed,
    /// Its gradient differs from one on which two other workers agree.
    Mismatched,
    /// No two workers agree on its gradient, and there is no further one to ask.
    Disputed,
}

impl TaskOutcome {
    /// All outcomes.
    pub const ALL: [Self; 7] =
        [Self::Applied, Self::Ignored, Self::Cancelled, Self::Lost, Self::Failed, Self::Mismatched, Self::Disputed];

    /// Its name, as in JSON and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Ignored => "ignored",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
            Self::Failed => "failed",
            Self::Mismatched => "mismatched",
            Self::Disputed => "disputed",
        }
    }
}
