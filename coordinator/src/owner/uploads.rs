//! Gradients that are about to arrive: which of them may, and when.
//!
//! A gradient waits for room in the memory of the coordinator. If others have all of it, that is no fault of its worker: the
//! engine is told, and the deadline of the worker stands still meanwhile.

use ata_record::RefusalKind;
use ata_types::{Iteration, LeaseId, WorkerId};
use ata_wire::{Peer, SessionToken};

use super::Owner;
use super::command::{NotAnnounced, answer};
use crate::uploads::{GAVE_WAY, Reply, Waiting};

impl Owner {
    /// A worker is about to send a gradient. It may if it holds that lease and does not send its gradient yet, as soon as there
    /// is room.
    pub(super) fn announced(
        &mut self,
        token: SessionToken,
        lease: LeaseId,
        iteration: Iteration,
        peer: &Peer,
        reply: Reply,
    ) {
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
        iteration: Iteration,
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
        while let Some((Waiting { session, reply, .. }, place)) = self.uploads.next() {
            let room = self.sessions.of_token(session).map(|session| session.room(place));
            answer(reply, room.map_err(NotAnnounced::NoSession));
        }
        self.tell_who_waits();
    }

    /// A lease ended: its gradient need not wait any more.
    pub(super) fn need_not_wait(&mut self, lease: LeaseId) {
        if let Some(Waiting { reply, .. }) = self.uploads.take(lease) {
            answer(
                reply,
                Err(NotAnnounced::NotHeld { reason: format!("lease {lease} ended while its gradient waited") }),
            );
            self.tell_who_waits();
        }
    }

    fn tell_who_waits(&mut self) {
        for event in self.uploads.news() {
            self.tell(event);
        }
    }

    /// Looks at those that keep others waiting by sending too slowly. One gives way at a time, which may be all that the others
    /// need.
    pub(super) fn look_at_uploads(&mut self) {
        let traffic = |session| self.uploads.traffic_held_up_by(session);
        if let Some(slow) = self.sessions.slowest_sender(self.now_s, traffic) {
            tracing::warn!(worker = %slow.worker, name = %slow.name, "{}", GAVE_WAY);
            slow.sending.give_way();
        }
    }
}
