//! Identifiers: workers, machines, leases, ranges of tasks.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The most tasks a lease may have: a worker reports one time per task in one message, and a lost lease is recomputed
/// whole.
pub const MAX_LEASE_TASKS: u64 = 1 << 16;

/// A worker's 1-based number, as users see it in tables and as `i` in a time law.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(NonZeroU32);

impl WorkerId {
    /// The worker with this 1-based number; `None` for 0.
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    /// The worker at a 0-based slot.
    ///
    /// # Panics
    /// If `slot` is beyond 2^32 − 2.
    pub fn from_slot(slot: usize) -> Self {
        let number = u32::try_from(slot + 1).expect("a slot fits 32 bits");
        Self::new(number).expect("slot + 1 is positive")
    }

    /// The 1-based number.
    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// The 0-based slot, for indexing per-worker vectors.
    pub fn slot(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies the machine that a worker runs on, opaquely: workers of one machine may be the same process under several
/// names, or may share the cause of a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(pub u64);

impl From<WorkerId> for MachineId {
    /// The machine of a worker that shares it with no other.
    fn from(worker: WorkerId) -> Self {
        Self(worker.number().into())
    }
}

/// Consecutive task indices of one iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    pub(crate) fn overlaps(self, other: Self) -> bool {
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
    pub(crate) fn without_first(self) -> impl Iterator<Item = Self> {
        debug_assert!(self.is_subtree());
        (0..self.count.ilog2()).map(move |level| Self { first: self.first + (1 << level), count: 1 << level })
    }

    /// The two halves of a subtree of at least two tasks.
    pub(crate) fn halves(self) -> [Self; 2] {
        debug_assert!(self.is_subtree() && self.count >= 2);
        let count = self.count / 2;
        [Self { first: self.first, count }, Self { first: self.first + count, count }]
    }
}

/// Identifies one lease; never reused within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One worker's right to compute some tasks, once. A result without its lease is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Identifies this attempt.
    pub id: LeaseId,
    /// The iteration the tasks belong to, and the version of the parameters to compute them at.
    pub iteration: u64,
    /// The tasks, whose summed gradient answers the lease: one subtree of the reduction tree or, for a worker that
    /// computes a lease as one batch, any range.
    pub tasks: TaskRange,
}
