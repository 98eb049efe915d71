//! The leases that are assigned and have not ended, by iteration.

use std::collections::VecDeque;

use ata_types::Iteration;

/// The number of outstanding leases of each iteration.
#[derive(Default)]
pub(crate) struct Outstanding {
    /// The numbers by iteration, ascending.
    leases: VecDeque<(Iteration, u64)>,
}

impl Outstanding {
    pub(crate) fn assigned(&mut self, iteration: Iteration) {
        match self.leases.back_mut() {
            Some((last, count)) if *last == iteration => *count += 1,
            _ => self.leases.push_back((iteration, 1)),
        }
    }

    pub(crate) fn ended(&mut self, iteration: Iteration) {
        let at = self.leases.partition_point(|(other, _)| *other < iteration);
        self.leases[at].1 -= 1;
        while self.leases.len() > 1 && self.leases[0].1 == 0 {
            self.leases.pop_front();
        }
    }

    /// Returns the earliest iteration whose parameters a lease is computed with; `None` if no lease is assigned.
    pub(crate) fn oldest_iteration(&self) -> Option<Iteration> {
        self.leases.iter().find(|(_, count)| *count > 0).map(|(iteration, _)| *iteration)
    }
}
