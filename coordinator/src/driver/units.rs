//! The units of the first iteration, which are decided by a vote of the workers.
//!
//! Each worker derives them from the same task, so they differ only between devices that round differently, or if a worker is faulty. The
//! most frequent units are chosen before any of the gradients is read. Workers with other units are asked again.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ata_record::RefusalKind;
use ata_sums::Units;
use ata_types::{Iteration, VectorId, WorkerId};
use ata_wire::{GradientHeader, units_crc32c};

use super::Driver;

/// The number of votes that suffice if each vector makes a step of its own, which need not wait for all workers. With three votes, one
/// faulty worker is outvoted.
const ENOUGH_VOTES: usize = 3;

/// The reason for refusing a gradient in other units.
const OTHER_UNITS: &str = "its units are not those of the iteration";

impl Driver {
    /// Returns the units that the header of a gradient of this iteration names. Unknown units are taken to have no shifts of blocks.
    pub(super) fn units(&self, header: &GradientHeader, iteration: Iteration) -> Result<Units, String> {
        let is_current = iteration == self.iteration();
        let known =
            if is_current { self.steps.units.as_ref() } else { self.sessions.units_of(header.session, iteration) };
        let is_named = |units: &&Units| {
            units.exponents() == header.units && units_crc32c(units.exponents(), units.shifts()) == header.units_crc32c
        };
        if let Some(units) = known.filter(is_named) {
            return Ok(units.clone());
        }
        let units = Units::from_exponents(&header.units, &self.sizes).map_err(|error| error.to_string())?;
        Some(units).filter(|units| is_named(&units)).ok_or_else(|| OTHER_UNITS.into())
    }

    /// Decides on the units of the first iteration once enough workers have announced theirs. Returns whether the units are known.
    pub(super) fn agree_on_units(&mut self) -> bool {
        if self.steps.units.is_some() {
            return true;
        }
        let votes: BTreeMap<WorkerId, &Units> = self.reduction.announced_units().collect();
        if !self.are_enough(&votes) {
            return false;
        }
        let count = |units: &Units| votes.values().filter(|other| **other == units).count();
        // In a tie, the smaller units win. At worst they clamp values, which the next step corrects at once.
        let most = votes.values().max_by_key(|units| (count(units), Reverse(units.exponents())));
        let Some(units) = most.map(|units| (*units).clone()) else { return false };
        let iteration = self.iteration();
        for (worker, _) in votes.iter().filter(|(_, own)| ***own == units) {
            if let Some(session) = self.sessions.of_worker(*worker) {
                session.units = Some((iteration, units.clone()));
            }
        }
        self.steps.set_units(units);
        true
    }

    /// Returns whether the votes are enough to decide: they include those of all workers that are asked for vectors or, if each vector
    /// makes a step of its own, they are three or include those of all workers that hold leases.
    fn are_enough(&self, votes: &BTreeMap<WorkerId, &Units>) -> bool {
        let mut asked = self.reduction.awaited_workers().peekable();
        if asked.peek().is_some() {
            return asked.all(|worker| votes.contains_key(&worker));
        }
        let mut holders = self.sessions.ready().filter(|session| session.leases > 0);
        votes.len() >= ENOUGH_VOTES || holders.all(|session| votes.contains_key(&session.worker))
    }

    /// Asks again for a vector in other units. The first time, this is not a failure, since the worker could not know the units.
    pub(super) fn repeat_vector(&mut self, worker: WorkerId, id: VectorId) {
        if let Some(request) = self.reduction.repeat(id, OTHER_UNITS) {
            if let Some((session, units)) = self.sessions.addressed(worker).zip(self.steps.units.as_ref()) {
                session.send_units(self.steps.parameters.iteration, units);
            }
            self.request(worker, &[], vec![request]);
        } else {
            self.fail_vector(worker, id, RefusalKind::WrongSize, OTHER_UNITS);
        }
    }

    /// Forgets the units of the first iteration if this worker, whose gradient does not count, is the only one that has them.
    pub(super) fn forget_units_of(&mut self, worker: WorkerId) {
        let others_have_them =
            || self.sessions.ready().any(|session| session.worker != worker && session.units.is_some());
        let are_used = !self.reduction.are_untouched() || others_have_them();
        if self.iteration() == Iteration::FIRST && !are_used {
            self.steps.units = None;
            if let Some(session) = self.sessions.of_worker(worker) {
                session.units = None;
            }
        }
    }
}
