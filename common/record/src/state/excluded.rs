//! What workers are excluded from, until they are forgiven.

use ata_types::WorkerId;

use super::RunState;
use crate::event::{RefusalKind, RunEvent};
use crate::exclusion::{ExcludedFrom, Exclusion, MAX_EXCLUSIONS};

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
        if self.exclusions.len() > MAX_EXCLUSIONS {
            self.exclusions.pop_front();
        }
    }

    pub(super) fn forgive(&mut self, name: &str) {
        self.exclusions.retain(|exclusion| exclusion.name != name);
        for worker in self.workers.values_mut().filter(|worker| worker.name == name) {
            (worker.expelled, worker.rests_until_s, worker.strikes) = (None, None, 0);
        }
    }
}
