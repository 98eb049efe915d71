//! The coordinator's messages on the control stream.

use ata_types::{Iteration, Lease, LeaseId, MAX_LEASE_TASKS, TaskRange, VectorId, WorkerId};
use bytes::Bytes;

use super::{
    PeerAddress, RunSpec, SessionToken, VectorRequest, WireError, at_most, check_batch, first_batch, in_range, invalid,
    missing, truncated, units_of,
};
use crate::limits::{MAX_BATCH, MAX_EVALUATED_BATCHES, MAX_PROBE_BYTES, MAX_SHIFT_BYTES};
use crate::proto;

pub use crate::proto::farewell::Reason as FarewellReason;

/// A message from the coordinator on the control stream.
#[derive(Clone, Debug, PartialEq)]
pub enum ToWorker {
    /// The first message of a session.
    Welcome(Welcome),
    /// The units of an iteration's gradients.
    Units {
        /// The iteration.
        iteration: Iteration,
        /// The exponent of each tensor's unit.
        units: Vec<i16>,
        /// The number of bits by which the unit of each block is finer, four bits each; empty if no unit is.
        shifts: Bytes,
    },
    /// Asks the worker to compute leases in this order; at most [`MAX_BATCH`].
    Assign(Vec<Assignment>),
    /// Asks the worker to measure batches of the test data; at most [`MAX_EVALUATED_BATCHES`].
    Evaluate {
        /// The step after which the parameters are measured.
        step: Iteration,
        /// The indices of the batches.
        batches: Vec<u64>,
    },
    /// Asks the worker to send this many bytes, at most [`MAX_PROBE_BYTES`], for which no step waits.
    ProbeLink {
        /// The number of bytes.
        bytes: u64,
    },
    /// Cancels leases that are no longer needed; at most [`MAX_BATCH`].
    Cancel(Vec<LeaseId>),
    /// Asks for vectors, and withdraws earlier requests. [`Self::collect`] makes messages within the limits.
    Collect {
        /// The requested vectors.
        requests: Vec<VectorRequest>,
        /// Vectors requested earlier that are no longer needed; at most [`MAX_BATCH`].
        withdrawn: Vec<VectorId>,
    },
    /// Asks the worker to connect to another one.
    Reach {
        /// Identifies the request.
        probe: u64,
        /// The address of the other worker.
        address: PeerAddress,
    },
    /// The last message of a session.
    Farewell {
        /// The reason why the session ends. One that this release does not know is unspecified.
        reason: FarewellReason,
        /// The reason, human-readable.
        detail: String,
    },
}

impl ToWorker {
    /// Returns the messages that withdraw and request these vectors, in order.
    pub fn collect(withdrawn: &[VectorId], mut requests: Vec<VectorRequest>) -> impl Iterator<Item = Self> {
        let withdrawn = withdrawn.chunks(MAX_BATCH).map(<[VectorId]>::to_vec);
        let withdrawn = withdrawn.map(|withdrawn| Self::Collect { requests: Vec::new(), withdrawn });
        let asked = std::iter::from_fn(move || (!requests.is_empty()).then(|| first_batch(&mut requests, entries)));
        withdrawn.chain(asked.map(|requests| Self::Collect { requests, withdrawn: Vec::new() }))
    }
}

fn entries(request: &VectorRequest) -> usize {
    request.tasks.len()
}

/// The first message of a session, from the coordinator.
#[derive(Clone, Debug, PartialEq)]
pub struct Welcome {
    /// Identifies this session in the other calls.
    pub session: SessionToken,
    /// The worker's number.
    pub worker: WorkerId,
    /// The run's name.
    pub run_id: String,
    /// The time between two heartbeats of a worker that has work, in milliseconds.
    pub heartbeat_interval_ms: u32,
    /// The time between two heartbeats of a worker that has no work, in milliseconds.
    pub idle_heartbeat_interval_ms: u32,
    /// The specification of the run.
    pub run: RunSpec,
}

/// A lease as it is sent to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The lease.
    pub lease: Lease,
    /// The number of tasks of the run before the lease's iteration.
    pub position: u64,
    /// The vector of this lease alone, if the assignment requests it, too.
    pub vector: Option<VectorId>,
}

impl Assignment {
    /// Returns the request for the lease's vector, if the assignment carries one.
    pub fn request(&self) -> Option<VectorRequest> {
        let Lease { iteration, tasks, .. } = self.lease;
        self.vector.map(|id| VectorRequest { id, iteration, tasks: tasks.into(), first_chunk: 0, shards: None })
    }
}

impl From<ToWorker> for proto::CoordinatorMessage {
    fn from(message: ToWorker) -> Self {
        use proto::coordinator_message::Kind;
        let kind = match message {
            ToWorker::Welcome(welcome) => Kind::Welcome(proto::Welcome {
                session: welcome.session.to_wire(),
                number: welcome.worker.number(),
                run_id: welcome.run_id,
                heartbeat_interval_ms: welcome.heartbeat_interval_ms,
                idle_heartbeat_interval_ms: welcome.idle_heartbeat_interval_ms,
                run: Some(welcome.run.into_wire()),
            }),
            ToWorker::Assign(leases) => {
                let assign = |Assignment { lease, position, vector }| proto::Assign {
                    lease: lease.id.0,
                    iteration: lease.iteration.number(),
                    first_task: lease.tasks.first,
                    tasks: lease.tasks.count,
                    vector: vector.map_or(0, |vector| vector.0),
                    position,
                };
                Kind::Assign(proto::Assignments { leases: leases.into_iter().map(assign).collect() })
            }
            ToWorker::Units { iteration, units, shifts } => Kind::Units(proto::Units {
                iteration: iteration.number(),
                exponents: units.into_iter().map(i32::from).collect(),
                shifts,
            }),
            ToWorker::Evaluate { step, batches } => Kind::Evaluate(proto::Evaluate { step: step.number(), batches }),
            ToWorker::ProbeLink { bytes } => Kind::ProbeLink(proto::ProbeLink { bytes }),
            ToWorker::Cancel(leases) => {
                Kind::Cancel(proto::Cancellations { leases: leases.into_iter().map(|lease| lease.0).collect() })
            }
            ToWorker::Collect { requests, withdrawn } => Kind::Collect(proto::Collect {
                requests: requests.into_iter().map(VectorRequest::into_wire).collect(),
                withdrawn: withdrawn.into_iter().map(|vector| vector.0).collect(),
            }),
            ToWorker::Reach { probe, address } => Kind::Reach(proto::Reach { probe, address: address.to_wire() }),
            ToWorker::Farewell { reason, detail } => {
                Kind::Farewell(proto::Farewell { reason: reason.into(), detail: truncated(detail) })
            }
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<proto::CoordinatorMessage> for ToWorker {
    type Error = WireError;

    fn try_from(message: proto::CoordinatorMessage) -> Result<Self, WireError> {
        use proto::coordinator_message::Kind;
        Ok(match message.kind.ok_or_else(|| missing("coordinator message"))? {
            Kind::Units(proto::Units { iteration, exponents, shifts }) => Self::Units {
                iteration: Iteration(in_range("iteration", iteration, u64::MAX)?),
                units: units_of(exponents)?,
                shifts: at_most("bytes of shifts", shifts.len(), MAX_SHIFT_BYTES).map(|_| shifts)?,
            },
            Kind::Welcome(welcome) => Self::Welcome(Welcome::from_wire(welcome)?),
            Kind::Assign(proto::Assignments { leases }) => {
                in_range("number of leases", leases.len(), MAX_BATCH)?;
                Self::Assign(leases.into_iter().map(Assignment::from_wire).collect::<Result<_, _>>()?)
            }
            Kind::Evaluate(proto::Evaluate { step, batches }) => {
                in_range("number of batches", batches.len(), MAX_EVALUATED_BATCHES)?;
                Self::Evaluate { step: Iteration(in_range("step", step, u64::MAX - 1)?), batches }
            }
            Kind::ProbeLink(proto::ProbeLink { bytes }) => {
                Self::ProbeLink { bytes: in_range("bytes", bytes, MAX_PROBE_BYTES)? }
            }
            Kind::Cancel(proto::Cancellations { leases }) => {
                in_range("number of leases", leases.len(), MAX_BATCH)?;
                Self::Cancel(leases.into_iter().map(LeaseId).collect())
            }
            Kind::Collect(proto::Collect { requests, withdrawn }) => {
                let requests = requests.into_iter().map(VectorRequest::from_wire).collect::<Result<Vec<_>, _>>()?;
                at_most("number of withdrawn vectors", withdrawn.len(), MAX_BATCH)?;
                if withdrawn.is_empty() || !requests.is_empty() {
                    check_batch("number of requests", &requests, entries)?;
                }
                Self::Collect { requests, withdrawn: withdrawn.into_iter().map(VectorId).collect() }
            }
            Kind::Reach(proto::Reach { probe, address }) => {
                Self::Reach { probe, address: PeerAddress::from_wire(&address)? }
            }
            Kind::Farewell(farewell) => {
                Self::Farewell { reason: farewell.reason(), detail: truncated(farewell.detail) }
            }
        })
    }
}

impl Welcome {
    fn from_wire(welcome: proto::Welcome) -> Result<Self, WireError> {
        let proto::Welcome { session, number, run_id, heartbeat_interval_ms, idle_heartbeat_interval_ms, run } =
            welcome;
        let session = SessionToken::from_wire(&session)?;
        let worker = WorkerId::new(number).ok_or_else(|| invalid("number", 0, "1 to 4294967295"))?;
        in_range("heartbeat_interval_ms", heartbeat_interval_ms, u32::MAX)?;
        in_range("idle_heartbeat_interval_ms", idle_heartbeat_interval_ms, u32::MAX)?;
        let (run_id, run) = (truncated(run_id), RunSpec::from_wire(run)?);
        Ok(Self { session, worker, run_id, heartbeat_interval_ms, idle_heartbeat_interval_ms, run })
    }
}

impl Assignment {
    fn from_wire(assign: proto::Assign) -> Result<Self, WireError> {
        let proto::Assign { lease, iteration, first_task, tasks, vector, position } = assign;
        in_range("iteration", iteration, u64::MAX)?;
        in_range("tasks", tasks, MAX_LEASE_TASKS)?;
        if first_task.checked_add(tasks).and_then(|end| position.checked_add(end)).is_none() {
            return Err(invalid("tasks", format!("{tasks} from {first_task} after {position}"), "indices below 2^64"));
        }
        let (iteration, tasks) = (Iteration(iteration), TaskRange { first: first_task, count: tasks });
        let lease = Lease { id: LeaseId(lease), iteration, tasks, own: None };
        let vector = (vector > 0).then_some(VectorId(vector));
        Ok(Self { lease, position, vector })
    }
}
