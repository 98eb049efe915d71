//! Domain types, valid by construction.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use tonic::Status;

use crate::limits::{
    MAX_BUDGET, MAX_DATA_BYTES, MAX_LEASE_TASKS, MAX_NAME_CHARS, MAX_PARAMETERS, MAX_TASK_BATCH, MAX_TEXT_BYTES,
};
use crate::{PROTOCOL, proto};

/// A message that does not hold what the contract says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A field is missing or has no meaning.
    #[error("{field} is {found}: expected {expected}")]
    Invalid {
        /// Which field.
        field: &'static str,
        /// What it holds.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// The other side speaks another version.
    #[error("protocol version {0}: expected {PROTOCOL}; use the same release of ata on all machines")]
    Protocol(u32),
}

impl From<WireError> for Status {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Invalid { .. } => Self::invalid_argument(error.to_string()),
            WireError::Protocol(_) => Self::failed_precondition(error.to_string()),
        }
    }
}

fn invalid(field: &'static str, found: impl fmt::Display, expected: impl Into<String>) -> WireError {
    WireError::Invalid { field, found: found.to_string(), expected: expected.into() }
}

fn missing(field: &'static str) -> WireError {
    invalid(field, "missing", "a value")
}

fn in_range(field: &'static str, value: u64, max: u64) -> Result<u64, WireError> {
    if (1..=max).contains(&value) { Ok(value) } else { Err(invalid(field, value, format!("1 to {max}"))) }
}

fn array<const N: usize>(field: &'static str, bytes: &[u8]) -> Result<[u8; N], WireError> {
    bytes.try_into().map_err(|_| invalid(field, format!("{} bytes", bytes.len()), format!("{N} bytes")))
}

/// A text cut to [`MAX_TEXT_BYTES`], at a character boundary.
pub fn truncated(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
    text
}

/// The secret that names a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionToken(pub [u8; 16]);

impl fmt::Debug for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionToken(secret)")
    }
}

impl SessionToken {
    /// Reads a token from a request.
    pub fn from_wire(bytes: &[u8]) -> Result<Self, WireError> {
        Ok(Self(array("session", bytes)?))
    }

    /// As it goes into a request.
    pub fn to_wire(self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }
}

/// A worker's name: 1 to 64 letters, digits, '.', '_' or '-'.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerName(String);

impl FromStr for WorkerName {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if (1..=MAX_NAME_CHARS).contains(&text.len()) && text.chars().all(valid) {
            return Ok(Self(text.into()));
        }
        let shown: String = text.chars().take(MAX_NAME_CHARS).flat_map(char::escape_debug).collect();
        let expected = format!("1 to {MAX_NAME_CHARS} letters, digits, '.', '_' or '-'");
        Err(invalid("worker name", format!("'{shown}'"), expected))
    }
}

impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a worker says on the control stream.
#[derive(Clone, Debug, PartialEq)]
pub enum FromWorker {
    /// Its first message.
    Hello(Hello),
    /// It can compute.
    Ready,
    /// It is alive.
    Heartbeat,
    /// It could not compute a lease.
    LeaseFailed {
        /// Which.
        lease: u64,
        /// Why, for people.
        reason: String,
    },
}

/// A worker introduces itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Hello {
    /// Names the worker across sessions.
    pub name: WorkerName,
    /// Random per process.
    pub instance: u64,
    /// The 1-based number it would like.
    pub number: Option<u32>,
    /// What it computes on.
    pub device: String,
    /// Version of its program.
    pub version: String,
}

impl From<FromWorker> for proto::WorkerMessage {
    fn from(message: FromWorker) -> Self {
        use proto::worker_message::Kind;
        let kind = match message {
            FromWorker::Hello(hello) => Kind::Hello(proto::Hello {
                protocol: PROTOCOL,
                name: hello.name.0,
                instance: hello.instance,
                number: hello.number.unwrap_or(0),
                device: hello.device,
                version: hello.version,
            }),
            FromWorker::Ready => Kind::Ready(proto::Ready {}),
            FromWorker::Heartbeat => Kind::Heartbeat(proto::Heartbeat {}),
            FromWorker::LeaseFailed { lease, reason } => {
                Kind::LeaseFailed(proto::LeaseFailed { lease, reason: truncated(reason) })
            }
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<proto::WorkerMessage> for FromWorker {
    type Error = WireError;

    fn try_from(message: proto::WorkerMessage) -> Result<Self, WireError> {
        use proto::worker_message::Kind;
        match message.kind.ok_or_else(|| missing("worker message"))? {
            Kind::Hello(hello) => {
                if hello.protocol != PROTOCOL {
                    return Err(WireError::Protocol(hello.protocol));
                }
                Ok(Self::Hello(Hello {
                    name: hello.name.parse()?,
                    instance: hello.instance,
                    number: (hello.number > 0).then_some(hello.number),
                    device: truncated(hello.device),
                    version: truncated(hello.version),
                }))
            }
            Kind::Ready(proto::Ready {}) => Ok(Self::Ready),
            Kind::Heartbeat(proto::Heartbeat {}) => Ok(Self::Heartbeat),
            Kind::LeaseFailed(failed) => {
                Ok(Self::LeaseFailed { lease: failed.lease, reason: truncated(failed.reason) })
            }
        }
    }
}

/// What the coordinator says on the control stream.
#[derive(Clone, Debug, PartialEq)]
pub enum ToWorker {
    /// Its first message.
    Welcome(Welcome),
    /// A lease.
    Assign(Assignment),
    /// A lease is void.
    Cancel {
        /// Which.
        lease: u64,
    },
    /// Its last message.
    Farewell {
        /// Why the session ends.
        reason: FarewellReason,
        /// The same for people.
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
    /// The coordinator stops and may come back.
    Stopping,
}

/// What a worker gets to know when its session begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Welcome {
    /// Names this session in the other calls.
    pub session: SessionToken,
    /// The worker's 1-based number.
    pub number: u32,
    /// The run's name.
    pub run_id: String,
    /// Time between two heartbeats, in milliseconds.
    pub heartbeat_interval_ms: u32,
    /// The run.
    pub run: RunSpec,
}

/// Everything a worker has to know of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    /// The model, as `--model` takes it.
    pub model: String,
    /// Its number of parameters.
    pub parameters: u64,
    /// Seed of the order of samples.
    pub seed: u64,
    /// B, tasks per iteration.
    pub budget: u64,
    /// Samples per task.
    pub task_batch: u32,
    /// Adam's step size.
    pub learning_rate: f64,
    /// The training data.
    pub data: DataSpec,
}

/// The training data of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSpec {
    /// Made on the spot.
    Synthetic {
        /// From this seed.
        seed: u64,
    },
    /// The training split of CIFAR-100.
    Cifar100 {
        /// SHA-256 of `train.bin`.
        train_sha256: [u8; 32],
        /// Its size in bytes.
        train_bytes: u64,
    },
}

/// A lease as it is sent to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Names the lease.
    pub lease: u64,
    /// The iteration, and so the parameters.
    pub iteration: u64,
    /// First task index; a multiple of `tasks`.
    pub first_task: u64,
    /// Number of tasks; a power of two.
    pub tasks: u64,
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
                run: Some(welcome.run.into()),
            }),
            ToWorker::Assign(Assignment { lease, iteration, first_task, tasks }) => {
                Kind::Assign(proto::Assign { lease, iteration, first_task, tasks })
            }
            ToWorker::Cancel { lease } => Kind::Cancel(proto::Cancel { lease }),
            ToWorker::Farewell { reason, detail } => {
                let reason = match reason {
                    FarewellReason::Finished => proto::farewell::Reason::Finished,
                    FarewellReason::Evicted => proto::farewell::Reason::Evicted,
                    FarewellReason::Stopping => proto::farewell::Reason::Stopping,
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
                run: welcome.run.ok_or_else(|| missing("run"))?.try_into()?,
            }),
            Kind::Assign(assign) => Self::Assign(assign.try_into()?),
            Kind::Cancel(proto::Cancel { lease }) => Self::Cancel { lease },
            Kind::Farewell(farewell) => {
                let reason = match farewell.reason() {
                    proto::farewell::Reason::Finished => FarewellReason::Finished,
                    proto::farewell::Reason::Evicted => FarewellReason::Evicted,
                    proto::farewell::Reason::Stopping | proto::farewell::Reason::Unspecified => {
                        FarewellReason::Stopping
                    }
                };
                Self::Farewell { reason, detail: truncated(farewell.detail) }
            }
        })
    }
}

impl From<RunSpec> for proto::RunSpec {
    fn from(run: RunSpec) -> Self {
        use proto::data_spec::Kind;
        let data = match run.data {
            DataSpec::Synthetic { seed } => Kind::Synthetic(proto::SyntheticData { seed }),
            DataSpec::Cifar100 { train_sha256, train_bytes } => {
                Kind::Cifar100(proto::Cifar100Data { train_sha256: Bytes::copy_from_slice(&train_sha256), train_bytes })
            }
        };
        Self {
            model: run.model,
            parameters: run.parameters,
            seed: run.seed,
            budget: run.budget,
            task_batch: run.task_batch,
            learning_rate: run.learning_rate,
            data: Some(proto::DataSpec { kind: Some(data) }),
        }
    }
}

impl TryFrom<proto::RunSpec> for RunSpec {
    type Error = WireError;

    fn try_from(run: proto::RunSpec) -> Result<Self, WireError> {
        use proto::data_spec::Kind;
        let data = run.data.and_then(|data| data.kind).ok_or_else(|| missing("data"))?;
        Ok(Self {
            model: truncated(run.model),
            parameters: in_range("parameters", run.parameters, MAX_PARAMETERS)?,
            seed: run.seed,
            budget: in_range("budget", run.budget, MAX_BUDGET)?,
            task_batch: in_range("task_batch", run.task_batch.into(), MAX_TASK_BATCH.into())? as u32,
            learning_rate: run.learning_rate,
            data: match data {
                Kind::Synthetic(proto::SyntheticData { seed }) => DataSpec::Synthetic { seed },
                Kind::Cifar100(data) => DataSpec::Cifar100 {
                    train_sha256: array("train_sha256", &data.train_sha256)?,
                    train_bytes: in_range("train_bytes", data.train_bytes, MAX_DATA_BYTES)?,
                },
            },
        })
    }
}

impl TryFrom<proto::Assign> for Assignment {
    type Error = WireError;

    fn try_from(assign: proto::Assign) -> Result<Self, WireError> {
        let proto::Assign { lease, iteration, first_task, tasks } = assign;
        in_range("iteration", iteration, u64::MAX)?;
        in_range("tasks", tasks, MAX_LEASE_TASKS)?;
        if !tasks.is_power_of_two() || !first_task.is_multiple_of(tasks) || first_task.checked_add(tasks).is_none() {
            let found = format!("{tasks} from {first_task}");
            return Err(invalid("tasks", found, "a power of two, from a multiple of it"));
        }
        Ok(Self { lease, iteration, first_task, tasks })
    }
}

/// What comes before a gradient's chunks.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientHeader {
    /// Whose it is.
    pub session: SessionToken,
    /// The lease it answers.
    pub lease: u64,
    /// The iteration of that lease.
    pub iteration: u64,
    /// Seconds each task took: finite, not negative, one to [`MAX_LEASE_TASKS`] of them.
    pub busy_s: Vec<f64>,
    /// Sum of the tasks' mean losses, in nats. One that is not finite fails the lease, as a gradient that is not finite does.
    pub loss_sum: f64,
    /// Tasks whose computation outlasted their emulated time.
    pub outlasted: u64,
}

impl From<GradientHeader> for proto::GradientHeader {
    fn from(header: GradientHeader) -> Self {
        let GradientHeader { session, lease, iteration, busy_s, loss_sum, outlasted } = header;
        Self { session: session.to_wire(), lease, iteration, busy_s, loss_sum, outlasted }
    }
}

impl TryFrom<proto::GradientHeader> for GradientHeader {
    type Error = WireError;

    fn try_from(header: proto::GradientHeader) -> Result<Self, WireError> {
        in_range("number of busy_s", header.busy_s.len() as u64, MAX_LEASE_TASKS)?;
        if let Some(time) = header.busy_s.iter().find(|time| !time.is_finite() || **time < 0.0) {
            return Err(invalid("busy_s", time, "finite seconds of at least 0"));
        }
        Ok(Self {
            session: SessionToken::from_wire(&header.session)?,
            lease: header.lease,
            iteration: header.iteration,
            busy_s: header.busy_s,
            loss_sum: header.loss_sum,
            outlasted: header.outlasted,
        })
    }
}
