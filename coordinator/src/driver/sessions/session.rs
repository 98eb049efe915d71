//! The session of one connected worker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use ata_net::limits::CONNECTIONS_PER_WORKER;
use ata_net::{KeepOpen, Peer};
use ata_record::WorkerResources;
use ata_sums::Units;
use ata_types::{Iteration, Lease, LeaseId, MachineId, WorkerId};
use ata_wire::limits::{MAX_BATCH, MAX_QUEUED_MESSAGES};
use ata_wire::{Assignment, FarewellReason, Hello, PeerAddress, ProcessUsage, Reader, ToWorker, WorkerName};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;

use super::resources::{ReportedUsage, ResourceMeter};
use crate::config::Timeouts;
use crate::parameters::{DueParameters, DueSets, ParameterSet};

/// The driver's side of a worker's session. Dropping it ends the session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) worker: WorkerId,
    pub(crate) machine: MachineId,
    pub(crate) name: WorkerName,
    pub(crate) device: String,
    pub(crate) instance: u64,
    pub(crate) is_ready: bool,
    /// Whether the worker's gradients are the same bits as those of other exact workers.
    pub(crate) is_exact: bool,
    /// The address at which other workers reach this one, if they can.
    pub(crate) peer_address: Option<PeerAddress>,
    /// Whether the worker may hold only a part of a set, so that the next one must be sent whole.
    needs_whole: bool,
    /// The time at which the worker was last heard from, in seconds of the run's clock.
    pub(crate) heard_s: f64,
    pub(crate) leases: usize,
    /// The iteration of the lease that the worker was assigned last.
    worked: Option<Iteration>,
    /// The first and the last lease that the worker was assigned.
    given: Option<(LeaseId, LeaseId)>,
    /// The worker's connections, which stay open for as long as the session lasts.
    connections: Vec<KeepOpen>,
    meter: ResourceMeter,
    /// The parameters to send next. Together with the set that is being sent, at most two versions are kept for the worker.
    due: DueParameters,
    /// The iteration of the parameters that became due last.
    sent: Option<Iteration>,
    pub(crate) units: Option<(Iteration, Units)>,
    download: Option<Download>,
    /// A call for the parameters of an evaluation.
    evaluated: Option<Download>,
    /// A mark shared with the task that sends the training data, if there is one.
    data: Weak<()>,
    /// The messages to send once all effects are carried out.
    pub(crate) outbox: Vec<ToWorker>,
    messages: mpsc::Sender<ToWorker>,
    pub(crate) presence: Presence,
    /// Ends the service's tasks for the session when it is dropped.
    _ends: DropGuard,
}

/// The device whose results are the same bits on every machine; see [`ata_learn::OpenDevice::is_cpu`].
const CPU: &str = "cpu";

/// A call for a worker's parameters.
#[derive(Debug)]
struct Download {
    reader: Reader,
    /// The number of pieces that the worker had read at the last check.
    taken: u64,
    /// The time of the last check at which the worker had read another piece, in seconds.
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
        // A partly read version would stay in memory for as long as the peer keeps the connection open.
        if self.reader.reading().is_some() {
            self.reader.peer().close();
        }
    }
}

impl Session {
    pub(crate) fn new(
        now_s: f64,
        worker: WorkerId,
        machine: MachineId,
        hello: &Hello,
    ) -> (Self, mpsc::Receiver<ToWorker>) {
        let (messages, receiver) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let presence = Presence::default();
        let session = Self {
            worker,
            machine,
            name: hello.name.clone(),
            device: hello.device.clone(),
            instance: hello.instance,
            is_ready: false,
            is_exact: false,
            peer_address: None,
            needs_whole: false,
            heard_s: now_s,
            leases: 0,
            worked: None,
            given: None,
            connections: Vec::new(),
            meter: ResourceMeter::default(),
            due: DueParameters::default(),
            sent: None,
            units: None,
            download: None,
            evaluated: None,
            data: Weak::new(),
            outbox: Vec::new(),
            messages,
            _ends: presence.ended.clone().drop_guard(),
            presence,
        };
        (session, receiver)
    }

    /// Records that the worker is ready, whether it computes a lease as one batch, and the address at which other workers reach it. The
    /// address must be on the host that it connected from, or on one of `allowed_hosts`. Returns `false` if the worker was already ready.
    pub(crate) fn make_ready(
        &mut self,
        fuses: bool,
        peer_address: Option<PeerAddress>,
        allowed_hosts: &[String],
    ) -> bool {
        if self.is_ready {
            return false;
        }
        self.is_ready = true;
        self.is_exact = !fuses && self.device == CPU;
        let host = self.connections.first().map(KeepOpen::host);
        self.peer_address = peer_address.zip(host).map(|(address, host)| address.seen_at(host, allowed_hosts));
        true
    }

    /// Keeps a connection open for as long as the session lasts. Connections beyond [`CONNECTIONS_PER_WORKER`] do not become part of the
    /// session, whatever is called on them.
    pub(crate) fn admit(&mut self, peer: &Peer) {
        let is_new = !self.connections.iter().any(|connection| connection.is_of(peer));
        if is_new && self.connections.len() < CONNECTIONS_PER_WORKER {
            self.connections.push(peer.keep_open());
        }
    }

    pub(crate) fn resources(&mut self, now_s: f64) -> Option<WorkerResources> {
        self.meter.read(now_s, self.worker, &self.presence.liveness.usage, &self.connections)
    }

    pub(crate) fn overdue(&mut self, now_s: f64, timeouts: &Timeouts) -> Option<&'static str> {
        let Liveness { heard, has_work, .. } = &*self.presence.liveness;
        if heard.swap(false, Ordering::Relaxed) {
            self.heard_s = now_s;
        }
        let timeout = if has_work.load(Ordering::Relaxed) { timeouts.heartbeat } else { timeouts.idle };
        if now_s - self.heard_s > timeout.as_secs_f64() {
            return Some("no heartbeat");
        }
        let mut downloads = self.download.iter_mut().chain(&mut self.evaluated);
        let timeout_s = timeouts.download.as_secs_f64();
        downloads
            .any(|download| now_s - download.stalls_since_s(now_s) > timeout_s)
            .then_some("it does not read its parameters")
    }

    pub(crate) fn oldest_version(&self) -> Option<Iteration> {
        let reading = self.download.as_ref().and_then(|download| download.reader.reading());
        reading.into_iter().chain(self.due.iteration()).min()
    }

    /// Adds a lease to the next message, and sends the parameters and the units of the current iteration if the worker does not have
    /// them. The lease may be one of the next iteration, if it is local steps.
    pub(crate) fn assign(&mut self, assignment: Assignment, parameters: &ParameterSet, units: Option<&Units>) {
        let (lease, current) = (assignment.lease, parameters.iteration);
        debug_assert!((current..=current.next()).contains(&lease.iteration), "of the current iteration or the next");
        self.leases += 1;
        self.worked = Some(lease.iteration);
        self.given = Some((self.given.map_or(lease.id, |(first, _)| first), lease.id));
        self.bring_up_to(parameters, units);
        match self.outbox.last_mut() {
            Some(ToWorker::Assign(batch)) if batch.len() < MAX_BATCH => batch.push(assignment),
            _ => self.outbox.push(ToWorker::Assign(vec![assignment])),
        }
    }

    /// Sends the parameters and the units of the current iteration, if the worker does not have them.
    pub(crate) fn bring_up_to(&mut self, parameters: &ParameterSet, units: Option<&Units>) {
        let iteration = parameters.iteration;
        // A worker that was sent the next set ahead still holds this one, until the next set is complete.
        if self.sent < Some(iteration) {
            self.put(parameters);
        }
        if let Some(units) = units {
            self.send_units(iteration, units);
        }
    }

    /// Returns whether the worker has leases of an iteration.
    pub(crate) fn has_begun(&self, iteration: Iteration) -> bool {
        self.leases > 0 && self.worked == Some(iteration)
    }

    /// Sends the units of an iteration, if the worker does not have them.
    pub(crate) fn send_units(&mut self, iteration: Iteration, units: &Units) {
        if self.units_of(iteration).is_none() {
            self.units = Some((iteration, units.clone()));
            let (units, shifts) = (units.exponents().to_vec(), Bytes::copy_from_slice(units.shifts()));
            self.outbox.push(ToWorker::Units { iteration, units, shifts });
        }
    }

    pub(crate) fn units_of(&self, iteration: Iteration) -> Option<&Units> {
        self.units.as_ref().filter(|(sent, _)| *sent == iteration).map(|(_, units)| units)
    }

    /// Sends a set of parameters, which may still be being written.
    pub(crate) fn put(&mut self, set: &ParameterSet) {
        self.sent = Some(set.iteration);
        // A whole set that the worker has not taken is replaced by a whole one: the worker could not use differences.
        let is_whole = std::mem::take(&mut self.needs_whole) || self.due.is_whole();
        self.due.put(if is_whole { set.whole() } else { set.clone() });
    }

    /// Sends whole parameters in place of the set that the worker was sent last, in shards, if that is one of `sets`. If the last set was
    /// dropped, the next one is whole.
    pub(crate) fn send_whole<'a>(&mut self, sets: impl IntoIterator<Item = &'a ParameterSet>) {
        let last = sets.into_iter().find(|set| self.sent == Some(set.iteration));
        self.needs_whole |= last.is_some() || self.sent.is_none();
        if let Some(set) = last {
            self.put(set);
        }
    }

    /// Sends the parameters of the current iteration again if the worker computes at them, and was sent the next ones.
    pub(crate) fn send_again(&mut self, current: &ParameterSet) {
        if self.leases > 0 && self.sent > Some(current.iteration) {
            self.put(current);
        }
    }

    pub(crate) fn cancel(&mut self, lease: LeaseId) {
        match self.outbox.last_mut() {
            Some(ToWorker::Cancel(batch)) if batch.len() < MAX_BATCH => batch.push(lease),
            _ => self.outbox.push(ToWorker::Cancel(vec![lease])),
        }
    }

    /// Returns whether the worker may have held a lease that has ended. Other workers' leases with numbers in between count as its own.
    pub(crate) fn was_given(&self, lease: LeaseId) -> bool {
        self.given.is_some_and(|(first, last)| (first..=last).contains(&lease))
    }

    pub(crate) fn ended(&mut self, lease: &Lease) {
        // The lease may be one of an earlier session of the worker.
        self.leases = self.leases.saturating_sub(1);
        // A worker without a lease needs no parameters.
        let is_whole = self.due.is_whole();
        if self.leases == 0 && self.due.clear(lease.iteration) {
            self.sent = None;
            self.needs_whole |= is_whole;
        }
    }

    /// Returns the parameters to send to the worker, as they become due. An error says why the worker must not ask for them.
    pub(crate) fn parameters(&mut self, now_s: f64, reader: Reader) -> Result<DueSets, Status> {
        self.admit(reader.peer());
        let sending = || Status::resource_exhausted("this session's parameters are being sent already");
        let sets = self.due.receiver().ok_or_else(sending)?;
        self.download = Some(Download { taken: reader.taken(), reader, since_s: now_s });
        Ok(sets)
    }

    /// Records that the worker is sent the parameters of an evaluation. An error says why the worker must not ask for them.
    pub(crate) fn evaluates(&mut self, now_s: f64, reader: Reader) -> Result<(), Status> {
        self.admit(reader.peer());
        if self.evaluated.as_ref().is_some_and(|download| download.reader.sending().is_some()) {
            return Err(Status::resource_exhausted("this session is being sent an evaluation's parameters already"));
        }
        self.evaluated = Some(Download { taken: reader.taken(), reader, since_s: now_s });
        Ok(())
    }

    /// Returns whether the worker had no lease in an iteration and the one before.
    pub(crate) fn is_idle(&self, iteration: Iteration) -> bool {
        self.leases == 0 && self.worked.is_none_or(|worked| worked.next() < iteration)
    }

    /// Returns a mark to keep while the worker is sent the training data. An error says why the worker must not ask for the data.
    pub(crate) fn begin_data(&mut self) -> Result<Arc<()>, Status> {
        if self.data.strong_count() > 0 {
            return Err(Status::resource_exhausted("the training data are being sent to this session already"));
        }
        let sending = Arc::new(());
        self.data = Arc::downgrade(&sending);
        Ok(sending)
    }

    /// Sends the messages of the outbox. Returns `false` if the worker does not read them fast enough, or has left.
    pub(crate) fn flush(&mut self) -> bool {
        self.outbox.drain(..).all(|message| self.messages.try_send(message).is_ok())
    }

    pub(crate) fn farewell(mut self, reason: FarewellReason, detail: impl Into<String>) {
        self.outbox.push(ToWorker::Farewell { reason, detail: detail.into() });
        // The session ends whether or not the worker receives it.
        self.flush();
    }
}

/// A handle that the gRPC handlers share with a session, so that a heartbeat needs no command to the driver.
#[derive(Clone, Debug, Default)]
pub(crate) struct Presence {
    liveness: Arc<Liveness>,
    /// Cancelled when the session has ended.
    pub(crate) ended: CancellationToken,
}

/// Liveness flags, shared with the gRPC handlers.
#[derive(Debug, Default)]
struct Liveness {
    /// Whether the worker was heard from since the driver last checked.
    heard: AtomicBool,
    /// Whether the worker's last heartbeat said that it has work.
    has_work: AtomicBool,
    usage: ReportedUsage,
}

impl Presence {
    pub(crate) fn hear(&self) {
        self.liveness.heard.store(true, Ordering::Relaxed);
    }

    /// Records a heartbeat. An idle worker sends its next one later.
    pub(crate) fn hear_heartbeat(&self, is_idle: bool, usage: ProcessUsage) {
        self.liveness.usage.set(usage);
        self.liveness.has_work.store(!is_idle, Ordering::Relaxed);
        self.hear();
    }
}
