//! Failures of single workers. Workers that fail rest, longer each time, and are expelled if they fail too often.

use super::phase::{Flow, Phase};
use super::{Effect, EndedLease, Engine, Shared};
use ata_types::WorkerId;

/// The number of mismatched results after which a worker is expelled. One may be due to a flipped bit, but a correct machine does
/// not have three of them in a run.
const MAX_MISMATCHES: u32 = 3;

impl Engine {
    pub(super) fn violation(&mut self, worker: WorkerId) {
        if !self.shared.roster.present.contains(worker) {
            return;
        }
        self.shared.violation(worker);
        self.expel_if_due(worker);
    }

    pub(super) fn expel_if_due(&mut self, worker: WorkerId) {
        match &mut self.phase {
            Phase::Collecting(_) => self.collect(|collecting, shared| {
                if collecting.expel_if_due(shared, worker) { collecting.recover(shared) } else { Flow::Continue(()) }
            }),
            Phase::Between(_) | Phase::Committing(_) => drop(self.shared.expel_if_due(worker)),
            Phase::Over { .. } => {}
        }
    }

    pub(super) fn evict_overdue(&mut self) {
        for (worker, silent_s) in self.shared.leases.overdue(self.shared.now_s) {
            let lost = self.shared.evict(worker, silent_s);
            match &mut self.phase {
                Phase::Collecting(_) => {
                    self.collect(|collecting, shared| collecting.worker_evicted(shared, worker, lost));
                }
                Phase::Committing(committing) => {
                    if let Some(hung) = lost.first() {
                        committing.failed(&self.shared, worker, hung.lease.tasks);
                    }
                }
                Phase::Between(_) | Phase::Over { .. } => {}
            }
            if matches!(self.phase, Phase::Over { .. }) {
                return;
            }
        }
    }
}

impl Shared {
    /// Records that a worker failed, which took it `lost_s` seconds, and lets it rest. Returns `false` if it rests already. `uncomputable`
    /// is `true` if its tasks are to blame, as in [`Report::Failed`](super::Report::Failed).
    pub(super) fn strike(&mut self, worker: WorkerId, lost_s: f64, uncomputable: bool) -> bool {
        self.policy.failed(worker, lost_s);
        self.failures.add(self.now_s, &self.config, uncomputable);
        let struck = self.roster.strike(self.now_s, worker, lost_s, self.config.rest_s);
        self.effects.extend(struck.map(|(rest_s, strikes)| Effect::Rest { worker, rest_s, strikes }));
        struck.is_some()
    }

    /// Records a violation of the protocol by a present worker; each one counts.
    pub(super) fn violation(&mut self, worker: WorkerId) {
        match self.roster.strike(self.now_s, worker, 0.0, self.config.rest_s) {
            Some((rest_s, strikes)) => self.effects.push(Effect::Rest { worker, rest_s, strikes }),
            None => self.roster.strike_again(worker),
        }
    }

    /// Expels a worker that failed too often. Returns its leases, which are lost, if it was expelled.
    pub(super) fn expel_if_due(&mut self, worker: WorkerId) -> Option<Vec<EndedLease>> {
        let (strikes, mismatches) = (self.roster.strikes_of(worker), self.roster.mismatches_of(worker));
        let is_due = self.config.expel_after.is_some_and(|most| strikes >= most || mismatches >= MAX_MISMATCHES);
        (is_due && self.roster.present.contains(worker)).then(|| {
            self.effects.push(Effect::Expel { worker, strikes, mismatches });
            self.lose(worker)
        })
    }

    /// Evicts a worker that missed its deadline. Returns its leases; it hung on the first of them.
    pub(super) fn evict(&mut self, worker: WorkerId, silent_s: f64) -> Vec<EndedLease> {
        self.effects.push(Effect::Evict { worker, silent_s });
        self.strike(worker, silent_s, false);
        self.expel_if_due(worker).unwrap_or_else(|| self.lose(worker))
    }
}
