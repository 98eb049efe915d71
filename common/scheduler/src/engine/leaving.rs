//! Workers that leave: they get no more work, finish what they have begun, and go once it is delivered.

use super::phase::Phase;
use super::{Effect, Engine, Refusal};
use ata_types::{LeaseId, WorkerId};

impl Engine {
    pub(super) fn begin_to_leave(&mut self, worker: WorkerId) {
        if self.shared.roster.present.contains(worker) {
            self.shared.roster.begin_to_leave(worker);
            self.collect(|collecting, shared| {
                collecting.left.insert(worker);
                collecting.recover(shared)
            });
            if let Some(ahead) = &mut self.shared.ahead {
                ahead.left.insert(worker);
            }
        }
    }

    pub(super) fn given_back(&mut self, worker: WorkerId, lease: LeaseId) -> Result<(), Refusal> {
        let ended = self.shared.give_back(worker, lease)?;
        let Some(ended) = self.shared.recompute_ahead(worker, ended, false) else { return Ok(()) };
        self.collect(|collecting, shared| {
            collecting.withdraw(shared, worker, lease);
            collecting.recompute(shared, worker, ended, false);
            collecting.recover(shared)
        });
        Ok(())
    }

    /// Lets the leaving workers go from which the run needs nothing more.
    pub(super) fn let_leave(&mut self) {
        let Self { shared, phase } = &mut *self;
        let phase = &*phase;
        let owes = |worker: &WorkerId| {
            let collects = matches!(phase, Phase::Collecting(collecting) if collecting.awaits(*worker));
            let collects_next = || shared.ahead.as_ref().is_some_and(|ahead| ahead.awaits(*worker));
            collects || collects_next() || !shared.leases.is_free(*worker) || shared.is_sending(*worker)
        };
        let free: Vec<WorkerId> = shared.roster.leaving.iter().filter(|worker| !owes(worker)).collect();
        for worker in free {
            shared.roster.leave(worker);
            shared.effects.push(Effect::Left { worker });
        }
    }
}
