//! Room for the gradients that arrive, shared fairly among the workers.
//!
//! Gradients that find no room wait. Room goes to the worker that has the least of it, and among those to the one that waits
//! longest. A worker that sends too slowly while others wait gives way.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ata_record::RefusalKind;
use ata_scheduler::Event;
use ata_types::{LeaseId, WorkerId};
use ata_wire::SessionToken;
use ata_wire::limits::{LEAST_UPLOAD_BYTES_PER_S, LEAST_UPLOAD_SHARE, MAX_UPLOADS, UPLOAD_PATIENCE};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::owner::NotAnnounced;
use crate::session::Presence;

/// Whether a gradient may arrive, once there is room for it.
pub(crate) type Reply = oneshot::Sender<Result<Room, NotAnnounced>>;

/// Why a gradient fails whose worker stops sending it.
pub(crate) const GAVE_UP: &str = "the worker gave up sending its gradient";

/// Why a gradient fails that gives way.
pub(crate) const GAVE_WAY: &str = "its gradient arrived too slowly while those of others waited for room";

/// All of the room. The work per gradient is logarithmic in the number of sessions that wait.
#[derive(Debug)]
pub(crate) struct Uploads {
    /// Gradients for which there is room now.
    free: usize,
    /// Gradients of one worker that may have room at a time: half of it, so that one worker never keeps all others waiting.
    share: usize,
    /// Sessions of which gradients wait or have room.
    queues: HashMap<SessionToken, Queue>,
    /// Sessions that may get room, in the order in which they do.
    turns: BTreeMap<Turn, SessionToken>,
    /// Those that changed since the engine heard who is held up.
    changed: Vec<SessionToken>,
    /// The sessions of the gradients that wait.
    waiting: HashMap<LeaseId, SessionToken>,
    /// Gradients that were announced so far, which orders those that wait.
    announced: u64,
    /// Sessions that have room.
    senders: usize,
    /// How room comes back.
    returns: mpsc::UnboundedReceiver<SessionToken>,
    lender: Lender,
}

/// How much room a session has, and the order of the first of its gradients that wait: the least is next.
type Turn = (usize, u64);

/// The gradients of a session.
#[derive(Debug)]
struct Queue {
    worker: WorkerId,
    /// How many have room.
    held: usize,
    /// The others, in the order in which they were announced, each with its order among all.
    waiting: VecDeque<(u64, Waiting)>,
    /// Whether the engine was last told that its worker is held up.
    is_reported: bool,
}

/// A gradient that waits for room.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) session: SessionToken,
    pub(crate) lease: LeaseId,
    pub(crate) reply: Reply,
}

/// What arrives while gradients wait that could have a session's room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic {
    /// Bytes of all gradients so far.
    pub(crate) arrived: u64,
    /// Sessions that have room.
    pub(crate) senders: usize,
}

impl Queue {
    fn turn(&self, share: usize) -> Option<Turn> {
        let (order, _) = self.waiting.front()?;
        (self.held < share).then_some((self.held, *order))
    }

    /// Whether its worker can do nothing but wait for others. One that has room can send, whatever else of it waits.
    fn is_held_up(&self) -> bool {
        self.held == 0 && !self.waiting.is_empty()
    }
}

impl Uploads {
    /// Room for so many gradients.
    pub(crate) fn new(room: usize) -> Self {
        let (returned, returns) = mpsc::unbounded_channel();
        Self {
            free: room,
            share: (room / 2).max(1),
            queues: HashMap::new(),
            turns: BTreeMap::new(),
            changed: Vec::new(),
            waiting: HashMap::new(),
            announced: 0,
            senders: 0,
            returns,
            lender: Lender { returned, freed: Arc::default(), arrived: Arc::default() },
        }
    }

    /// Notified when there is more room.
    pub(crate) fn freed(&self) -> Arc<Notify> {
        self.lender.freed.clone()
    }

    /// Has a gradient wait.
    pub(crate) fn wait(&mut self, session: SessionToken, worker: WorkerId, lease: LeaseId, reply: Reply) {
        let none = || Queue { worker, held: 0, waiting: VecDeque::new(), is_reported: false };
        self.queues.entry(session).or_insert_with(none);
        self.waiting.insert(lease, session);
        self.announced += 1;
        let order = self.announced;
        self.change(session, |queue| queue.waiting.push_back((order, Waiting { session, lease, reply })));
    }

    /// The gradient whose turn it is, and a place for it, if there is one.
    pub(crate) fn next(&mut self) -> Option<(Waiting, Place)> {
        while let Ok(session) = self.returns.try_recv() {
            self.free += 1;
            self.change(session, |queue| queue.held -= 1);
        }
        if self.free == 0 {
            return None;
        }
        let session = *self.turns.first_key_value()?.1;
        let (_, waiting) = self.change(session, |queue| {
            queue.held += 1;
            queue.waiting.pop_front()
        })??;
        self.free -= 1;
        self.waiting.remove(&waiting.lease);
        Some((waiting, Place { session, lender: self.lender.clone() }))
    }

    /// Takes back the gradient of a lease, if it waits.
    pub(crate) fn take(&mut self, lease: LeaseId) -> Option<Waiting> {
        let session = self.waiting.remove(&lease)?;
        let (_, waiting) = self.change(session, |queue| {
            let at = queue.waiting.iter().position(|(_, waiting)| waiting.lease == lease)?;
            queue.waiting.remove(at)
        })??;
        Some(waiting)
    }

    /// What the engine does not know yet of the workers that are held up.
    pub(crate) fn news(&mut self) -> Vec<Event> {
        let mut news = Vec::new();
        for session in std::mem::take(&mut self.changed) {
            let Some(queue) = self.queues.get_mut(&session) else { continue };
            let (worker, is_held_up) = (queue.worker, queue.is_held_up());
            if std::mem::replace(&mut queue.is_reported, is_held_up) != is_held_up {
                news.push(if is_held_up { Event::UploadBlocked { worker } } else { Event::UploadResumed { worker } });
            }
            if queue.held == 0 && queue.waiting.is_empty() {
                self.queues.remove(&session);
            }
        }
        news
    }

    /// What arrives, if a session has room for which a gradient of another one waits.
    pub(crate) fn traffic_held_up_by(&self, session: SessionToken) -> Option<Traffic> {
        let queue = self.queues.get(&session)?;
        let others = self.turns.len() - usize::from(queue.turn(self.share).is_some());
        let arrived = self.lender.arrived.load(Ordering::Relaxed);
        (queue.held > 0 && others > 0).then_some(Traffic { arrived, senders: self.senders })
    }

    /// Changes the queue of a session, and its turn with it.
    fn change<T>(&mut self, session: SessionToken, change: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        let queue = self.queues.get_mut(&session)?;
        if let Some(turn) = queue.turn(self.share) {
            self.turns.remove(&turn);
        }
        self.senders -= usize::from(queue.held > 0);
        let changed = change(queue);
        self.senders += usize::from(queue.held > 0);
        if let Some(turn) = queue.turn(self.share) {
            self.turns.insert(turn, session);
        }
        self.changed.push(session);
        Some(changed)
    }
}

/// Shared by all places.
#[derive(Clone, Debug)]
struct Lender {
    /// Takes places back: the owner learns whose they were.
    returned: mpsc::UnboundedSender<SessionToken>,
    freed: Arc<Notify>,
    /// Bytes of all gradients so far.
    arrived: Arc<AtomicU64>,
}

/// Room for one gradient.
#[derive(Debug)]
pub(crate) struct Place {
    session: SessionToken,
    lender: Lender,
}

impl Drop for Place {
    fn drop(&mut self) {
        // Without an owner, the run is over.
        self.lender.returned.send(self.session).unwrap_or(());
        self.lender.freed.notify_one();
    }
}

/// What a gradient that arrives takes and needs, until the owner has it.
#[derive(Debug)]
pub(crate) struct Room {
    /// Of the session that it belongs to.
    pub(crate) presence: Presence,
    /// Cancelled if the worker gives way.
    pub(crate) gives_way: CancellationToken,
    place: Place,
}

impl Room {
    /// Notes that so many bytes of the gradient have arrived.
    pub(crate) fn receive(&self, bytes: usize) {
        self.place.lender.arrived.fetch_add(bytes as u64, Ordering::Relaxed);
        self.presence.receive(bytes);
    }
}

/// The gradients that a session is sending.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// Leases whose gradients wait or arrive.
    leases: Vec<LeaseId>,
    gives_way: CancellationToken,
    /// When its rate was looked at, and what had arrived by then; `None` if nobody would gain by it.
    looked: Option<Looked>,
}

#[derive(Clone, Copy, Debug)]
struct Looked {
    at_s: f64,
    /// Bytes of the session.
    arrived: u64,
    /// Bytes of all sessions.
    of_all: u64,
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

    /// Room for one more.
    pub(crate) fn room(&self, presence: Presence, place: Place) -> Room {
        Room { presence, gives_way: self.gives_way.clone(), place }
    }

    /// The bytes per second that arrive, if they are too few for too long. `arrived` counts those of the session; `traffic` is
    /// what arrives of all gradients, if some wait for its room.
    pub(crate) fn too_slow(&mut self, now_s: f64, arrived: u64, traffic: Option<Traffic>) -> Option<f64> {
        let Some(traffic) = traffic else {
            self.looked = None;
            return None;
        };
        let now = Looked { at_s: now_s, arrived, of_all: traffic.arrived };
        let before = *self.looked.get_or_insert(now);
        let passed_s = now.at_s - before.at_s;
        if passed_s < UPLOAD_PATIENCE.as_secs_f64() {
            return None;
        }
        self.looked = Some(now);
        let rate = (now.arrived - before.arrived) as f64 / passed_s;
        let mean_rate = (now.of_all - before.of_all) as f64 / passed_s / traffic.senders as f64;
        let is_slow = rate < LEAST_UPLOAD_BYTES_PER_S as f64 && rate < LEAST_UPLOAD_SHARE * mean_rate;
        is_slow.then_some(rate)
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
        uploads.wait(session, worker(session), LeaseId(lease), reply);
        answer
    }

    /// Gives out all room that there is; returns the leases that got some, in order.
    fn fill(uploads: &mut Uploads, given: &mut Vec<Place>) -> Vec<u64> {
        let mut leases = Vec::new();
        while let Some((waiting, place)) = uploads.next() {
            leases.push(waiting.lease.0);
            given.push(place);
        }
        leases
    }

    fn worker(session: SessionToken) -> WorkerId {
        WorkerId::from_slot(session.0[0].into())
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
        assert_eq!(uploads.take(LeaseId(2)).map(|waiting| waiting.lease), Some(LeaseId(2)));
        assert!(uploads.take(LeaseId(2)).is_none());
    }

    /// What the engine is told, as pairs of a worker and whether it is held up.
    fn news(uploads: &mut Uploads) -> Vec<(WorkerId, bool)> {
        let plain = |event| match event {
            Event::UploadBlocked { worker } => (worker, true),
            Event::UploadResumed { worker } => (worker, false),
            other => panic!("{other:?}"),
        };
        uploads.news().into_iter().map(plain).collect()
    }

    #[test]
    fn only_those_without_any_room_are_held_up() {
        let (mut uploads, mut given) = (Uploads::new(2), Vec::new());
        let _answers =
            [(A, 1), (A, 2), (B, 3), (C, 4), (C, 5)].map(|(session, lease)| wait(&mut uploads, session, lease));
        assert_eq!(fill(&mut uploads, &mut given), [1, 3]);
        assert_eq!(news(&mut uploads), [(worker(C), true)], "the first one waits for itself");
        assert_eq!(news(&mut uploads), []);
        given.remove(0);
        assert_eq!(fill(&mut uploads, &mut given), [2], "it waits longest");
        assert_eq!(news(&mut uploads), []);
        let _more = wait(&mut uploads, B, 6);
        given.remove(0);
        assert_eq!(fill(&mut uploads, &mut given), [4]);
        assert_eq!(news(&mut uploads), [(worker(B), true), (worker(C), false)]);
        uploads.take(LeaseId(6));
        assert_eq!(news(&mut uploads), [(worker(B), false)]);
        uploads.take(LeaseId(5));
        given.clear();
        assert!(fill(&mut uploads, &mut given).is_empty() && news(&mut uploads).is_empty());
        assert!(uploads.queues.is_empty() && uploads.turns.is_empty() && uploads.waiting.is_empty());
        assert_eq!((uploads.free, uploads.senders), (2, 0));
    }

    #[test]
    fn a_session_is_in_the_way_if_another_one_could_have_its_room() {
        let (mut uploads, mut given) = (Uploads::new(2), Vec::new());
        let _answers = [(A, 1), (A, 2), (B, 3), (B, 4)].map(|(session, lease)| wait(&mut uploads, session, lease));
        fill(&mut uploads, &mut given);
        let senders = |uploads: &Uploads| [A, B, C].map(|session| Some(uploads.traffic_held_up_by(session)?.senders));
        assert_eq!(senders(&uploads), [None; 3], "both have their share");
        let _other = wait(&mut uploads, C, 5);
        assert_eq!(senders(&uploads), [Some(2), Some(2), None]);
    }

    #[test]
    fn only_who_is_slow_while_others_wait_gives_way() {
        let (mut uploads, mut given) = (Uploads::new(1), Vec::new());
        let _answer = wait(&mut uploads, A, 1);
        fill(&mut uploads, &mut given);
        let mut sending = Sending::default();
        let room = sending.room(Presence::new(), given.remove(0));
        let (least, patience_s) = (LEAST_UPLOAD_BYTES_PER_S, UPLOAD_PATIENCE.as_secs());
        // Windows that have passed, bytes per second that arrived in the last one, those of all four sessions, if any wait.
        let (mut now, mut before) = ((0, 0), 0.0);
        for (windows, rate, of_all, expected) in [
            (0.0, 0, Some(0), false),
            (0.9, least, Some(99 * least), false),
            (1.0, least, Some(99 * least), false),
            (2.0, least - 1, Some(99 * least), true),
            (2.9, 0, None, false),
            (3.0, 0, Some(99 * least), false),
            (3.9, 0, Some(99 * least), false),
            (4.0, 0, Some(99 * least), true),
            // It is not slower than the others by much, or nothing arrives at all.
            (5.0, least / 16, Some(least), false),
            (6.0, least / 16 - 1, Some(least), true),
            (7.0, 0, Some(0), false),
        ] {
            let passed_s = ((windows - before) * patience_s as f64).round() as u64;
            before = windows;
            now = (now.0 + rate * passed_s, now.1 + of_all.unwrap_or(0) * passed_s);
            let traffic = of_all.map(|_| Traffic { arrived: now.1, senders: 4 });
            let slow = sending.too_slow(windows * patience_s as f64, now.0, traffic);
            assert_eq!(slow.is_some(), expected, "{windows}: {slow:?}");
        }
        sending.give_way();
        assert!(room.gives_way.is_cancelled());
        assert!(!sending.room(Presence::new(), room.place).gives_way.is_cancelled(), "its next one is a new chance");
    }

    /// There is one place for many. If each that is lent took a look at all that wait, this would take a minute.
    #[test]
    fn room_is_given_in_a_moment_however_many_wait() {
        let began = std::time::Instant::now();
        let mut uploads = Uploads::new(1);
        let session = |at: u64| SessionToken(u128::from(at).to_le_bytes());
        let waiting = 60_000;
        let _answers: Vec<_> = (0..waiting).map(|at| wait(&mut uploads, session(at), at)).collect();
        for at in 0..waiting {
            let (given, place) = uploads.next().unwrap();
            assert_eq!(given.lease, LeaseId(at));
            assert_eq!(uploads.traffic_held_up_by(given.session).is_some(), at + 1 < waiting);
            uploads.news();
            drop(place);
        }
        assert!(began.elapsed() < std::time::Duration::from_secs(10), "{:?}", began.elapsed());
    }
}
