//! Memory for the gradients that arrive, shared fairly among the workers.
//!
//! Gradients that find no room wait. Room goes to the worker that has the least of it, and among equals to the one that waits
//! longest. If others have all of the room, that is no fault of a worker: the engine hears that it is blocked, and its deadline
//! stands still. A worker that sends too slowly while others wait gives way.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ata_learn::Units;
use ata_record::RefusalKind;
use ata_scheduler::Event;
use ata_types::{LeaseId, WorkerId};
use ata_wire::SessionToken;
use ata_wire::limits::{LEAST_UPLOAD_BYTES_PER_S, LEAST_UPLOAD_SHARE, MAX_UPLOADS, UPLOAD_GUARD_WINDOW};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::sessions::Presence;

/// Answers a worker that is about to send a gradient, once there is room for it.
pub(crate) type Reply = oneshot::Sender<Result<Room, UploadRefusal>>;

/// Why a gradient must not be sent.
#[derive(Debug)]
pub(crate) enum UploadRefusal {
    /// There is no such session.
    NoSession(Status),
    /// The gradient would not count.
    NotHeld { reason: String },
}

/// The reason of a failure whose worker stops sending its gradient.
pub(crate) const GAVE_UP: &str = "the worker gave up sending its gradient";

/// The reason of a failure whose gradient gives way.
pub(crate) const GAVE_WAY: &str = "its gradient arrived too slowly while those of others waited for room";

/// The queue of the gradients that wait for room. The work per gradient is logarithmic in the number of sessions that wait.
#[derive(Debug)]
pub(crate) struct Uploads {
    /// Gradients for which there is room now.
    free: usize,
    /// Gradients of one worker that may have room at a time: half of all, so that one worker never makes all others wait.
    share: usize,
    /// The sessions whose gradients wait or have room.
    queues: HashMap<SessionToken, Queue>,
    /// The sessions that may get room, in the order in which they do.
    turns: BTreeMap<Turn, SessionToken>,
    /// The sessions that changed since the last [`Uploads::blocked_changes`].
    changed: Vec<SessionToken>,
    /// The sessions of the gradients that wait.
    waiting: HashMap<LeaseId, SessionToken>,
    /// The number of gradients that were announced so far, which orders those that wait.
    announced: u64,
    /// The number of sessions that have room.
    senders: usize,
    /// Receives room that is free again.
    returns: mpsc::UnboundedReceiver<SessionToken>,
    lender: Lender,
}

/// How much room a session has, and the order of its first waiting gradient. The least is next.
type Turn = (usize, u64);

/// The gradients of a session.
#[derive(Debug)]
struct Queue {
    worker: WorkerId,
    /// How many have room.
    held: usize,
    /// Those that wait, in the order in which they were announced, each with its order among all.
    waiting: VecDeque<(u64, WaitingUpload)>,
    /// Whether the engine knows its worker as blocked.
    is_reported: bool,
}

/// A gradient that waits for room.
#[derive(Debug)]
pub(crate) struct WaitingUpload {
    pub(crate) session: SessionToken,
    pub(crate) lease: LeaseId,
    pub(crate) units: Units,
    pub(crate) reply: Reply,
}

/// The traffic of all gradients, while some wait that could have a session's room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic {
    /// Bytes of all gradients so far.
    pub(crate) arrived: u64,
    /// The number of sessions that have room.
    pub(crate) senders: usize,
}

impl Queue {
    fn turn(&self, share: usize) -> Option<Turn> {
        let (order, _) = self.waiting.front()?;
        (self.held < share).then_some((self.held, *order))
    }

    /// Whether its worker can only wait for others. A worker that has any room can send.
    fn is_blocked(&self) -> bool {
        self.held == 0 && !self.waiting.is_empty()
    }
}

impl Uploads {
    /// A queue for this much room, in gradients.
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

    /// Notified whenever room becomes free.
    pub(crate) fn freed(&self) -> Arc<Notify> {
        self.lender.freed.clone()
    }

    /// Adds a gradient to the queue.
    pub(crate) fn wait(&mut self, session: SessionToken, worker: WorkerId, lease: LeaseId, units: Units, reply: Reply) {
        let none = || Queue { worker, held: 0, waiting: VecDeque::new(), is_reported: false };
        self.queues.entry(session).or_insert_with(none);
        self.waiting.insert(lease, session);
        self.announced += 1;
        let order = self.announced;
        let waiting = WaitingUpload { session, lease, units, reply };
        self.change(session, |queue| queue.waiting.push_back((order, waiting)));
    }

    /// The workers of the gradients that wait, and their units.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (WorkerId, &Units)> {
        let all =
            self.queues.values().flat_map(|queue| queue.waiting.iter().map(move |waiting| (queue.worker, waiting)));
        all.map(|(worker, (_, waiting))| (worker, &waiting.units))
    }

    /// The gradients that wait, and whose units are others.
    pub(crate) fn with_other_units(&self, units: &Units) -> Vec<(SessionToken, LeaseId)> {
        let all = self.queues.values().flat_map(|queue| &queue.waiting);
        all.filter(|(_, waiting)| waiting.units != *units)
            .map(|(_, waiting)| (waiting.session, waiting.lease))
            .collect()
    }

    /// Takes the gradient whose turn it is, and a place for it, if there is room.
    pub(crate) fn next(&mut self) -> Option<(WaitingUpload, Place)> {
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

    /// Removes the gradient of a lease from the queue, if it waits.
    pub(crate) fn take(&mut self, lease: LeaseId) -> Option<WaitingUpload> {
        let session = self.waiting.remove(&lease)?;
        let (_, waiting) = self.change(session, |queue| {
            let at = queue.waiting.iter().position(|(_, waiting)| waiting.lease == lease)?;
            queue.waiting.remove(at)
        })??;
        Some(waiting)
    }

    /// Events for the engine about workers that are blocked now, or no longer.
    pub(crate) fn blocked_changes(&mut self) -> Vec<Event> {
        let mut changes = Vec::new();
        for session in std::mem::take(&mut self.changed) {
            let Some(queue) = self.queues.get_mut(&session) else { continue };
            let (worker, is_blocked) = (queue.worker, queue.is_blocked());
            if std::mem::replace(&mut queue.is_reported, is_blocked) != is_blocked {
                changes.push(if is_blocked {
                    Event::UploadBlocked { worker }
                } else {
                    Event::UploadResumed { worker }
                });
            }
            if queue.held == 0 && queue.waiting.is_empty() {
                self.queues.remove(&session);
            }
        }
        changes
    }

    /// The traffic of all gradients, if a session has room that a gradient of another one waits for.
    pub(crate) fn traffic_blocked_by(&self, session: SessionToken) -> Option<Traffic> {
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
    /// Takes places back, with the session that had them.
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
        // Without a driver, the run is over.
        self.lender.returned.send(self.session).unwrap_or(());
        self.lender.freed.notify_one();
    }
}

/// Room for a gradient that arrives, until the driver has it.
#[derive(Debug)]
pub(crate) struct Room {
    /// The presence of its session.
    presence: Presence,
    /// Cancelled if the worker gives way.
    gives_way: CancellationToken,
    place: Place,
}

impl Room {
    /// Resolves when the session has ended.
    pub(crate) async fn session_ended(&self) {
        self.presence.ended().await;
    }

    /// Resolves when the worker must give way.
    pub(crate) async fn gives_way(&self) {
        self.gives_way.cancelled().await;
    }

    pub(crate) fn must_give_way(&self) -> bool {
        self.gives_way.is_cancelled()
    }

    /// Records that bytes of the gradient have arrived.
    pub(crate) fn receive(&self, bytes: usize) {
        self.place.lender.arrived.fetch_add(bytes as u64, Ordering::Relaxed);
        self.presence.receive(bytes);
    }
}

/// The gradients that a session is sending.
#[derive(Debug, Default)]
pub(crate) struct SessionUploads {
    /// Leases whose gradients wait or arrive.
    leases: Vec<LeaseId>,
    gives_way: CancellationToken,
    /// The beginning of the window over which its rate is measured; `None` if no other worker waits for its room.
    window: Option<RateSample>,
}

/// How much had arrived at some time.
#[derive(Clone, Copy, Debug)]
struct RateSample {
    at_s: f64,
    /// Bytes of the session.
    arrived: u64,
    /// Bytes of all sessions.
    of_all: u64,
}

impl SessionUploads {
    /// Records that the worker is about to send the gradient of a lease that it holds; an error says why it must not.
    pub(crate) fn begin(&mut self, lease: LeaseId) -> Result<(), (RefusalKind, &'static str)> {
        if self.leases.contains(&lease) {
            return Err((RefusalKind::Replayed, "its gradient is being sent already"));
        }
        // A lease that failed in transit leaves the list, so that an honest worker stays below this limit.
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

    /// Room for one more gradient.
    pub(crate) fn room(&self, presence: Presence, place: Place) -> Room {
        Room { presence, gives_way: self.gives_way.clone(), place }
    }

    /// The bytes per second that arrive, if they are too few for too long. `arrived` counts the bytes of the session; `traffic` is
    /// that of all gradients, if some wait for its room.
    pub(crate) fn too_slow(&mut self, now_s: f64, arrived: u64, traffic: Option<Traffic>) -> Option<f64> {
        let Some(traffic) = traffic else {
            self.window = None;
            return None;
        };
        let now = RateSample { at_s: now_s, arrived, of_all: traffic.arrived };
        let before = *self.window.get_or_insert(now);
        let passed_s = now.at_s - before.at_s;
        if passed_s < UPLOAD_GUARD_WINDOW.as_secs_f64() {
            return None;
        }
        self.window = Some(now);
        let rate = (now.arrived - before.arrived) as f64 / passed_s;
        let mean_rate = (now.of_all - before.of_all) as f64 / passed_s / traffic.senders as f64;
        let is_slow = rate < LEAST_UPLOAD_BYTES_PER_S as f64 && rate < LEAST_UPLOAD_SHARE * mean_rate;
        is_slow.then_some(rate)
    }

    /// Fails the gradients that are arriving, so that others have room.
    pub(crate) fn give_way(&mut self) {
        std::mem::take(&mut self.gives_way).cancel();
    }
}
