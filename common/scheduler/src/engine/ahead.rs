//! The next iteration of local steps, which begins before the current one is over.
//!
//! Once all tasks of the current iteration are handed out, workers that have done theirs get leases of the next one. They take these steps
//! from where they are, since the parameters of that iteration do not exist yet. Until the driver lets it begin, the iteration ahead asks for
//! no vectors, and is not complete. If tasks of the current iteration must be computed again, the iteration ahead is given up: its leases are
//! cancelled, and it is decided on anew.

use std::ops::ControlFlow;

use super::phase::{Collecting, CollectingEnd, Flow, Phase};
use super::{EmployedWorkers, EndedLease, Engine, Shared};
use ata_types::{Iteration, TaskOutcome, WorkerId};

impl Engine {
    /// Begins the iteration ahead, if workers can go on with it, and hands out what it lost.
    pub(super) fn go_on(&mut self) {
        if !self.shared.config.takes_local_steps || !self.shared.config.overlap {
            return;
        }
        if let Phase::Collecting(collecting) = &mut self.phase
            && self.shared.ahead.is_none()
            && collecting.may_go_on(&self.shared)
            && let Some(ahead) = self.shared.decide_ahead(collecting)
        {
            self.shared.ahead = Some(Box::new(ahead));
            self.ahead(Collecting::hand_out);
        }
        if self.shared.ahead.as_ref().is_some_and(|ahead| ahead.has_orphans()) {
            self.ahead(Collecting::recover);
        }
    }

    /// Lets the iteration ahead handle something, if there is one.
    pub(super) fn ahead(&mut self, handle: impl FnOnce(&mut Collecting, &mut Shared) -> Flow) {
        let Some(mut ahead) = self.shared.ahead.take() else { return };
        match handle(&mut ahead, &mut self.shared) {
            ControlFlow::Break(CollectingEnd::Abort(reason)) => {
                self.phase = Phase::abort(&mut self.shared, self.phase.next_iteration(), reason);
            }
            // That it is complete counts once it begins.
            ControlFlow::Break(CollectingEnd::Complete) | ControlFlow::Continue(()) => self.shared.ahead = Some(ahead),
        }
    }
}

impl Shared {
    pub(super) fn is_ahead(&self, iteration: Iteration) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| ahead.number == iteration)
    }

    /// Decides on the iteration after the current one. A decision that cannot be carried out is reported when the iteration begins.
    fn decide_ahead(&mut self, current: &Collecting) -> Option<Collecting> {
        let number = current.number.next();
        let position = self.config.position(number, self.ledger.tasks_applied + current.tasks());
        if self.config.is_over(position) || self.roster.present.is_empty() {
            return None;
        }
        Collecting::decide(self, number, position).ok()
    }

    /// Has a lease computed again that ended without a result, if it is one of the iteration ahead. Otherwise, returns it.
    pub(super) fn recompute_ahead(&mut self, worker: WorkerId, ended: EndedLease, blamed: bool) -> Option<EndedLease> {
        let Some(mut ahead) = self.ahead.take_if(|ahead| ahead.number == ended.lease.iteration) else {
            return Some(ended);
        };
        ahead.withdraw(self, worker, ended.lease.id);
        ahead.recompute(self, worker, ended, blamed);
        self.ahead = Some(ahead);
        None
    }

    /// Has the iteration ahead compute again what it loses with a worker. Returns the other lost leases.
    pub(super) fn lose_ahead(&mut self, worker: WorkerId, mut lost: Vec<EndedLease>) -> Vec<EndedLease> {
        if let Some(mut ahead) = self.ahead.take() {
            let of_it = lost.extract_if(.., |ended| ended.lease.iteration == ahead.number).collect();
            ahead.worker_left(self, worker, of_it);
            self.ahead = Some(ahead);
        }
        lost
    }

    pub(super) fn give_up_ahead(&mut self) {
        let Some(ahead) = self.ahead.take() else { return };
        for result in ahead.results() {
            self.discard(result, TaskOutcome::Ignored);
        }
        self.cancel_all(ahead.number, &ahead.employed);
    }

    /// Cancels the leases that workers hold of an iteration.
    pub(super) fn cancel_all(&mut self, iteration: Iteration, employed: &EmployedWorkers) {
        for &worker in employed.workers() {
            for ended in self.leases.revoke_of(self.now_s, worker, iteration) {
                self.cancel(worker, &ended);
            }
            self.release_or_time(worker);
        }
    }
}
