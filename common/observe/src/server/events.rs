//! Server-sent events: viewers receive a complete snapshot of each run, and then its changes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ata_net::Peer;
use ata_record::RunState;
use axum::body::Body;
use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::server::DashboardState;
use crate::snapshot::{Cursor, PolicyCost, Snapshot};

const MOST_VIEWERS: usize = 64;

/// The time between two messages to a viewer.
const INTERVAL: Duration = Duration::from_secs(1);

/// The time after which a stream ends and the browser reconnects, so that an abandoned one does not stay forever.
const LONGEST: Duration = Duration::from_hours(1);

/// The time between two computations of other policies' costs, each of which takes a second.
const COSTS_INTERVAL: Duration = Duration::from_secs(20);

/// The number of iterations from which other policies' costs are meaningful.
const LEAST_ITERATIONS: u64 = 10;

/// The time that viewers have to receive the last message.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Viewers {
    places: Arc<Semaphore>,
    costs: Vec<watch::Sender<Arc<Vec<PolicyCost>>>>,
    over: watch::Sender<bool>,
}

impl Viewers {
    pub(crate) fn new(runs: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(MOST_VIEWERS)),
            costs: (0..runs).map(|_| watch::Sender::default()).collect(),
            over: watch::Sender::new(false),
        }
    }

    /// Returns the last computed costs of other policies.
    pub(crate) fn costs(&self, run: usize) -> Arc<Vec<PolicyCost>> {
        self.costs[run].borrow().clone()
    }

    fn any(&self) -> bool {
        self.places.available_permits() < MOST_VIEWERS
    }

    /// Sends the last changes to all viewers.
    pub(crate) async fn end(&self) {
        self.over.send_replace(true);
        drop(tokio::time::timeout(GOODBYE_TIMEOUT, self.places.acquire_many(MOST_VIEWERS as u32)).await);
    }
}

/// Returns the events for one more viewer, and keeps its connection open; `None` if there are too many viewers.
pub(crate) fn stream(shared: Arc<DashboardState>, peer: &Peer) -> Option<Body> {
    let place = (shared.viewers.places.clone().try_acquire_owned().ok()?, peer.keep_open());
    let (sender, events) = mpsc::channel::<Result<Bytes, Infallible>>(1);
    tokio::spawn(send_changes(shared, sender));
    // The place is freed once everything is written, or the connection is gone.
    let events = ReceiverStream::new(events).map(move |event| {
        let _place = &place;
        event
    });
    Some(Body::from_stream(events))
}

async fn send_changes(shared: Arc<DashboardState>, events: mpsc::Sender<Result<Bytes, Infallible>>) {
    let mut readers: Vec<EventReader> =
        (0..shared.app.runs.len()).map(|index| EventReader::new(&shared, index)).collect();
    let (mut over, began) = (shared.viewers.over.subscribe(), Instant::now());
    loop {
        // This is read before the messages are made, so that the last ones include the end.
        let is_over = *over.borrow_and_update();
        let mut text = String::new();
        for reader in &mut readers {
            reader.append(&mut text);
        }
        if text.is_empty() {
            // A comment line is sent to detect that the connection is gone.
            text = ":\n\n".into();
        }
        let is_gone = events.send(Ok(text.into())).await.is_err();
        if is_gone || is_over || began.elapsed() > LONGEST {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            // An error means that the server is gone.
            _ = over.changed() => {}
        }
    }
}

/// The part of a run that a viewer has received.
struct EventReader {
    index: usize,
    cursor: Cursor,
    state: watch::Receiver<RunState>,
    costs: watch::Receiver<Arc<Vec<PolicyCost>>>,
    /// Whether the viewer has received the run's last event.
    has_ended: bool,
}

impl EventReader {
    fn new(shared: &DashboardState, index: usize) -> Self {
        let mut state = shared.app.runs[index].state.clone();
        // The first message has all of it.
        state.mark_changed();
        let costs = shared.viewers.costs[index].subscribe();
        Self { index, cursor: Cursor::default(), state, costs, has_ended: false }
    }

    /// Appends the changes since the last call.
    fn append(&mut self, text: &mut String) {
        // An error means that the run is over: its last events may not have been sent.
        let is_new = self.state.has_changed().unwrap_or_else(|_| !std::mem::replace(&mut self.has_ended, true));
        if !is_new && !self.costs.has_changed().unwrap_or(false) {
            return;
        }
        let costs = self.costs.borrow_and_update().clone();
        let changes = Snapshot::since(&mut self.cursor, &self.state.borrow_and_update(), &costs);
        let message = Snapshot { index: self.index, ..changes };
        *text += "data: ";
        *text += &serde_json::to_string(&message).expect("names and numbers can be written");
        *text += "\n\n";
    }
}

/// Keeps the costs of other policies up to date while there are viewers.
pub(crate) async fn keep_costs(shared: Arc<DashboardState>) {
    let mut known = vec![(0, None); shared.app.runs.len()];
    loop {
        for (index, (iterations, at)) in known.iter_mut().enumerate() {
            let source = &shared.app.runs[index];
            let (now, is_over) = {
                let state = source.state.borrow();
                (state.iterations, state.is_over())
            };
            let is_due = at.is_none_or(|at: Instant| at.elapsed() >= COSTS_INTERVAL);
            let is_new = now > *iterations && (now >= LEAST_ITERATIONS || is_over);
            if !(is_new && is_due && shared.viewers.any()) {
                continue;
            }
            let (state, costs) = (source.state.clone(), source.costs);
            let work = move || {
                let state = state.borrow().clone();
                costs(&state)
            };
            if let Ok(rows) = tokio::task::spawn_blocking(work).await {
                shared.viewers.costs[index].send_replace(Arc::new(rows));
            }
            (*iterations, *at) = (now, Some(Instant::now()));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
