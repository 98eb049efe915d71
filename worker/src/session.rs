//! One session, from Hello to the end of the control stream.

mod active;
mod sharing;

use std::cmp;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ata_data::{Split, Tasks};
use ata_net::limits::{CONNECT_TIMEOUT, MAX_UPLOADS};
use ata_sums::{TensorSizes, Units, UnitsError};
use ata_types::{Iteration, LeaseId, VectorId, WireFormat};
use ata_wire::proto::{CoordinatorMessage, WorkerMessage};
use ata_wire::{
    Assignment, ComputedLease, Connection, FarewellReason, FromWorker, Hello, ParameterPart, ParameterStream, Receipt,
    ToWorker, VectorRequest, Welcome, connect,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

use crate::compute::{CancelFlag, Compute, ComputeEvent, Job, LocalSteps};
use crate::config::WorkerConfig;
use crate::data::{SessionData, SplitSource, model_of, tensors};
use crate::download::DataLink;
use crate::error::{SessionError, WorkerError};
use crate::evaluation::WorkerEvaluations;
use crate::exchange::{Connections, ExchangeEvent, MemberExchange, PeerServer};
use crate::heartbeats::{Heartbeats, process_usage};
use crate::parameters::Parameters;
use crate::transfer::{CollectedSum, chunks};
use active::ActiveSession;
use sharing::Sharing;

/// The number of messages to the coordinator that may wait to be sent. After Hello, these are Ready, heartbeats and failures.
const QUEUED_MESSAGES: usize = 16;

/// The time to wait for the coordinator's Farewell after a transfer broke off, which is more than a round trip.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// The state that a worker keeps across sessions.
pub(crate) struct History {
    /// The time at which a coordinator was last heard from.
    pub(crate) contact: Instant,
    /// Whether a coordinator has ever accepted the worker.
    pub(crate) is_accepted: bool,
    /// Whether a gradient of the last session was accepted.
    pub(crate) worked: bool,
    /// The training data of the last run, so that it is not checked again when a coordinator returns.
    pub(crate) data: Option<SessionData>,
    pub(crate) test_data: Option<SessionData>,
    pub(crate) link: DataLink,
    /// The own parameters of a worker that takes local steps, and the id of their run.
    local: Option<(String, LocalSteps)>,
}

impl History {
    pub(crate) fn new(now: Instant) -> Self {
        let link = DataLink::default();
        Self { contact: now, is_accepted: false, worked: false, data: None, test_data: None, link, local: None }
    }
}

pub(crate) async fn run(
    config: &WorkerConfig,
    peers: Option<&PeerServer>,
    history: &mut History,
    leave: &CancellationToken,
) -> Result<FarewellReason, SessionError> {
    history.worked = false;
    let (_control, to_coordinator, mut incoming, welcome) = tokio::select! {
        opened = open(config) => opened?,
        () = leave.cancelled() => return Ok(FarewellReason::Left),
    };
    tracing::info!(run = welcome.run_id, number = %welcome.worker, "connected to {}", config.endpoint);
    (history.contact, history.is_accepted) = (Instant::now(), true);

    let has_work = AtomicBool::new(false);
    let heartbeats = heartbeats(to_coordinator.clone(), &welcome, &has_work);
    let work = async {
        // Parameters and gradients use a separate connection, so that heartbeats do not wait behind them.
        let bulk = connect(&config.endpoint).await.map_err(SessionError::connect)?;
        let served = Served { config, peers, welcome: &welcome, has_work: &has_work, leave };
        match prepare_and_work(&served, bulk, &mut incoming, to_coordinator, history).await {
            Err(SessionError::Broken(cause)) => {
                farewell(&mut incoming).await.unwrap_or(Err(SessionError::Broken(cause)))
            }
            ended => ended,
        }
    };
    let ended = tokio::select! {
        ended = work => ended,
        never = heartbeats => match never {},
    };
    history.contact = Instant::now();
    ended
}

/// Connects to the coordinator and introduces the worker. Returns the connection, both ends of the session's messages, and its Welcome.
async fn open(
    config: &WorkerConfig,
) -> Result<(Connection, mpsc::Sender<WorkerMessage>, Streaming<CoordinatorMessage>, Welcome), SessionError> {
    let connection = connect(&config.endpoint).await.map_err(SessionError::connect)?;
    let mut control = connection.coordinator();
    let (to_coordinator, outgoing) = mpsc::channel::<WorkerMessage>(QUEUED_MESSAGES);
    let hello = FromWorker::Hello(Hello {
        name: config.name.clone(),
        instance: config.instance,
        number: config.number,
        device: config.device.name.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
    });
    send(&to_coordinator, hello);
    let opened = answered(config, async {
        let mut incoming = control.session(ReceiverStream::new(outgoing)).await?.into_inner();
        let first = incoming.message().await?;
        Ok::<_, tonic::Status>((incoming, first))
    });
    let (incoming, first) = opened.await?;
    let Some(ToWorker::Welcome(welcome)) = first.map(ToWorker::try_from).transpose()? else {
        return Err(SessionError::protocol("no Welcome as the first message"));
    };
    Ok((connection, to_coordinator, incoming, welcome))
}

/// Waits for the beginning of an answer as long as for a connection.
async fn answered<T>(
    config: &WorkerConfig,
    answer: impl Future<Output = Result<T, tonic::Status>>,
) -> Result<T, SessionError> {
    let silent =
        |_| format!("the coordinator at {} does not answer within {} s", config.endpoint, CONNECT_TIMEOUT.as_secs());
    let answer = tokio::time::timeout(CONNECT_TIMEOUT, answer).await;
    answer.map_err(silent).map_err(SessionError::Broken)?.map_err(|status| SessionError::call(&status))
}

/// Waits for the Farewell of a coordinator whose run is ending, since a transfer may break off before the Farewell is read.
async fn farewell(incoming: &mut Streaming<CoordinatorMessage>) -> Option<Result<FarewellReason, SessionError>> {
    let said = async {
        while let Ok(Some(message)) = incoming.message().await {
            if let Ok(ToWorker::Farewell { reason, detail }) = message.try_into() {
                return Some(ended(reason, detail));
            }
        }
        None
    };
    tokio::time::timeout(FAREWELL_TIMEOUT, said).await.ok().flatten()
}

fn ended(reason: FarewellReason, detail: String) -> Result<FarewellReason, SessionError> {
    if reason == FarewellReason::Expelled {
        return Err(WorkerError::Refused(detail).into());
    }
    tracing::info!("{detail}");
    Ok(reason)
}

/// Queues a message. If the queue is full, the connection is in trouble, and the control stream will report it.
fn send(to_coordinator: &mpsc::Sender<WorkerMessage>, message: FromWorker) {
    drop(to_coordinator.try_send(message.into()));
}

async fn heartbeats(
    to_coordinator: mpsc::Sender<WorkerMessage>,
    welcome: &Welcome,
    has_work: &AtomicBool,
) -> std::convert::Infallible {
    let interval = Duration::from_millis(welcome.heartbeat_interval_ms.into());
    let idle_interval = Duration::from_millis(welcome.idle_heartbeat_interval_ms.into());
    let mut ticks = tokio::time::interval(interval);
    let mut heartbeats = Heartbeats::new(Instant::now(), interval, idle_interval);
    loop {
        ticks.tick().await;
        if let Some(idle) = heartbeats.due(Instant::now(), has_work.load(Ordering::Relaxed)) {
            send(&to_coordinator, FromWorker::Heartbeat { idle, usage: process_usage() });
        }
    }
}

struct Served<'a> {
    config: &'a WorkerConfig,
    peers: Option<&'a PeerServer>,
    welcome: &'a Welcome,
    /// Whether the worker has work, which its heartbeats report.
    has_work: &'a AtomicBool,
    /// Cancelled when the worker shall leave.
    leave: &'a CancellationToken,
}

async fn prepare_and_work(
    served: &Served<'_>,
    bulk: Connection,
    incoming: &mut Streaming<CoordinatorMessage>,
    to_coordinator: mpsc::Sender<WorkerMessage>,
    history: &mut History,
) -> Result<FarewellReason, SessionError> {
    let Served { config, peers, welcome, leave, .. } = *served;
    let stream = answered(config, bulk.parameters(welcome.session, None)).await?;
    let (events, received) = mpsc::channel(MAX_UPLOADS);
    let History { data, test_data, link, worked, local, .. } = history;
    let _open = link.open(bulk.clone(), welcome.session);
    let prepared = prepare(config, welcome, link, data, local, events);
    // The run may end before the worker is ready.
    let compute = tokio::select! {
        compute = prepared => compute?,
        () = leave.cancelled() => return Ok(FarewellReason::Left),
        message = incoming.message() => {
            return match next_message(message)? {
                ToWorker::Farewell { reason, detail } => ended(reason, detail),
                _ => Err(SessionError::protocol("an assignment before Ready")),
            };
        }
    };
    let (events, exchanged) = mpsc::channel(QUEUED_MESSAGES);
    let mut active = ActiveSession {
        stream,
        parameters: Parameters::new(welcome.run.parameters),
        sharing: Sharing::new(peers, to_coordinator.clone(), events),
        evaluations: WorkerEvaluations::new(config, welcome, bulk.clone(), link.clone(), test_data),
        bulk,
        served,
        to_coordinator,
        compute: &compute,
        loaded: None,
        units: None,
        waiting: Vec::new(),
        waits_since: None,
        waited: (LeaseId(0), 0.0),
        given: HashMap::new(),
        asked: Vec::new(),
        rounds: 0,
        progress: Vec::new(),
        uploads: JoinSet::new(),
        probes: JoinSet::new(),
        worked,
        is_leaving: false,
    };
    let ended = active.work(incoming, received, exchanged).await;
    for flag in active.given.values().chain(active.asked.iter().map(|asked| &asked.withdrawn)) {
        compute.cancel(flag);
    }
    drop(active);
    // A new session must not begin before the old one's computation is over. A worker that leaves begins none.
    if !leave.is_cancelled() {
        *local = compute.finish().await.map(|local| (welcome.run_id.clone(), local));
    }
    ended
}

/// Prepares model and data, and starts a thread that computes with them.
async fn prepare(
    config: &WorkerConfig,
    welcome: &Welcome,
    link: &DataLink,
    opened: &mut Option<SessionData>,
    local: &mut Option<(String, LocalSteps)>,
    events: mpsc::Sender<ComputeEvent>,
) -> Result<Compute, SessionError> {
    let run = &welcome.run;
    let model = model_of(config.models, run)?;
    let table = model.table();
    if tensors(&table) != run.tensors {
        let here = table.parameters();
        let counts =
            format!("'{}' has {here} parameters here, but {} or tensors of other sizes", run.model, run.parameters);
        return Err(WorkerError::OtherModel(counts).into());
    }
    let source = SplitSource::new(config, run, Split::Train, link);
    let data = opened.insert(source.open(opened.clone()).await?).data.clone();
    let budget = if run.counts_tasks() { u64::MAX } else { run.budget };
    let tasks = Tasks { seed: run.seed, budget, task_batch: run.task_batch };
    let task_time = config.task_times.as_ref().map(|of| of(welcome.worker, run.seed)).transpose();
    let task_time = task_time.map_err(WorkerError::TaskTime)?;
    let device = config.device.clone();
    let (sizes, seed) = (TensorSizes::from(&table), run.seed);
    let fuses = run.inner_steps.is_none()
        && data.fuses()
        && (config.fuse || task_time.as_ref().is_some_and(|task_time| task_time.fuses));
    let learner = move || {
        let mut learner = data.learner(&device, tasks);
        // It is warmed up at numbers of a usual magnitude: at zeros, some models divide by 0.
        match model.initial_parameters(seed) {
            Ok(parameters) => learner.load(&parameters),
            Err(error) => tracing::warn!(%error, "there are no parameters for the first computation"),
        }
        learner
    };
    let last = local.take().filter(|(run_id, _)| *run_id == welcome.run_id).map(|(_, last)| last);
    Ok(Compute::start(learner, run, sizes, fuses, task_time, last, events))
}

fn next_message(message: Result<Option<CoordinatorMessage>, tonic::Status>) -> Result<ToWorker, SessionError> {
    match message {
        Ok(Some(message)) => Ok(message.try_into()?),
        Ok(None) => Err(SessionError::Broken("the coordinator closed the session".into())),
        Err(status) => Err(SessionError::call(&status)),
    }
}
