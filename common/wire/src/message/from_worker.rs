//! The worker's messages on the control stream.

use ata_types::{LeaseId, VectorId, WorkerId};

use super::{
    ComputedLease, ExchangeReport, MeasuredBatch, PeerAddress, WireError, WorkerName, at_most, check_batch,
    check_protocol, first_batch, invalid, missing, truncated,
};
use crate::limits::MAX_BATCH;
use crate::{PROTOCOL, proto};

/// What a worker's process uses; zeros if it does not know. The numbers are claims, and are only displayed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUsage {
    /// The processor time so far, in seconds.
    pub cpu_s: f64,
    /// The resident memory, in bytes.
    pub memory_bytes: u64,
}

/// A message from a worker on the control stream.
#[derive(Clone, Debug, PartialEq)]
pub enum FromWorker {
    /// The first message of a session.
    Hello(Hello),
    /// The worker is ready to compute.
    Ready {
        /// Whether it can compute a lease as one batch, for any range of tasks.
        fuses: bool,
        /// The address at which other workers reach it, if they can.
        peer_address: Option<PeerAddress>,
    },
    /// The worker is alive.
    Heartbeat {
        /// Whether it has no work, so that its next heartbeat comes later.
        idle: bool,
        /// What its process uses.
        usage: ProcessUsage,
    },
    /// The worker leaves as soon as the sums of what it has begun have arrived. It has not begun these leases, at most
    /// [`MAX_BATCH`](crate::limits::MAX_BATCH), and will not.
    Leaving(Vec<LeaseId>),
    /// The worker could not compute a lease.
    LeaseFailed {
        /// The lease.
        lease: LeaseId,
        /// The reason, human-readable.
        reason: String,
        /// Whether the tasks would fail on any worker, as far as this one can tell.
        uncomputable: bool,
    },
    /// The worker could not compute again the part of a requested vector that it does not keep.
    VectorFailed {
        /// The vector.
        vector: VectorId,
        /// The reason, human-readable.
        reason: String,
        /// Whether the tasks would fail on any worker, as far as this one can tell.
        uncomputable: bool,
    },
    /// An exchange of vectors with other workers has ended for this worker.
    ExchangeReport(ExchangeReport),
    /// The worker has tried to connect to another one.
    Reached {
        /// Identifies the request.
        probe: u64,
        /// The outcome; an error holds a human-readable reason.
        outcome: Result<(), String>,
    },
    /// The worker has computed these leases, and keeps their gradients until they are collected. [`Self::progress`] keeps the limits.
    Progress(Vec<ComputedLease>),
    /// The worker has measured a batch of an evaluation.
    Measured(MeasuredBatch),
    /// The bytes of a [`super::ToWorker::ProbeLink`] have arrived.
    LinkProbed {
        /// The number of bytes.
        bytes: u64,
        /// Seconds that the transfer took; more than 0.
        seconds: f64,
    },
}

impl FromWorker {
    /// Removes from the front as many leases as fit in one message, and returns a message that reports them.
    pub fn progress(leases: &mut Vec<ComputedLease>) -> Self {
        Self::Progress(first_batch(leases, entries))
    }
}

fn entries(lease: &ComputedLease) -> usize {
    lease.losses.len()
}

/// The first message of a worker, which introduces it.
#[derive(Clone, Debug, PartialEq)]
pub struct Hello {
    /// Identifies the worker across sessions.
    pub name: WorkerName,
    /// A number that is random for each process.
    pub instance: u64,
    /// The worker number that it asks for.
    pub number: Option<WorkerId>,
    /// The device that it computes on.
    pub device: String,
    /// The version of its program.
    pub version: String,
}

impl From<FromWorker> for proto::WorkerMessage {
    fn from(message: FromWorker) -> Self {
        use proto::worker_message::Kind;
        let kind = match message {
            FromWorker::Hello(Hello { name, instance, number, device, version }) => {
                let number = number.map_or(0, WorkerId::number);
                let (device, version) = (truncated(device), truncated(version));
                Kind::Hello(proto::Hello { protocol: PROTOCOL, name: name.0, instance, number, device, version })
            }
            FromWorker::Ready { fuses, peer_address } => {
                let peer_address = peer_address.map(|address| address.to_wire()).unwrap_or_default();
                Kind::Ready(proto::Ready { fuses, peer_address })
            }
            FromWorker::ExchangeReport(report) => Kind::ExchangeReport(report.into_wire()),
            FromWorker::Reached { probe, outcome } => {
                // An empty text would mean success.
                let failure = outcome.err().map(|why| if why.is_empty() { "no reason".into() } else { truncated(why) });
                Kind::Reached(proto::Reached { probe, failure: failure.unwrap_or_default() })
            }
            FromWorker::Heartbeat { idle, usage: ProcessUsage { cpu_s, memory_bytes } } => {
                Kind::Heartbeat(proto::Heartbeat { idle, cpu_s, memory_bytes })
            }
            FromWorker::Leaving(leases) => {
                Kind::Leaving(proto::Leaving { leases: leases.into_iter().map(|lease| lease.0).collect() })
            }
            FromWorker::LeaseFailed { lease, reason, uncomputable } => {
                Kind::LeaseFailed(proto::LeaseFailed { lease: lease.0, reason: truncated(reason), uncomputable })
            }
            FromWorker::VectorFailed { vector, reason, uncomputable } => {
                Kind::VectorFailed(proto::VectorFailed { vector: vector.0, reason: truncated(reason), uncomputable })
            }
            FromWorker::Measured(measured) => Kind::Measured(measured.into_wire()),
            FromWorker::LinkProbed { bytes, seconds } => Kind::LinkProbed(proto::LinkProbed { bytes, seconds }),
            FromWorker::Progress(leases) => {
                Kind::Progress(proto::Progress { leases: leases.into_iter().map(ComputedLease::into_wire).collect() })
            }
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<proto::WorkerMessage> for FromWorker {
    type Error = WireError;

    fn try_from(message: proto::WorkerMessage) -> Result<Self, WireError> {
        use proto::worker_message::Kind;
        Ok(match message.kind.ok_or_else(|| missing("worker message"))? {
            Kind::Hello(proto::Hello { protocol, name, instance, number, device, version }) => {
                check_protocol(protocol)?;
                let (name, number) = (name.parse()?, WorkerId::new(number));
                let (device, version) = (truncated(device), truncated(version));
                Self::Hello(Hello { name, instance, number, device, version })
            }
            Kind::Ready(proto::Ready { fuses, peer_address }) => {
                let peer_address =
                    (!peer_address.is_empty()).then(|| PeerAddress::from_wire(&peer_address)).transpose()?;
                Self::Ready { fuses, peer_address }
            }
            Kind::ExchangeReport(report) => Self::ExchangeReport(ExchangeReport::from_wire(report)?),
            Kind::Reached(proto::Reached { probe, failure }) => {
                let outcome = if failure.is_empty() { Ok(()) } else { Err(truncated(failure)) };
                Self::Reached { probe, outcome }
            }
            Kind::Heartbeat(proto::Heartbeat { idle, cpu_s, memory_bytes }) => {
                Self::Heartbeat { idle, usage: ProcessUsage { cpu_s, memory_bytes } }
            }
            Kind::Leaving(proto::Leaving { leases }) => {
                at_most("number of leases", leases.len(), MAX_BATCH)?;
                Self::Leaving(leases.into_iter().map(LeaseId).collect())
            }
            Kind::LeaseFailed(proto::LeaseFailed { lease, reason, uncomputable }) => {
                Self::LeaseFailed { lease: LeaseId(lease), reason: truncated(reason), uncomputable }
            }
            Kind::VectorFailed(proto::VectorFailed { vector, reason, uncomputable }) => {
                Self::VectorFailed { vector: VectorId(vector), reason: truncated(reason), uncomputable }
            }
            Kind::Measured(measured) => Self::Measured(MeasuredBatch::from_wire(measured)?),
            Kind::LinkProbed(proto::LinkProbed { bytes, seconds }) => {
                if !(seconds > 0.0 && seconds.is_finite()) {
                    return Err(invalid("seconds", seconds, "more than 0"));
                }
                Self::LinkProbed { bytes, seconds }
            }
            Kind::Progress(proto::Progress { leases }) => {
                let leases = leases.into_iter().map(ComputedLease::from_wire).collect::<Result<Vec<_>, _>>()?;
                check_batch("number of leases", &leases, entries)?;
                Self::Progress(leases)
            }
        })
    }
}
