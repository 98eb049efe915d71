//! The HTTP server: the page, its events, and an API for scripts.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ata_net::Peer;
use ata_record::{JournalError, RunState};
use ata_types::{Iteration, WorkerId};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Extension, Form, Query, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{Html, IntoResponse, Json, Redirect, Response};
use axum::routing::{get, post};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, SET_COOKIE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::access::Access;
use crate::explain::explain;
use crate::metrics::Metrics;
use crate::snapshot::{PolicyCost, Snapshot};
use crate::{follow, page};

mod accept;
mod events;

/// The maximum size of a request's body, in bytes: a secret takes 33.
const MOST_BODY_BYTES: usize = 1024;

/// The time in which a request's body must arrive and be answered.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of simultaneous explanations of old iterations: each reads a journal.
const READERS: usize = 2;

/// The time that a client without a valid secret waits for the answer.
const REFUSAL_DELAY: Duration = Duration::from_secs(1);

/// The content security policy: the page loads nothing from other servers, and cannot be framed.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A run on the dashboard.
pub struct DashboardSource {
    /// The state of the run.
    pub state: watch::Receiver<RunState>,
    /// The folder of the run, whose journal has the past iterations.
    pub folder: PathBuf,
    /// A function that computes what other policies would have cost on the run's times. It may take a second.
    pub costs: fn(&RunState) -> Vec<PolicyCost>,
}

/// The content of the server.
pub struct App {
    /// The runs on the dashboard.
    pub runs: Vec<DashboardSource>,
    /// The metrics of `/metrics`, if there is one run, and this process executes it.
    pub metrics: Option<Metrics>,
}

pub(crate) struct DashboardState {
    pub(crate) app: App,
    pub(crate) access: Access,
    pub(crate) viewers: events::Viewers,
    readers: Arc<Semaphore>,
}

type Site = State<Arc<DashboardState>>;

/// Serves requests until `stop` resolves, and then sends the last changes to viewers.
pub async fn serve(listener: TcpListener, access: Access, app: App, stop: impl Future<Output = ()>) {
    let viewers = events::Viewers::new(app.runs.len());
    let shared = Arc::new(DashboardState { app, access, viewers, readers: Arc::new(Semaphore::new(READERS)) });
    let costs = tokio::spawn(events::keep_costs(shared.clone()));
    let router = router(shared.clone());
    tokio::select! {
        never = accept::accept(listener, shared.clone(), router) => match never {},
        () = stop => {}
    }
    costs.abort();
    shared.viewers.end().await;
}

fn router(shared: Arc<DashboardState>) -> Router {
    let read = Router::new()
        .route("/", get(|| async { html(page::live()) }))
        .route("/events", get(watch_events))
        .route("/api/state", get(state))
        .route("/api/explain", get(explanation))
        .route("/metrics", get(metrics))
        .route_layer(from_fn_with_state(shared.clone(), guard));
    Router::new()
        .merge(read)
        .route("/login", post(login).layer(from_fn(in_time)))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .layer(DefaultBodyLimit::max(MOST_BODY_BYTES))
        .with_state(shared)
}

/// Lets permitted requests through. Browsers get a form that asks for the secret.
async fn guard(State(shared): Site, request: Request, next: Next) -> Response {
    if shared.access.permits(request.headers()) {
        return next.run(request).await;
    }
    if matches!(shared.access, Access::Local) {
        let text = "this address is for names of this machine only, as in http://localhost:7071\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    if request.uri().path() == "/" {
        return (StatusCode::UNAUTHORIZED, html(page::LOGIN)).into_response();
    }
    tokio::time::sleep(REFUSAL_DELAY).await;
    (StatusCode::UNAUTHORIZED, "the status secret is wanted: Authorization: Bearer SECRET\n").into_response()
}

/// Closes connections whose request body does not arrive in time.
async fn in_time(request: Request, next: Next) -> Response {
    let answer = tokio::time::timeout(BODY_TIMEOUT, next.run(request)).await;
    answer.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
}

#[derive(Deserialize)]
struct Login {
    secret: String,
}

async fn login(State(shared): Site, Form(login): Form<Login>) -> Response {
    if let Some(cookie) = shared.access.cookie(&login.secret) {
        return ([(SET_COOKIE, cookie)], Redirect::to("./")).into_response();
    }
    tokio::time::sleep(REFUSAL_DELAY).await;
    (StatusCode::UNAUTHORIZED, html(page::LOGIN)).into_response()
}

fn html(text: &'static str) -> impl IntoResponse {
    let headers = [
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, Html(text))
}

async fn ready(State(shared): Site) -> Response {
    if shared.app.runs.iter().all(|run| run.state.borrow().has_begun()) {
        return "ready\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, "starting\n").into_response()
}

async fn watch_events(State(shared): Site, Extension(peer): Extension<Peer>) -> Response {
    match events::stream(shared, &peer) {
        Some(body) => {
            let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
            (headers, body).into_response()
        }
        None => (StatusCode::SERVICE_UNAVAILABLE, "too many browsers are watching\n").into_response(),
    }
}

#[derive(Deserialize)]
struct Selection {
    /// The index of the run, if there are several. By default the first one's allocation is explained, and all states are returned.
    run: Option<usize>,
    iteration: Option<Iteration>,
    worker: Option<WorkerId>,
}

fn not_found(what: impl Into<String>) -> Response {
    (StatusCode::NOT_FOUND, what.into()).into_response()
}

async fn state(State(shared): Site, Query(selection): Query<Selection>) -> Response {
    let of = |index: usize| {
        let costs = shared.viewers.costs(index);
        Snapshot { index, ..Snapshot::of(&shared.app.runs[index].state.borrow(), &costs) }
    };
    match (selection.run, shared.app.runs.len()) {
        (None, 1) => Json(of(0)).into_response(),
        (None, runs) => Json((0..runs).map(of).collect::<Vec<_>>()).into_response(),
        (Some(run), runs) if run < runs => Json(of(run)).into_response(),
        _ => not_found("there is no such run\n"),
    }
}

async fn explanation(State(shared): Site, Query(selection): Query<Selection>) -> Response {
    let Some(source) = shared.app.runs.get(selection.run.unwrap_or(0)) else {
        return not_found("there is no such run\n");
    };
    let only = selection.worker.map(|worker| [worker].into());
    let current = source.state.borrow().allocation.iteration;
    let Some(iteration) = selection.iteration.filter(|iteration| *iteration != current) else {
        return Json(explain(&source.state.borrow(), only.as_ref())).into_response();
    };
    let (folder, permit) = (source.folder.clone(), shared.readers.clone().acquire_owned().await);
    let read = move || {
        // The permit is held until the work is done, even if the client is gone.
        let _permit = permit;
        follow::read_state_at(&folder, iteration)
    };
    let read = tokio::task::spawn_blocking(read).await;
    match read {
        Ok(Ok(Some(state))) => Json(explain(&state, only.as_ref())).into_response(),
        Ok(Ok(None)) => not_found(format!("iteration {iteration} has not begun: the last one is {current}\n")),
        Ok(Err(error @ JournalError::Folded { .. })) => not_found(format!("{error}\n")),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn metrics(State(shared): Site, headers: HeaderMap) -> Response {
    let (Some(metrics), [source]) = (&shared.app.metrics, &shared.app.runs[..]) else {
        return not_found("metrics are those of a coordinator\n");
    };
    let snapshot = Snapshot::of(&source.state.borrow(), &[]);
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (kind, text) = if accepted.contains("application/openmetrics-text") {
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", metrics.encode(&snapshot))
    } else {
        ("text/plain; version=0.0.4; charset=utf-8", metrics.encode_classic(&snapshot))
    };
    ([(CONTENT_TYPE, kind)], text).into_response()
}

#[cfg(test)]
mod tests;
