//! Workers that join and leave.

use super::{Lockstep, LockstepError};
use crate::statistics::WorkerStatistics;
use ata_types::WorkerId;

/// The most workers, far beyond the number that can step together: a decision takes time in proportion to them.
pub(super) const MAX_WORKERS: u32 = 1 << 20;

/// The workers that are present.
#[derive(Debug)]
pub(super) struct Members {
    /// The present workers, ascending.
    present: Vec<WorkerId>,
    /// The number of workers that are or were present.
    slots: usize,
}

impl Members {
    pub(super) fn new(workers: u32) -> Result<Self, LockstepError> {
        if !(1..=MAX_WORKERS).contains(&workers) {
            return Err(LockstepError::Workers(workers));
        }
        let slots = workers as usize;
        Ok(Self { present: (0..slots).map(WorkerId::from_slot).collect(), slots })
    }

    pub(super) fn present(&self) -> &[WorkerId] {
        &self.present
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the worker with this number, from 0.
    pub(super) fn known(&self, worker: usize) -> Result<WorkerId, LockstepError> {
        let known = self.slots;
        if worker < known { Ok(WorkerId::from_slot(worker)) } else { Err(LockstepError::Unknown { worker, known }) }
    }
}

impl Lockstep {
    /// Returns the present workers, ascending.
    pub fn present(&self) -> impl Iterator<Item = usize> + '_ {
        self.members.present().iter().map(|worker| worker.slot())
    }

    /// Adds a new worker, under the next number.
    pub fn join(&mut self) -> Result<usize, LockstepError> {
        let worker = self.members.slots;
        if worker >= MAX_WORKERS as usize {
            return Err(LockstepError::Workers(MAX_WORKERS + 1));
        }
        self.members.slots += 1;
        self.members.present.push(WorkerId::from_slot(worker));
        let slots = self.statistics.len().max(self.members.slots);
        self.statistics.resize(slots, WorkerStatistics::default());
        Ok(worker)
    }

    /// Adds a worker again that left; its statistics are kept.
    pub fn rejoin(&mut self, worker: usize) -> Result<(), LockstepError> {
        let id = self.members.known(worker)?;
        match self.members.present.binary_search(&id) {
            Ok(_) => Err(LockstepError::Present(worker)),
            Err(at) => {
                self.members.present.insert(at, id);
                Ok(())
            }
        }
    }

    /// Removes a worker, which gets no tasks from the next decision on.
    pub fn leave(&mut self, worker: usize) -> Result<(), LockstepError> {
        let id = self.members.known(worker)?;
        let at = self.members.present.binary_search(&id).map_err(|_| LockstepError::Absent(worker))?;
        self.members.present.remove(at);
        Ok(())
    }
}
