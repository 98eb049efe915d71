//! Room for the gradients that arrive, shared fairly among the workers.
//!
//! Gradients that find no room wait. Room goes to the worker that has the least of it, and among those to the one that waits
//! longest. A worker that sends too slowly while others wait gives way.

use std::collections::VecDeque;
use std::sync::Arc;

use ata_record::RefusalKind;
use ata_scheduler::{LeaseId, WorkerId};
use ata_wire::SessionToken;
use ata_wire::limits::{LEAST_UPLOAD_BYTES_PER_S, MAX_UPLOADS, UPLOAD_PATIENCE};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use crate::owner::NotAnnounced;
use crate::session::Presence;

/// Whether a gradient may arrive, once there is room for it.
pub(crate) type Reply = oneshot::Sender<Result<Room, NotAnnounced>>;

/// Why a gradient fails whose worker stops sending it.
pub(crate) const GAVE_UP: &str = "the worker gave up sending its gradient";

/// Why a gradient fails that gives way.
pub(crate) const GAVE_WAY: &str = "its gradient arrived too slowly while those of others waited for room";

/// All of the room.
#[derive(Debug)]
pub(crate) struct Uploads {
    room: Arc<Semaphore>,
    /// Gradients of one worker that may have room at a time: half of it, so that one worker never keeps all others waiting.
    share: usize,
    freed: Arc<Notify>,
    /// In the order in which they came.
    waiting: VecDeque<Waiting>,
}

/// A gradient that waits for room.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) session: SessionToken,
    pub(crate) worker: WorkerId,
    pub(crate) lease: LeaseId,
    pub(crate) reply: Reply,
    /// Whether the engine knows that its worker waits.
    is_told: bool,
}

impl Uploads {
    /// Room for so many gradients.
    pub(crate) fn new(room: usize) -> Self {
        let share = (room / 2).max(1);
        Self { room: Arc::new(Semaphore::new(room)), share, freed: Arc::default(), waiting: VecDeque::new() }
    }

    /// Notified when there is more room.
    pub(crate) fn freed(&self) -> Arc<Notify> {
        self.freed.clone()
    }

    /// Has a gradient wait.
    pub(crate) fn wait(&mut self, session: SessionToken, worker: WorkerId, lease: LeaseId, reply: Reply) {
        self.waiting.push_back(Waiting { session, worker, lease, reply, is_told: false });
    }

    /// Whether gradients of another session wait.
    pub(crate) fn others_wait(&self, session: SessionToken) -> bool {
        self.waiting.iter().any(|waiting| waiting.session != session)
    }

    /// Whether any gradient of a worker waits.
    pub(crate) fn waits(&self, worker: WorkerId) -> bool {
        self.waiting.iter().any(|waiting| waiting.worker == worker)
    }

    /// The workers that wait since this was asked last.
    pub(crate) fn newly_waiting(&mut self) -> Vec<WorkerId> {
        let new = |waiting: &mut Waiting| (!std::mem::replace(&mut waiting.is_told, true)).then_some(waiting.worker);
        self.waiting.iter_mut().filter_map(new).collect()
    }

    /// The gradient whose turn it is, and a place for it, if there is one. `held` tells how much room a session has.
    pub(crate) fn next(&mut self, held: impl Fn(SessionToken) -> usize) -> Option<(Waiting, Place)> {
        if self.waiting.is_empty() {
            return None;
        }
        let permit = self.room.clone().try_acquire_owned().ok()?;
        let candidates = self.waiting.iter().enumerate().map(|(at, waiting)| (held(waiting.session), at));
        let (_, at) = candidates.filter(|(held, _)| *held < self.share).min()?;
        Some((self.waiting.remove(at)?, Place { permit: Some(permit), freed: self.freed.clone() }))
    }

    /// Takes back the gradient of a lease, if it waits.
    pub(crate) fn take(&mut self, lease: LeaseId) -> Option<Waiting> {
        let at = self.waiting.iter().position(|waiting| waiting.lease == lease)?;
        self.waiting.remove(at)
    }

    /// Leases whose workers no longer wait to send their gradients, though nobody has told them to stop.
    pub(crate) fn given_up(&self) -> Vec<(SessionToken, LeaseId)> {
        let given_up = self.waiting.iter().filter(|waiting| waiting.reply.is_closed());
        given_up.map(|waiting| (waiting.session, waiting.lease)).collect()
    }
}

/// Room for one gradient.
#[derive(Debug)]
pub(crate) struct Place {
    permit: Option<OwnedSemaphorePermit>,
    freed: Arc<Notify>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.permit = None;
        self.freed.notify_one();
    }
}

/// What a gradient that arrives takes and needs, until the owner has it.
#[derive(Debug)]
pub(crate) struct Room {
    /// Of the session that it belongs to.
    pub(crate) presence: Presence,
    /// Cancelled if the worker gives way.
    pub(crate) gives_way: CancellationToken,
    /// Counts the room of the session.
    _held: Arc<()>,
    _place: Place,
}

/// The gradients that a session is sending.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// Leases whose gradients wait or arrive.
    leases: Vec<LeaseId>,
    /// Shared with each [`Room`] that the session has.
    held: Arc<()>,
    gives_way: CancellationToken,
    /// When its rate was looked at, and how many bytes it had sent by then; `None` if nobody would gain by it.
    looked: Option<(f64, u64)>,
}

impl Sending {
    /// Records that the worker is about to send the gradient of a lease that it holds; an error says why it must not.
    pub(crate) fn begin(&mut self, lease: LeaseId) -> Result<(), (RefusalKind, &'static str)> {
        if self.leases.contains(&lease) {
            return Err((RefusalKind::Replayed, "its gradient is being sent already"));
        }
        // A lease that failed in transit leaves the list, so an honest worker stays below this.
        if self.leases.len() >= 2 * MAX_UPLOADS {
            return Err((RefusalKind::TooMany, "the worker is sending too many gradients at a time"));
        }
        self.leases.push(lease);
        Ok(())
    }

    /// Records that a lease ended.
    pub(crate) fn ended(&mut self, lease: LeaseId) {
        self.leases.retain(|sending| *sending != lease);
    }

    /// How many gradients have room.
    pub(crate) fn held(&self) -> usize {
        Arc::strong_count(&self.held) - 1
    }

    /// Room for one more.
    pub(crate) fn room(&self, presence: Presence, place: Place) -> Room {
        Room { presence, gives_way: self.gives_way.clone(), _held: self.held.clone(), _place: place }
    }

    /// The bytes per second that arrive, if they are too few for too long while `others_wait`. `arrived` counts the bytes of
    /// the session.
    pub(crate) fn too_slow(&mut self, now_s: f64, arrived: u64, others_wait: bool) -> Option<f64> {
        if !others_wait || self.held() == 0 {
            self.looked = None;
            return None;
        }
        let (since_s, before) = *self.looked.get_or_insert((now_s, arrived));
        let passed_s = now_s - since_s;
        if passed_s < UPLOAD_PATIENCE.as_secs_f64() {
            return None;
        }
        self.looked = Some((now_s, arrived));
        let rate = (arrived - before) as f64 / passed_s;
        (rate < LEAST_UPLOAD_BYTES_PER_S as f64).then_some(rate)
    }

    /// Ends what arrives, so that others have room.
    pub(crate) fn give_way(&mut self) {
        std::mem::take(&mut self.gives_way).cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionToken = SessionToken([1; 16]);
    const B: SessionToken = SessionToken([2; 16]);
    const C: SessionToken = SessionToken([3; 16]);

    fn wait(uploads: &mut Uploads, session: SessionToken, lease: u64) -> oneshot::Receiver<Result<Room, NotAnnounced>> {
        let (reply, answer) = oneshot::channel();
        uploads.wait(session, WorkerId::from_slot(session.0[0].into()), LeaseId(lease), reply);
        answer
    }

    /// Gives out all room that there is; returns the leases that got some, in order.
    fn fill(uploads: &mut Uploads, given: &mut Vec<(SessionToken, Place)>) -> Vec<u64> {
        let mut leases = Vec::new();
        while let Some((waiting, place)) =
            uploads.next(|session| given.iter().filter(|(holder, _)| *holder == session).count())
        {
            leases.push(waiting.lease.0);
            given.push((waiting.session, place));
        }
        leases
    }

    #[test]
    fn room_goes_to_those_that_have_least() {
        let (mut uploads, mut given) = (Uploads::new(6), Vec::new());
        let _answers: Vec<_> = (1..=4).map(|lease| wait(&mut uploads, A, lease)).collect();
        assert_eq!(fill(&mut uploads, &mut given), [1, 2, 3], "half of it is for others");
        let _others = [wait(&mut uploads, B, 5), wait(&mut uploads, B, 6), wait(&mut uploads, C, 7)];
        assert_eq!(fill(&mut uploads, &mut given), [5, 7, 6]);
        given.remove(0);
        let _late = wait(&mut uploads, C, 8);
        assert_eq!(fill(&mut uploads, &mut given), [8], "it has less than the one that waits longer");
        given.clear();
        assert_eq!(fill(&mut uploads, &mut given), [4]);
    }

    #[test]
    fn with_room_for_two_no_worker_has_both() {
        let (mut uploads, mut given) = (Uploads::new(2), Vec::new());
        let _answers = [wait(&mut uploads, A, 1), wait(&mut uploads, A, 2)];
        assert_eq!(fill(&mut uploads, &mut given), [1]);
        assert!(uploads.waits(WorkerId::from_slot(1)) && !uploads.others_wait(A) && uploads.others_wait(B));
        assert_eq!(uploads.newly_waiting(), [WorkerId::from_slot(1)]);
        assert_eq!(uploads.newly_waiting(), []);
        assert_eq!(uploads.take(LeaseId(2)).map(|waiting| waiting.lease), Some(LeaseId(2)));
        assert!(uploads.take(LeaseId(2)).is_none());
    }

    #[test]
    fn who_gave_up_is_known() {
        let mut uploads = Uploads::new(2);
        let (_kept, dropped) = (wait(&mut uploads, A, 1), wait(&mut uploads, B, 2));
        drop(dropped);
        assert_eq!(uploads.given_up(), [(B, LeaseId(2))]);
    }

    #[test]
    fn only_who_is_slow_while_others_wait_gives_way() {
        let mut sending = Sending::default();
        let patience_s = UPLOAD_PATIENCE.as_secs_f64();
        assert_eq!(sending.too_slow(0.0, 0, true), None);
        assert_eq!(sending.too_slow(9.0 * patience_s, 0, true), None, "it has no room that others could use");
        let place = Place { permit: None, freed: Arc::default() };
        let room = sending.room(Presence::new(), place);
        let enough = LEAST_UPLOAD_BYTES_PER_S * UPLOAD_PATIENCE.as_secs();
        let at = |windows: f64| 100.0 * patience_s + windows * patience_s;
        for (windows, arrived, others_wait, expected) in [
            (0.0, 0, true, None),
            (0.9, 0, true, None),
            (1.0, enough, true, None),
            (2.0, 2 * enough - 1, true, Some((enough - 1) as f64 / patience_s)),
            (2.9, 2 * enough, false, None),
            (3.0, 2 * enough, true, None),
            (3.9, 2 * enough, true, None),
            (4.0, 2 * enough, true, Some(0.0)),
        ] {
            assert_eq!(sending.too_slow(at(windows), arrived, others_wait), expected, "{windows}");
        }
        sending.give_way();
        assert!(room.gives_way.is_cancelled());
        drop(room);
        assert_eq!(sending.held(), 0);
        let place = Place { permit: None, freed: Arc::default() };
        assert!(!sending.room(Presence::new(), place).gives_way.is_cancelled(), "its next one is a new chance");
    }
}
