//! Tracks the units that a worker has.

use ata_sums::Units;
use ata_types::Iteration;
use ata_wire::ToWorker;
use bytes::Bytes;

use super::Session;

impl Session {
    /// Sends the units of an iteration, if the worker does not have them.
    pub(crate) fn send_units(&mut self, iteration: Iteration, units: &Units) {
        if self.units_of(iteration).is_none() {
            self.has_units(iteration, units.clone());
            let (units, shifts) = (units.exponents().to_vec(), Bytes::copy_from_slice(units.shifts()));
            self.outbox.push(ToWorker::Units { iteration, units, shifts });
        }
    }

    /// Records that the worker has the units of an iteration.
    pub(crate) fn has_units(&mut self, iteration: Iteration, units: Units) {
        self.units_sent = Some((iteration, units));
    }

    /// Records that there are no units yet.
    pub(crate) fn forget_units(&mut self) {
        self.units_sent = None;
    }

    /// Returns whether the worker has the units of an iteration.
    pub(crate) fn knows_units(&self) -> bool {
        self.units_sent.is_some()
    }

    /// Returns the units of an iteration, if the worker has them.
    pub(crate) fn units_of(&self, iteration: Iteration) -> Option<&Units> {
        self.units_sent.as_ref().filter(|(sent, _)| *sent == iteration).map(|(_, units)| units)
    }
}
