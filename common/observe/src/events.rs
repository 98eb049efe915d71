//! Server-sent events: those who watch get the whole of each run, and then what changes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ata_wire::Peer;
use axum::body::Body;
use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::server::Shared;
use crate::view::{CostRow, Cursor, View};

/// Browsers that may watch at a time.
const MOST_VIEWERS: usize = 64;

/// Time between two messages to a browser.
const INTERVAL: Duration = Duration::from_secs(1);

/// A stream ends after this long, and the browser asks again: one that nobody reads does not stay for ever.
const LONGEST: Duration = Duration::from_hours(1);

/// Time between two times that it is worked out what other policies would have cost, as that takes a second.
const COSTS_INTERVAL: Duration = Duration::from_secs(20);

/// Iterations before which other policies' costs would say nothing.
const LEAST_ITERATIONS: u64 = 10;

/// Time that those who watch have to take the last message.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// Those who watch.
pub(crate) struct Viewers {
    places: Arc<Semaphore>,
    costs: Vec<watch::Sender<Arc<Vec<CostRow>>>>,
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

    /// What other policies would have cost, as known.
    pub(crate) fn costs(&self, run: usize) -> Arc<Vec<CostRow>> {
        self.costs[run].borrow().clone()
    }

    fn are_there(&self) -> bool {
        self.places.available_permits() < MOST_VIEWERS
    }

    /// Sends all of them what is left to say.
    pub(crate) async fn end(&self) {
        self.over.send_replace(true);
        drop(tokio::time::timeout(GOODBYE_TIMEOUT, self.places.acquire_many(MOST_VIEWERS as u32)).await);
    }
}

/// The events for one more browser, whose connection stays while it watches; `None` if there are too many.
pub(crate) fn stream(shared: Arc<Shared>, peer: &Peer) -> Option<Body> {
    let place = (shared.viewers.places.clone().try_acquire_owned().ok()?, peer.stay());
    let (sender, events) = mpsc::channel::<Result<Bytes, Infallible>>(1);
    tokio::spawn(tell(shared, sender));
    // The place is given back when all was written, or the connection is gone.
    let events = ReceiverStream::new(events).map(move |event| {
        let _place = &place;
        event
    });
    Some(Body::from_stream(events))
}

async fn tell(shared: Arc<Shared>, events: mpsc::Sender<Result<Bytes, Infallible>>) {
    let mut readers: Vec<Reader> = (0..shared.app.runs.len()).map(|index| Reader::new(&shared, index)).collect();
    let (mut over, began) = (shared.viewers.over.subscribe(), Instant::now());
    loop {
        // Seen before the messages are made, so that the last ones hold the end.
        let is_over = *over.borrow_and_update();
        let mut text = String::new();
        for reader in &mut readers {
            reader.append(&mut text);
        }
        if text.is_empty() {
            // A comment, by which a connection that is gone is noticed.
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

/// How much of a run a browser has seen.
struct Reader {
    index: usize,
    cursor: Cursor,
    view: watch::Receiver<View>,
    costs: watch::Receiver<Arc<Vec<CostRow>>>,
    has_begun: bool,
    /// Whether it has seen the run after its last event.
    has_ended: bool,
}

impl Reader {
    fn new(shared: &Shared, index: usize) -> Self {
        let view = shared.app.runs[index].view.clone();
        let costs = shared.viewers.costs[index].subscribe();
        Self { index, cursor: Cursor::default(), view, costs, has_begun: false, has_ended: false }
    }

    /// Appends what is new.
    fn append(&mut self, text: &mut String) {
        // An error means that the run is over: its last events may not have been seen.
        let is_new = self.view.has_changed().unwrap_or_else(|_| !std::mem::replace(&mut self.has_ended, true));
        let has_changed = is_new || self.costs.has_changed().unwrap_or(false);
        if self.has_begun && !has_changed {
            return;
        }
        self.has_begun = true;
        let costs = self.costs.borrow_and_update().clone();
        let message = self.view.borrow_and_update().message(self.index, &mut self.cursor, &costs);
        *text += "data: ";
        *text += &serde_json::to_string(&message).expect("names and numbers can be written");
        *text += "\n\n";
    }
}

/// Keeps what other policies would have cost up to date while someone watches.
pub(crate) async fn keep_costs(shared: Arc<Shared>) {
    let mut known = vec![(0, None); shared.app.runs.len()];
    loop {
        for (index, (iterations, at)) in known.iter_mut().enumerate() {
            let source = &shared.app.runs[index];
            let (now, is_over) = {
                let view = source.view.borrow();
                (view.state.iterations, view.is_over())
            };
            let is_due = at.is_none_or(|at: Instant| at.elapsed() >= COSTS_INTERVAL);
            let is_new = now > *iterations && (now >= LEAST_ITERATIONS || is_over);
            if !(is_new && is_due && shared.viewers.are_there()) {
                continue;
            }
            let (view, costs) = (source.view.clone(), source.costs.clone());
            let work = move || {
                let state = view.borrow().state.clone();
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
