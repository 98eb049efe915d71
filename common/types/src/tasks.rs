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

    /// Whether the range is one whole subtree of the binary reduction tree over task indices: its count is a power of
    /// two, and it starts at a multiple of the count.
    pub fn is_subtree(self) -> bool {
        self.count.is_power_of_two() && self.first.is_multiple_of(self.count)
    }

    /// The largest subtrees that make up the range, ascending.
    pub fn subtrees(self) -> impl Iterator<Item = Self> {
        let mut left = self;
        std::iter::from_fn(move || {
            // At index 0 any subtree begins.
            let aligned = if left.first == 0 { u64::MAX } else { 1 << left.first.trailing_zeros() };
            let count = (1 << left.count.checked_ilog2()?).min(aligned);
            let next = Self { first: left.first, count };
            left = Self { first: next.end(), count: left.count - count };
            Some(next)
        })
    }

    /// All but the first task of a subtree, as subtrees.
    pub fn without_first(self) -> impl Iterator<Item = Self> {
        debug_assert!(self.is_subtree());
        (0..self.count.ilog2()).map(move |level| Self { first: self.first + (1 << level), count: 1 << level })
    }

    /// The two halves of a subtree of at least two tasks.
    pub fn halves(self) -> [Self; 2] {
        debug_assert!(self.is_subtree() && self.count >= 2);
        let count = self.count / 2;
        [Self { first: self.first, count }, Self { first: self.first + count, count }]
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
