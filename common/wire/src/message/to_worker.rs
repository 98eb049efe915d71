//! The coordinator's messages on the control stream.

use super::{RunSpec, SessionToken, TraceContext, WireError, in_range, invalid, missing, truncated};
use crate::limits::{MAX_BATCH, MAX_LEASE_TASKS};
use crate::proto;

/// A message from the coordinator on the control stream.
#[derive(Clone, Debug, PartialEq)]
pub enum ToWorker {
    /// The first message of a session.
    Welcome(Welcome),
    /// Leases to compute in this order; at most [`MAX_BATCH`].
    Assign(Vec<Assignment>),
    /// Leases that are no longer needed; at most [`MAX_BATCH`].
    Cancel(Vec<u64>),
    /// The last message of a session.
    Farewell {
        /// Why the session ends.
        reason: FarewellReason,
        /// The same, human-readable.
        detail: String,
    },
}

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarewellReason {
    /// The run is over.
    Finished,
    /// The worker let a lease run out.
    Evicted,
    /// The coordinator is stopping, and may come back.
    Stopping,
    /// The run failed.
    Failed,
    /// The worker failed too often, and its name is refused from now on.
    Expelled,
}

/// What the coordinator tells a worker when a session begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Welcome {
    /// Identifies this session in the other calls.
    pub session: SessionToken,
    /// The worker's 1-based number.
    pub number: u32,
    /// The run's name.
    pub run_id: String,
    /// Time between two heartbeats of a worker that has work, in milliseconds.
    pub heartbeat_interval_ms: u32,
    /// The same of one that has none.
    pub idle_heartbeat_interval_ms: u32,
    /// The run.
    pub run: RunSpec,
}

/// A lease as it is sent to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The lease's id.
    pub lease: u64,
    /// The iteration, which determines the parameters.
    pub iteration: u64,
    /// First task index.
    pub first_task: u64,
    /// Number of tasks.
    pub tasks: u64,
    /// The span of the lease, if a trace is kept.
    pub trace: Option<TraceContext>,
}

impl Assignment {
    /// Whether its tasks are one subtree of the reduction tree, as those of a worker that does not fuse must be: a power
    /// of two, starting at a multiple of it.
    pub fn is_subtree(&self) -> bool {
        self.tasks.is_power_of_two() && self.first_task.is_multiple_of(self.tasks)
    }
}

impl From<ToWorker> for proto::CoordinatorMessage {
    fn from(message: ToWorker) -> Self {
        use proto::coordinator_message::Kind;
        let kind = match message {
            ToWorker::Welcome(welcome) => Kind::Welcome(proto::Welcome {
                session: welcome.session.to_wire(),
                number: welcome.number,
                run_id: welcome.run_id,
                heartbeat_interval_ms: welcome.heartbeat_interval_ms,
                idle_heartbeat_interval_ms: welcome.idle_heartbeat_interval_ms,
                run: Some(welcome.run.into()),
            }),
            ToWorker::Assign(leases) => {
                let assign = |Assignment { lease, iteration, first_task, tasks, trace }| proto::Assign {
                    lease,
                    iteration,
                    first_task,
                    tasks,
                    traceparent: trace.map(|trace| trace.to_string()).unwrap_or_default(),
                };
                Kind::Assign(proto::Assignments { leases: leases.into_iter().map(assign).collect() })
            }
            ToWorker::Cancel(leases) => Kind::Cancel(proto::Cancellations { leases }),
            ToWorker::Farewell { reason, detail } => {
                let reason = match reason {
                    FarewellReason::Finished => proto::farewell::Reason::Finished,
                    FarewellReason::Evicted => proto::farewell::Reason::Evicted,
                    FarewellReason::Stopping => proto::farewell::Reason::Stopping,
                    FarewellReason::Failed => proto::farewell::Reason::Failed,
                    FarewellReason::Expelled => proto::farewell::Reason::Expelled,
                };
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
            Kind::Welcome(welcome) => Self::Welcome(Welcome {
                session: SessionToken::from_wire(&welcome.session)?,
                number: in_range("number", welcome.number.into(), u32::MAX.into())? as u32,
                run_id: truncated(welcome.run_id),
                heartbeat_interval_ms: in_range(
                    "heartbeat_interval_ms",
                    welcome.heartbeat_interval_ms.into(),
                    u32::MAX.into(),
                )? as u32,
                idle_heartbeat_interval_ms: in_range(
                    "idle_heartbeat_interval_ms",
                    welcome.idle_heartbeat_interval_ms.into(),
                    u32::MAX.into(),
                )? as u32,
                run: welcome.run.ok_or_else(|| missing("run"))?.try_into()?,
            }),
            Kind::Assign(proto::Assignments { leases }) => {
                in_range("number of leases", leases.len() as u64, MAX_BATCH as u64)?;
                Self::Assign(leases.into_iter().map(Assignment::try_from).collect::<Result<_, _>>()?)
            }
            Kind::Cancel(proto::Cancellations { leases }) => {
                in_range("number of leases", leases.len() as u64, MAX_BATCH as u64)?;
                Self::Cancel(leases)
            }
            Kind::Farewell(farewell) => {
                let reason = match farewell.reason() {
                    proto::farewell::Reason::Finished => FarewellReason::Finished,
                    proto::farewell::Reason::Evicted => FarewellReason::Evicted,
                    proto::farewell::Reason::Failed => FarewellReason::Failed,
                    proto::farewell::Reason::Expelled => FarewellReason::Expelled,
                    proto::farewell::Reason::Stopping | proto::farewell::Reason::Unspecified => {
                        FarewellReason::Stopping
                    }
                };
                Self::Farewell { reason, detail: truncated(farewell.detail) }
            }
        })
    }
}

impl TryFrom<proto::Assign> for Assignment {
    type Error = WireError;

    fn try_from(assign: proto::Assign) -> Result<Self, WireError> {
        let proto::Assign { lease, iteration, first_task, tasks, traceparent } = assign;
        in_range("iteration", iteration, u64::MAX)?;
        in_range("tasks", tasks, MAX_LEASE_TASKS)?;
        if first_task.checked_add(tasks).is_none() {
            return Err(invalid("tasks", format!("{tasks} from {first_task}"), "indices below 2^64"));
        }
        Ok(Self { lease, iteration, first_task, tasks, trace: TraceContext::parse(&traceparent) })
    }
}
