//! The units of the first iteration, on which the workers' first gradients agree.
//!
//! Each worker derives them from the same task, so they differ only between devices that round otherwise, or if a worker is wrong.
//! Those that most workers have are taken before any of the gradients is read. Workers that had others are asked again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use ata_learn::Units;
use ata_record::RefusalKind;
use ata_types::{Iteration, LeaseId, VectorId, WorkerId};
use ata_wire::{GradientHeader, SessionToken, units_crc32c};

use super::Driver;
use super::uploads::UploadRefusal;

/// Workers whose units are enough where gradients are sent alone, so that a step need not wait for all of them. One of three that is
/// wrong is outvoted.
const ENOUGH_VOTES: usize = 3;

/// Why a gradient is not taken.
const OTHER_UNITS: &str = "its units are not those of the iteration";

impl Driver {
    /// The units that a header names, of a gradient of some iteration. Units that are not known are those of tensors.
    pub(super) fn units(&self, header: &GradientHeader, iteration: Iteration) -> Result<Units, String> {
        let is_current = iteration == self.steps.parameters().iteration;
        let known = if is_current { self.steps.units() } else { self.sessions.units_of(header.session, iteration) };
        let is_named = |units: &&Units| {
            units.exponents() == header.units && units_crc32c(units.exponents(), units.shifts()) == header.units_crc32c
        };
        if let Some(units) = known.filter(is_named) {
            return Ok(units.clone());
        }
        let units = Units::from_exponents(&header.units, &self.sizes).map_err(|error| error.to_string())?;
        Some(units).filter(|units| is_named(&units)).ok_or_else(|| OTHER_UNITS.into())
    }

    /// Whether a gradient of an iteration may have these units, as far as it is known.
    pub(super) fn fits(&self, iteration: Iteration, units: &Units) -> bool {
        // The lease of an asynchronous run may have begun earlier, with the units of its iteration.
        let is_current = iteration == self.steps.parameters().iteration;
        !is_current || self.steps.units().is_none_or(|known| known == units)
    }

    /// Decides on the units of the first iteration once enough workers have announced theirs. Returns whether they are known.
    pub(super) fn agree_on_units(&mut self) -> bool {
        if self.steps.units().is_some() {
            return true;
        }
        let parked = self.parked.iter().map(|parked| (parked.worker, &parked.units));
        let votes: BTreeMap<WorkerId, &Units> = parked.chain(self.uploads.waiting()).collect();
        if !self.are_enough(&votes.keys().copied().collect()) {
            return false;
        }
        let count = |units: &Units| votes.values().filter(|other| **other == units).count();
        // Of equal counts the smaller, which clamp at worst, and the next step corrects that at once.
        let most = votes.values().max_by_key(|units| (count(units), Reverse(units.exponents())));
        let Some(units) = most.map(|units| (*units).clone()) else { return false };
        let iteration = self.steps.parameters().iteration;
        let voters: Vec<WorkerId> =
            votes.iter().filter(|(_, own)| ***own == units).map(|(worker, _)| *worker).collect();
        for worker in voters {
            if let Some(session) = self.sessions.of_worker(worker) {
                session.has_units(iteration, units.clone());
            }
        }
        self.steps.set_units(units.clone());
        for (session, lease) in self.uploads.with_other_units(&units) {
            if let Some(waiting) = self.uploads.take(lease) {
                let refused = self.repeat_lease(session, lease);
                super::commands::answer(waiting.reply, Err(refused));
            }
        }
        self.accept_parked();
        true
    }

    /// Whether no more workers than these have to announce their units: all that are asked for vectors have, or, where gradients are
    /// sent alone, three or all that hold leases.
    fn are_enough(&self, voters: &BTreeSet<WorkerId>) -> bool {
        let mut asked = self.collections.awaited_workers().peekable();
        if asked.peek().is_some() {
            return asked.all(|worker| voters.contains(&worker));
        }
        let mut holders = self.sessions.ready().filter(|session| session.has_leases());
        voters.len() >= ENOUGH_VOTES || holders.all(|session| voters.contains(&session.worker()))
    }

    /// Asks again for a vector that was announced in other units. That is no failure the first time, since the worker could not know
    /// them.
    pub(super) fn repeat_vector(&mut self, worker: WorkerId, id: VectorId) -> UploadRefusal {
        if let Some(request) = self.collections.repeat(id) {
            self.send_units(worker);
            self.request(worker, request.into());
        } else {
            self.fail_vector(worker, id, RefusalKind::WrongSize, OTHER_UNITS);
        }
        UploadRefusal::NotHeld { reason: OTHER_UNITS.into() }
    }

    /// Has an alone lease computed again whose gradient was announced in other units.
    pub(super) fn repeat_lease(&mut self, token: SessionToken, lease: LeaseId) -> UploadRefusal {
        let reason = OTHER_UNITS.to_owned();
        let Ok(session) = self.sessions.of_token(token) else { return UploadRefusal::NotHeld { reason } };
        let (worker, may_repeat) = (session.worker(), session.may_repeat(lease));
        match self.engine.lease(worker, lease) {
            Some(held) if may_repeat && held.iteration == Iteration::FIRST => {
                self.send_units(worker);
                if let Some(session) = self.sessions.addressed(worker) {
                    session.assign_again(&held);
                }
            }
            _ => self.lease_failed(token, lease, RefusalKind::WrongSize, &reason),
        }
        UploadRefusal::NotHeld { reason }
    }

    /// Forgets the units of the first iteration if only this worker has them, whose gradient does not count.
    pub(super) fn forget_units_of(&mut self, worker: WorkerId) {
        let others_have_them =
            || self.sessions.ready().any(|session| session.worker() != worker && session.knows_units());
        let are_used = !self.collections.are_untouched() || self.results.have_alone() || others_have_them();
        if self.steps.parameters().iteration == Iteration::FIRST && !are_used {
            self.steps.forget_units();
            if let Some(session) = self.sessions.of_worker(worker) {
                session.forget_units();
            }
        }
    }

    fn send_units(&mut self, worker: WorkerId) {
        if let Some((session, units)) = self.sessions.addressed(worker).zip(self.steps.units()) {
            session.send_units(self.steps.parameters().iteration, units);
        }
    }
}
