//! The workers in the order of their speed, so that the time of a decision does not grow with the number of idle workers.

use std::collections::BTreeSet;

use ata_types::WorkerId;

/// Workers in ascending order of some time. The bits of non-negative numbers have the order of the numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranking {
    order: BTreeSet<(u64, u32)>,
    /// The times, by slot.
    times_s: Vec<Option<f64>>,
}

impl Ranking {
    /// Sets a worker's time; `None` removes the worker.
    pub(super) fn set(&mut self, slot: usize, time_s: Option<f64>) {
        if self.times_s.len() <= slot {
            self.times_s.resize(slot + 1, None);
        }
        let before = std::mem::replace(&mut self.times_s[slot], time_s);
        if before == time_s {
            return;
        }
        if let Some(before_s) = before {
            self.order.remove(&(before_s.to_bits(), slot as u32));
        }
        if let Some(time_s) = time_s {
            self.order.insert((time_s.to_bits(), slot as u32));
        }
    }

    /// Returns the workers and their times, ascending.
    pub(super) fn ascending(&self) -> impl Iterator<Item = (WorkerId, f64)> + '_ {
        self.order.iter().map(|&(bits, slot)| (WorkerId::from_slot(slot as usize), f64::from_bits(bits)))
    }
}
