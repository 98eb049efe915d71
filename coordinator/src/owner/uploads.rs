//! Gradients that are about to arrive: which of them may, and when.
//!
//! A gradient waits for room in the memory of the coordinator, which is no fault of its worker: the engine is told, and the
//! deadline of the worker stands still meanwhile.

use ata_record::RefusalKind;
use ata_scheduler::{Event, LeaseId, WorkerId};
use ata_wire::{Peer, SessionToken};

use super::Owner;
use super::command::{NotAnnounced, answer};
use crate::uploads::{GAVE_UP, GAVE_WAY, Reply, Waiting};

impl Owner {
    /// A worker is about to send a gradient. It may if it holds that lease and does not send its gradient yet, as soon as there
    /// is room.
    pub(super) fn announced(&mut self, token: SessionToken, lease: LeaseId, iteration: u64, peer: &Peer, reply: Reply) {
        self.heard(token);
        match self.may_send(token, lease, iteration, peer) {
            Ok(worker) => self.uploads.wait(token, worker, lease, reply),
            Err(refused) => answer(reply, Err(refused)),
        }
    }

    fn may_send(
        &mut self,
        token: SessionToken,
        lease: LeaseId,
        iteration: u64,
        peer: &Peer,
    ) -> Result<WorkerId, NotAnnounced> {
        let session = self.sessions.of_token(token).map_err(NotAnnounced::NoSession)?;
        session.admit(peer);
        let worker = session.worker;
        let announced = match self.engine.lease(worker, lease) {
            None => Err(self.why_not_held(worker, lease)),
            Some(held) if held.iteration != iteration => {
                let reason = format!("lease {lease} is of iteration {}, not {iteration}", held.iteration);
                Err((RefusalKind::Foreign, reason))
            }
            Some(_) => session.sending.begin(lease).map_err(|(kind, why)| (kind, format!("lease {lease}: {why}"))),
        };
        announced.map(|()| worker).map_err(|(kind, reason)| {
            self.refuse(worker, kind, &reason);
            NotAnnounced::NotHeld { reason }
        })
    }

    /// Gives the room that there is to the gradients whose turn it is.
    pub(super) fn make_room(&mut self) {
        while let Some((waiting, place)) = self.uploads.next(|session| self.sessions.room_held(session)) {
            let Waiting { session, worker, lease, reply, .. } = waiting;
            let room = self.sessions.of_token(session).map(|session| session.room(place));
            let is_gone = reply.send(room.map_err(NotAnnounced::NoSession)).is_err();
            self.goes_on(worker);
            if is_gone {
                self.lease_failed(session, lease, RefusalKind::NotReceived, GAVE_UP);
            }
        }
        for worker in self.uploads.newly_waiting() {
            self.tell(Event::WorkerHeldUp { worker });
        }
    }

    /// A lease ended: its gradient need not wait any more.
    pub(super) fn need_not_wait(&mut self, lease: LeaseId) {
        if let Some(Waiting { worker, reply, .. }) = self.uploads.take(lease) {
            answer(
                reply,
                Err(NotAnnounced::NotHeld { reason: format!("lease {lease} ended while its gradient waited") }),
            );
            self.goes_on(worker);
        }
    }

    fn goes_on(&mut self, worker: WorkerId) {
        if !self.uploads.waits(worker) {
            self.tell(Event::WorkerGoesOn { worker });
        }
    }

    /// Looks at those that wait in vain: workers that gave up, and those that others keep waiting by sending too slowly. Of these,
    /// one gives way at a time, which may be all that the others need.
    pub(super) fn look_at_uploads(&mut self) {
        for (session, lease) in self.uploads.given_up() {
            self.lease_failed(session, lease, RefusalKind::NotReceived, GAVE_UP);
        }
        if let Some(slow) = self.sessions.slowest_sender(self.now_s, |session| self.uploads.others_wait(session)) {
            tracing::warn!(worker = %slow.worker, name = %slow.name, "{}", GAVE_WAY);
            slow.sending.give_way();
        }
    }
}
