//! Ranges of task indices, leases, and the outcomes of tasks.

use std::ops::Range;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CollectionId, Iteration, LeaseId};

/// Consecutive task indices of one iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TaskRange {
    /// The first task index.
    pub first: u64,
    /// The number of tasks.
    pub count: u64,
}

impl TaskRange {
    /// Returns the range of a single task.
    pub fn single(index: u64) -> Self {
        Self { first: index, count: 1 }
    }

    /// Returns the index after the last one.
    pub fn end(self) -> u64 {
        self.first + self.count
    }

    /// Returns the task indices.
    pub fn indices(self) -> Range<u64> {
        self.first..self.end()
    }

    /// Returns whether a task is in both ranges.
    pub fn overlaps(self, other: Self) -> bool {
        self.first < other.end() && other.first < self.end()
    }
}

/// A set of tasks of one iteration, as ascending ranges with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskRanges(Vec<TaskRange>);

impl TaskRanges {
    /// Returns the ranges.
    pub fn iter(&self) -> impl Iterator<Item = TaskRange> + '_ {
        self.0.iter().copied()
    }

    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no tasks.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of tasks.
    pub fn count(&self) -> u64 {
        self.iter().map(|range| range.count).sum()
    }

    /// Returns whether all of these tasks are in the set.
    pub fn covers(&self, tasks: &Self) -> bool {
        tasks.iter().all(|tasks| {
            self.from(tasks.first).first().is_some_and(|range| range.first <= tasks.first && tasks.end() <= range.end())
        })
    }

    /// Returns whether any of these tasks is in the set.
    pub fn overlaps(&self, tasks: &Self) -> bool {
        tasks.iter().any(|tasks| self.from(tasks.first).first().is_some_and(|range| range.overlaps(tasks)))
    }

    /// Returns the ranges that end after a task.
    fn from(&self, task: u64) -> &[TaskRange] {
        &self.0[self.0.partition_point(|range| range.end() <= task)..]
    }

    /// Adds tasks. Adding tasks of the highest index is fastest.
    pub fn insert(&mut self, tasks: TaskRange) {
        if tasks.count == 0 {
            return;
        }
        // The ranges that it touches are merged with it.
        let from = self.0.partition_point(|range| range.end() < tasks.first);
        let to = from + self.0[from..].partition_point(|range| range.first <= tasks.end());
        let touched = &self.0[from..to];
        let first = touched.first().map_or(tasks.first, |range| range.first.min(tasks.first));
        let end = touched.last().map_or(tasks.end(), |range| range.end().max(tasks.end()));
        self.0.splice(from..to, [TaskRange { first, count: end - first }]);
    }

    /// Returns the tasks of both sets.
    #[must_use]
    pub fn union(mut self, other: &Self) -> Self {
        other.iter().for_each(|range| self.insert(range));
        self
    }

    /// Returns the tasks that are not in the other set.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        for range in self.iter() {
            let mut first = range.first;
            let end = TaskRange { first: range.end(), count: 0 };
            for taken in other.from(first).iter().copied().take_while(|taken| taken.first < range.end()).chain([end]) {
                left.extend((first < taken.first).then(|| TaskRange { first, count: taken.first - first }));
                first = taken.end();
            }
        }
        Self(left)
    }
}

impl IntoIterator for TaskRanges {
    type Item = TaskRange;
    type IntoIter = std::vec::IntoIter<TaskRange>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl From<TaskRange> for TaskRanges {
    fn from(tasks: TaskRange) -> Self {
        Self::from_iter([tasks])
    }
}

impl FromIterator<TaskRange> for TaskRanges {
    fn from_iter<I: IntoIterator<Item = TaskRange>>(ranges: I) -> Self {
        let mut sorted = Vec::from_iter(ranges);
        sorted.sort_unstable();
        let mut all = Self::default();
        for range in sorted {
            all.insert(range);
        }
        all
    }
}

/// The most tasks that a lease may have: a worker reports one time per task in one message, and a lost lease is computed again as
/// a whole.
pub const MAX_LEASE_TASKS: u64 = 1 << 16;

/// One worker's right to compute some tasks, once. A result without its lease is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Identifies this attempt.
    pub id: LeaseId,
    /// The iteration that the tasks belong to, which is also the version of the parameters to compute them with.
    pub iteration: Iteration,
    /// The tasks.
    pub tasks: TaskRange,
    /// The lease's own collection, if its gradient is requested together with it and used as a whole: to make a step of its own, or to
    /// be compared with another worker's. Otherwise the worker is asked later for one sum over several leases.
    pub own: Option<CollectionId>,
}

/// The way in which the computation of a task, or of the tasks of a lease, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TaskOutcome {
    /// Its gradient entered a step.
    Applied,
    /// Its gradient entered no step: it was a probe, it confirmed another worker's result, another worker was faster, or
    /// it came too late.
    Ignored,
    /// It was no longer needed, and its worker was asked to stop.
    Cancelled,
    /// Its worker was lost.
    Lost,
    /// The worker could not compute it, or its gradient was refused.
    Failed,
    /// Its gradient differs from one on which two other workers agree.
    Mismatched,
    /// No two workers agree on its gradient, and there is no further worker to ask.
    Disputed,
}

impl TaskOutcome {
    /// All outcomes.
    pub const ALL: [Self; 7] =
        [Self::Applied, Self::Ignored, Self::Cancelled, Self::Lost, Self::Failed, Self::Mismatched, Self::Disputed];

    /// Returns the name, as in JSON and in metrics.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn ranges(ranges: &[(u64, u64)]) -> TaskRanges {
        ranges.iter().map(|&(first, count)| TaskRange { first, count }).collect()
    }

    fn tasks(ranges: &TaskRanges) -> BTreeSet<u64> {
        ranges.iter().flat_map(TaskRange::indices).collect()
    }

    proptest! {
        #[test]
        fn they_are_sets_of_tasks(one in vec((0u64..40, 0u64..9), 0..8), two in vec((0u64..40, 0u64..9), 0..8)) {
            let (one, two) = (ranges(&one), ranges(&two));
            let (of_one, of_two) = (tasks(&one), tasks(&two));
            for (result, expected) in [
                (one.minus(&two), &of_one - &of_two),
                (one.clone().union(&two), &of_one | &of_two),
            ] {
                prop_assert_eq!(&tasks(&result), &expected);
                prop_assert_eq!(result.count(), expected.len() as u64);
                prop_assert!(result.0.windows(2).all(|pair| pair[0].end() < pair[1].first), "{:?}", result);
                prop_assert!(result.iter().all(|range| range.count > 0), "{:?}", result);
            }
            prop_assert_eq!(one.covers(&two), of_two.is_subset(&of_one));
            prop_assert_eq!(one.overlaps(&two), !of_one.is_disjoint(&of_two));
        }
    }
}
