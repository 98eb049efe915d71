//! Identifiers of workers, machines, iterations and leases.

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::num::NonZeroU32;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A worker's 1-based number, as users see it in tables and as `i` in a time law.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
#[serde(transparent)]
pub struct WorkerId(NonZeroU32);

impl WorkerId {
    /// Creates the worker with this 1-based number; `None` for 0.
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    /// Returns the worker at a 0-based slot.
    ///
    /// # Panics
    /// If `slot` is beyond 2^32 − 2.
    pub fn from_slot(slot: usize) -> Self {
        let number = u32::try_from(slot + 1).expect("a slot fits 32 bits");
        Self::new(number).expect("slot + 1 is positive")
    }

    /// Returns the 1-based number.
    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// Returns the 0-based slot, for indexing per-worker vectors.
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

impl MachineId {
    /// Returns the number of a machine within this process, by its certificate or address as text.
    pub fn of(machine: &str) -> Self {
        Self(BuildHasherDefault::<DefaultHasher>::default().hash_one(machine))
    }
}

impl From<WorkerId> for MachineId {
    /// Returns a machine for a worker that shares it with no other.
    fn from(worker: WorkerId) -> Self {
        Self(worker.number().into())
    }
}

/// The number of an iteration, from 1. An iteration is one optimizer step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
#[serde(transparent)]
pub struct Iteration(pub u64);

impl Iteration {
    /// The first iteration of a run.
    pub const FIRST: Self = Self(1);

    /// Returns the iteration of a task of a run, and the index of the task in it, if each iteration has `budget` tasks. Tasks count from 0.
    pub const fn of_task(task: u64, budget: u64) -> (Self, u64) {
        (Self(task / budget + 1), task % budget)
    }

    /// Returns the number; 0 stands for "before the first iteration", as in the version of the initial parameters.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the iteration after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the number of iterations that have passed since `earlier`; 0 if it is not earlier.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Iteration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies one lease; never reused within a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(inline))]
#[serde(transparent)]
pub struct LeaseId(pub u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies one collection, which is the engine's request for the sum of the gradients of some of a worker's leases. It is never reused
/// within a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionId(pub u64);

/// Identifies one vector that a worker is asked for; never reused within a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VectorId(pub u64);

impl fmt::Display for VectorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
