//! Appointments: what the driver has to do at some virtual time.

use ata_scheduler::Event;
use ata_types::WorkerId;

use crate::change::Change;

/// Something that the driver has to do at some time.
#[derive(Clone, Copy)]
pub(crate) enum Appointment {
    Change(Change),
    /// A worker that was evicted returns.
    Return(WorkerId),
    /// The step of this order is taken, unless the order was replaced.
    StepEnd(u64),
    /// The wait of the next iteration, as requested by the observer, ends.
    WaitEnd,
    /// Two results are compared.
    Compared(Event),
    /// The coordinator starts again.
    Restart,
}
