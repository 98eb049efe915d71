//! The session of a connected worker.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ata_types::{Iteration, Lease, LeaseId, MachineId, WorkerId};
use ata_wire::limits::{CONNECTIONS_PER_WORKER, HEARTBEATS_MISSED, MAX_BATCH, MAX_QUEUED_MESSAGES};
use ata_wire::{Assignment, FarewellReason, Hello, Peer, Reader, Stay, ToWorker, TraceContext, WorkerName};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;

use crate::parameters::{DueParameters, DueSets, ParameterSet};
use crate::past_leases::PastLeases;
use crate::uploads::{Place, Room, Sending, Traffic};

/// The owner's side of a worker's session. Dropping it ends the session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) worker: WorkerId,
    /// Where it connected from.
    pub(crate) machine: MachineId,
    pub(crate) name: WorkerName,
    pub(crate) device: String,
    pub(crate) instance: u64,
    /// Whether the worker reported Ready.
    pub(crate) is_ready: bool,
    /// When the worker was last heard from, in seconds of the run's clock.
    pub(crate) heard_s: f64,
    /// Whether it computes the same bits as others of which this is true.
    pub(crate) is_exact: bool,
    /// Leases that it holds.
    leases: usize,
    /// Those that it had.
    pub(crate) past: PastLeases,
    /// The gradients that it sends.
    pub(crate) sending: Sending,
    /// Its connections, which may stay for as long as it lives.
    connections: Vec<Stay>,
    /// The parameters to send next. With those that are being sent, at most two versions are kept for the worker.
    due: DueParameters,
    /// The iteration of the parameters that became due last.
    sent: Option<Iteration>,
    download: Option<Download>,
    /// Shared with the task that sends it the training data, if there is one.
    data: Weak<()>,
    /// Messages to send when all effects are carried out.
    pub(crate) outbox: Vec<ToWorker>,
    messages: mpsc::Sender<ToWorker>,
    presence: Presence,
    /// Dropped with the session, which ends what the service does for it.
    _ends: DropGuard,
}

/// What the service needs to know of a session, and lets the owner know, without a command for each sign of life.
#[derive(Clone, Debug)]
pub(crate) struct Presence {
    signs: Arc<Signs>,
    /// Cancelled when the session ends.
    pub(crate) ended: CancellationToken,
}

/// Liveness flags, shared with the gRPC handlers.
#[derive(Debug)]
struct Signs {
    /// Whether there was any since the owner looked last.
    heard: AtomicBool,
    /// Whether the next heartbeat is that of a worker without work.
    is_idle: AtomicBool,
    /// Bytes of gradients that have arrived.
    arrived: AtomicU64,
}

impl Presence {
    pub(crate) fn new() -> Self {
        let signs = Signs { heard: AtomicBool::new(false), is_idle: AtomicBool::new(true), arrived: AtomicU64::new(0) };
        Self { signs: Arc::new(signs), ended: CancellationToken::new() }
    }

    /// Notes a sign of life.
    pub(crate) fn hear(&self) {
        self.signs.heard.store(true, Ordering::Relaxed);
    }

    /// Notes that so many bytes of a gradient have arrived.
    pub(crate) fn receive(&self, bytes: usize) {
        self.signs.arrived.fetch_add(bytes as u64, Ordering::Relaxed);
        self.hear();
    }

    /// Notes a heartbeat, which tells whether the worker is idle and its next one comes late.
    pub(crate) fn hear_heartbeat(&self, is_idle: bool) {
        self.signs.is_idle.store(is_idle, Ordering::Relaxed);
        self.hear();
    }
}

/// How long workers may be silent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Those that have work.
    pub(crate) heartbeat: Duration,
    /// Those that said that they have none.
    pub(crate) idle: Duration,
    /// How long one may be sent parameters without taking any of them.
    pub(crate) download: Duration,
}

impl Patience {
    /// Time between the heartbeats of a worker that has work.
    pub(crate) fn heartbeat_interval_ms(&self) -> u32 {
        interval_ms(self.heartbeat)
    }

    /// Time between those of one that has none.
    pub(crate) fn idle_heartbeat_interval_ms(&self) -> u32 {
        interval_ms(self.idle)
    }
}

fn interval_ms(timeout: Duration) -> u32 {
    (timeout / HEARTBEATS_MISSED).as_millis().max(1) as u32
}

/// A call for a worker's parameters.
#[derive(Debug)]
struct Download {
    reader: Reader,
    /// Pieces that were taken when this was last looked at.
    taken: u64,
    /// Since when no more were taken.
    since_s: f64,
}

impl Download {
    fn stalls_since_s(&mut self, now_s: f64) -> f64 {
        let taken = self.reader.taken();
        if taken != self.taken || self.reader.reading().is_none() {
            (self.taken, self.since_s) = (taken, now_s);
        }
        self.since_s
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        // What was read in part would stay in memory for as long as its peer pleases.
        if self.reader.reading().is_some() {
            self.reader.close();
        }
    }
}

impl Session {
    /// A session that begins, and the receiver of its messages.
    pub(crate) fn new(
        now_s: f64,
        worker: WorkerId,
        machine: MachineId,
        hello: &Hello,
    ) -> (Self, mpsc::Receiver<ToWorker>) {
        let (messages, receiver) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let presence = Presence::new();
        let session = Self {
            worker,
            machine,
            name: hello.name.clone(),
            device: hello.device.clone(),
            instance: hello.instance,
            is_ready: false,
            heard_s: now_s,
            is_exact: false,
            leases: 0,
            past: PastLeases::default(),
            sending: Sending::default(),
            connections: Vec::new(),
            due: DueParameters::default(),
            sent: None,
            download: None,
            data: Weak::new(),
            outbox: Vec::new(),
            messages,
            _ends: presence.ended.clone().drop_guard(),
            presence,
        };
        (session, receiver)
    }

    /// What the service needs of it.
    pub(crate) fn presence(&self) -> Presence {
        self.presence.clone()
    }

    /// Lets a connection stay for as long as the session lives. One that comes after those that a worker needs does not belong
    /// to it, whatever is called on it.
    pub(crate) fn admit(&mut self, peer: &Peer) {
        let is_new = !self.connections.iter().any(|connection| connection.is_of(peer));
        if is_new && self.connections.len() < CONNECTIONS_PER_WORKER {
            self.connections.push(peer.stay());
        }
    }

    /// Room for a gradient that it sends.
    pub(crate) fn room(&self, place: Place) -> Room {
        self.sending.room(self.presence(), place)
    }

    /// The bytes per second at which its gradients arrive, if they are too few for too long. `traffic` is what arrives of all, if
    /// others wait for its room.
    pub(crate) fn sends_too_slowly(&mut self, now_s: f64, traffic: Option<Traffic>) -> Option<f64> {
        let arrived = self.presence.signs.arrived.load(Ordering::Relaxed);
        self.sending.too_slow(now_s, arrived, traffic)
    }

    /// Why the session must end, if it must.
    pub(crate) fn overdue(&mut self, now_s: f64, patience: &Patience) -> Option<&'static str> {
        let Signs { heard, is_idle, .. } = &*self.presence.signs;
        if heard.swap(false, Ordering::Relaxed) {
            self.heard_s = now_s;
        }
        let timeout = if is_idle.load(Ordering::Relaxed) { patience.idle } else { patience.heartbeat };
        if now_s - self.heard_s > timeout.as_secs_f64() {
            return Some("no heartbeat");
        }
        let download = self.download.as_mut()?;
        (now_s - download.stalls_since_s(now_s) > patience.download.as_secs_f64())
            .then_some("it does not read its parameters")
    }

    /// The oldest version of the parameters that is kept for it.
    pub(crate) fn oldest_version(&self) -> Option<Iteration> {
        let reading = self.download.as_ref().and_then(|download| download.reader.reading());
        reading.into_iter().chain(self.due.iteration()).min()
    }

    /// Adds a lease to the next message, and sends the parameters at which it is to be computed unless that was done.
    pub(crate) fn assign(&mut self, lease: &Lease, parameters: &ParameterSet, trace: Option<TraceContext>) {
        debug_assert_eq!(lease.iteration, parameters.iteration, "leases are of the current iteration");
        self.leases += 1;
        self.past.given(lease.id);
        let iteration = parameters.iteration;
        if self.sent.replace(iteration) != Some(iteration) {
            self.due.put(parameters.clone());
        }
        let assignment = Assignment { lease: *lease, trace };
        match self.outbox.last_mut() {
            Some(ToWorker::Assign(batch)) if batch.len() < MAX_BATCH => batch.push(assignment),
            _ => self.outbox.push(ToWorker::Assign(vec![assignment])),
        }
    }

    /// Adds the cancellation of a lease to the next message.
    pub(crate) fn cancel(&mut self, lease: LeaseId) {
        match self.outbox.last_mut() {
            Some(ToWorker::Cancel(batch)) if batch.len() < MAX_BATCH => batch.push(lease),
            _ => self.outbox.push(ToWorker::Cancel(vec![lease])),
        }
    }

    /// Records that a lease ended.
    pub(crate) fn ended(&mut self, lease: LeaseId) {
        self.sending.ended(lease);
        // It may be one of an earlier session of the worker.
        self.leases = self.leases.saturating_sub(1);
        // Without a lease it needs no parameters.
        if self.leases == 0 && self.due.clear() {
            self.sent = None;
        }
    }

    /// The parameters to send to the worker, as they come; an error says why it must not ask for them.
    pub(crate) fn parameters(&mut self, now_s: f64, reader: Reader) -> Result<DueSets, Status> {
        self.admit(reader.peer());
        let sets = self.due.receiver();
        let sets =
            sets.ok_or_else(|| Status::resource_exhausted("this session's parameters are being sent already"))?;
        let taken = reader.taken();
        self.download = Some(Download { reader, taken, since_s: now_s });
        Ok(sets)
    }

    /// To be kept while the worker is sent the training data; an error says why it must not ask for them.
    pub(crate) fn data(&mut self) -> Result<Arc<()>, Status> {
        if self.data.strong_count() > 0 {
            return Err(Status::resource_exhausted("the training data are being sent to this session already"));
        }
        let sending = Arc::new(());
        self.data = Arc::downgrade(&sending);
        Ok(sending)
    }

    /// Queues the messages of the outbox; `false` if the worker does not read them fast enough, or is gone.
    pub(crate) fn flush(&mut self) -> bool {
        self.outbox.drain(..).all(|message| self.messages.try_send(message).is_ok())
    }

    /// Sends a farewell, and ends the session.
    pub(crate) fn farewell(mut self, reason: FarewellReason, detail: impl Into<String>) {
        self.outbox.push(ToWorker::Farewell { reason, detail: detail.into() });
        // The session ends whether or not the worker gets it.
        self.flush();
    }
}
