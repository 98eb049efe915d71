//! Changes that happen to a virtual cluster during a run.

use ata_types::WorkerId;

/// The time of a change.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Moment {
    /// The change happens as this iteration begins, before its tasks do.
    Iteration(u64),
    /// The change happens at this virtual time; changes of speed do not affect running tasks.
    Time(f64),
}

/// A change of speeds, membership or health.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Two workers exchange their laws.
    Swap(WorkerId, WorkerId),
    /// A worker's tasks take this many times as long from now on.
    SlowDown(WorkerId, f64),
    /// A worker is lost. Across a network, it crashes: the coordinator notices only its silence.
    Leave(WorkerId),
    /// A worker that was lost, or not present from the start, joins and works again.
    Join(WorkerId),
    /// A worker hangs from now on: it finishes nothing, and joins again at once whenever it is evicted.
    Hang(WorkerId),
    /// Vectors take this many times as long on a worker's own link from now on, in each direction. Without links, this has no effect.
    SlowLink(WorkerId, f64),
    /// A worker fails from now on: its leases fail at the time at which they would have been done.
    Fail(WorkerId),
}
