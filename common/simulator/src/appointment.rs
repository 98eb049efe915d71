//! What the driver has to do at some virtual time.

use ata_types::WorkerId;

use crate::change::Change;

/// Something that happens at a time.
#[derive(Clone, Copy)]
pub(crate) enum Appointment {
    Change(Change),
    /// A worker that was evicted comes back.
    Return(WorkerId),
    /// The step of this order is taken, unless it was replaced.
    StepEnd(u64),
    /// The next iteration has waited as long as the observer said.
    WaitEnd,
    /// The coordinator starts again.
    Restart,
}
