//! What workers are excluded from because of what they did, until they are forgiven.

use std::fmt;

use ata_types::WorkerId;
use serde::{Deserialize, Serialize};

use super::RunState;
use crate::event::{RefusalKind, RunEvent};

/// The largest number of exclusions that are kept: as many as a run may have workers.
pub const MAX_EXCLUSIONS: usize = 16_384;

/// Something that a name on one machine may not do any more, or not for a while. On another machine, any worker may use the name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exclusion {
    /// The worker's name.
    pub name: String,
    /// The machine that used the name: the address that it connected from, or the names in its certificate.
    pub machine: String,
    /// What it is excluded from.
    pub from: ExcludedFrom,
    /// The reason, in words.
    pub why: String,
}

/// What a worker is excluded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExcludedFrom {
    /// The worker gets no tasks for a while, after a failure.
    Tasks,
    /// The worker measures no batches of evaluations for the rest of the run.
    Evaluations,
    /// The worker was expelled: it may not join again.
    Run,
}

/// The text is the name in JSON.
impl fmt::Display for ExcludedFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tasks => "tasks",
            Self::Evaluations => "evaluations",
            Self::Run => "run",
        })
    }
}

impl RunState {
    pub(super) fn refuse(&mut self, event: &RunEvent) {
        let RunEvent::Refusal { worker, kind, count, reason, .. } = event else { return };
        *self.refused.entry(*kind).or_default() += count;
        match kind {
            RefusalKind::Mismatched => self.worker(*worker).mismatches += count,
            RefusalKind::WrongMeasurement => self.exclude(*worker, ExcludedFrom::Evaluations, reason),
            _ => {}
        }
    }

    pub(super) fn exclude(&mut self, worker: WorkerId, from: ExcludedFrom, why: &str) {
        let worker = self.worker(worker);
        let (name, machine) = (worker.name.clone(), worker.machine.clone());
        self.exclusions.push_back(Exclusion { name, machine, from, why: why.into() });
        self.exclusions.drain(..self.exclusions.len().saturating_sub(MAX_EXCLUSIONS));
    }

    pub(super) fn forgive(&mut self, name: &str) {
        self.exclusions.retain(|exclusion| exclusion.name != name);
        for worker in self.workers.values_mut().filter(|worker| worker.name == name) {
            (worker.expelled, worker.rests_until_s, worker.strikes) = (None, None, 0);
        }
    }
}
