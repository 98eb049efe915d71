//! Tests that a request without credentials changes nothing. Every call of both ports is made to a coordinator with a run in progress, by
//! clients that know everything except the secret.
#![cfg(unix)]

use crate::support::{Process, Sandbox, TINY, until};
use ata_learn::builtin_model;
use ata_net::{JoinToken, Secret};
use ata_observe::Client;
use ata_sums::encode_sums;
use ata_types::{CHUNK_VALUES, Iteration, LeaseId};
use ata_wire::proto::{DataRequest, ParametersRequest, ProbeRequest, WorkerMessage};
use ata_wire::{
    ComputedLease, Connection, FromWorker, GradientHeader, Hello, LeaseTimes, Receipt, RunSpec, ToWorker,
    VectorRequest, Welcome, connect, gradient_parts,
};
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use ureq::http::{Method, Request};
use ureq::tls::TlsConfig;

/// Returns the hello of the worker that takes part, whom strangers impersonate.
fn hello() -> WorkerMessage {
    let hello = Hello {
        name: "honest".parse().unwrap(),
        instance: 1,
        number: None,
        device: "scripted".into(),
        version: String::new(),
    };
    FromWorker::Hello(hello).into()
}

/// A worker that the test controls step by step.
struct Worker {
    connection: Connection,
    incoming: Streaming<ata_wire::proto::CoordinatorMessage>,
    outgoing: mpsc::Sender<WorkerMessage>,
    welcome: Welcome,
    /// The units of the iteration's gradients, once the coordinator has sent them.
    units: Option<(Vec<i16>, Bytes)>,
    /// The most recently assigned leases.
    leases: Vec<LeaseId>,
}

impl Worker {
    async fn join(token: JoinToken) -> Self {
        let connection = connect(&token.into()).await.unwrap();
        let (outgoing, messages) = mpsc::channel(4);
        outgoing.send(hello()).await.unwrap();
        outgoing.send(FromWorker::Ready { fuses: false, peer_address: None }.into()).await.unwrap();
        let mut incoming = connection.coordinator().session(ReceiverStream::new(messages)).await.unwrap().into_inner();
        let first = incoming.message().await.unwrap().unwrap();
        let Ok(ToWorker::Welcome(welcome)) = ToWorker::try_from(first) else { panic!("no Welcome") };
        Self { connection, incoming, outgoing, welcome, units: None, leases: Vec::new() }
    }

    async fn next(&mut self) -> ToWorker {
        self.incoming.message().await.unwrap().unwrap().try_into().unwrap()
    }

    /// Waits for a request for the sum of its only lease; `None` if the run ends before.
    async fn asked(&mut self) -> Option<VectorRequest> {
        loop {
            match self.next().await {
                ToWorker::Collect { mut requests, .. } => return requests.pop(),
                ToWorker::Farewell { .. } => return None,
                ToWorker::Units { units, shifts, .. } => self.units = Some((units, shifts)),
                ToWorker::Assign(leases) => self.leases = leases.iter().map(|assigned| assigned.lease.id).collect(),
                ToWorker::Evaluate { .. } | ToWorker::ProbeLink { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Reports that its leases of one task each have been computed.
    async fn has_computed(&self) {
        let times = LeaseTimes { busy_s: vec![0.1], ..LeaseTimes::default() };
        let computed = |&lease| ComputedLease { lease, times: times.clone(), losses: vec![1.0] };
        let progress = FromWorker::Progress(self.leases.iter().map(computed).collect());
        self.outgoing.send(progress.into()).await.unwrap();
    }

    /// Returns a valid sum of zeros, with the right session and length.
    fn sum(&self, collection: &VectorRequest) -> (GradientHeader, impl Iterator<Item = Bytes> + use<>) {
        let RunSpec { model, parameters, format, .. } = self.welcome.run.clone();
        let tensors = builtin_model(&model).unwrap().table().tensors.len();
        let header = GradientHeader {
            session: self.welcome.session,
            vector: collection.id,
            maxima: vec![0.0; tensors],
            units: Vec::new(),
            units_crc32c: 0,
            saturated: 0,
            vanished: 0,
        };
        let (units, shifts) = self.units.clone().unwrap_or_else(|| (vec![0; tensors], Bytes::new()));
        let header = header.in_units(&units, &shifts);
        let chunk = move |first| encode_sums(format, &vec![0; CHUNK_VALUES.min(parameters as usize - first)]).into();
        (header, (0..parameters as usize).step_by(CHUNK_VALUES).map(chunk))
    }
}

/// Makes every call of the workers' port in the name of the worker, and returns the results. The calls are concurrent because a wrong
/// secret is answered after a second.
async fn try_all_calls(stranger: &Connection, worker: &Worker, asked: &VectorRequest) -> [Result<(), Status>; 5] {
    let session = worker.welcome.session.to_wire();
    let (header, chunks) = worker.sum(asked);
    let data = DataRequest { session: session.clone(), sha256: vec![0; 32].into() };
    let probe = ProbeRequest { answer_bytes: 1, padding: Vec::new().into() };
    let [mut replaces, mut fetches, mut probes] = [(); 3].map(|()| stranger.coordinator());
    let [mut reads, mut submits] = [(); 2].map(|()| stranger.transfers());
    let (session, data, probe, parameters, gradient) = tokio::join!(
        replaces.session(tokio_stream::once(hello())),
        fetches.data(data),
        probes.probe(tokio_stream::once(probe)),
        reads.parameters(ParametersRequest { session, evaluated_step: 0 }),
        submits.submit_gradient(gradient_parts(header.into(), chunks)),
    );
    [session.map(drop), data.map(drop), probe.map(drop), parameters.map(drop), gradient.map(drop)]
}

/// The paths of the dashboard, and one that does not exist.
const PATHS: [&str; 9] =
    ["/", "/events", "/api/state", "/api/explain", "/metrics", "/login", "/healthz", "/readyz", "/nothing"];

/// Requests a path of the dashboard in every way. No request may be accepted, except that health is public.
fn try_path(dashboard: &str, path: &str, secrets: &[String]) {
    let tls = TlsConfig::builder().disable_verification(true).build();
    // Connections are not reused because a server may close one after a refusal.
    let config = ureq::Agent::config_builder().http_status_as_error(false).tls_config(tls).max_idle_connections(0);
    let agent: ureq::Agent = config.build().into();
    for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        for secret in secrets {
            let request = Request::builder().method(&method).uri(format!("{dashboard}{path}"));
            let request = request
                .header("Authorization", format!("Bearer {secret}"))
                .header("Cookie", format!("ata-status={secret}"))
                .header("Content-Type", "application/x-www-form-urlencoded");
            let answer = agent.run(request.body(format!("secret={secret}")).unwrap()).unwrap();
            let is_no_secret = matches!(path, "/healthz" | "/readyz") && method == Method::GET;
            assert_eq!(answer.status().is_success(), is_no_secret, "{method} {path}: {answer:?}");
        }
    }
}

/// Requests all paths concurrently because a wrong secret is answered after a second.
fn try_all_paths(dashboard: &str, secrets: &[String]) {
    std::thread::scope(|scope| {
        for path in PATHS {
            scope.spawn(move || try_path(dashboard, path, secrets));
        }
    });
}

struct Head {
    sandbox: Sandbox,
    coordinator: Process,
    dashboard: String,
    join: JoinToken,
}

fn start() -> Head {
    let sandbox = Sandbox::new();
    let head = ["coordinator", "--listen", "0.0.0.0:0", "--advertise", "127.0.0.1", "--dashboard", "0.0.0.0:0"];
    let run = ["--out", "run", "--iterations", "2", "--budget", "1", "--policy", "uta", "--json"];
    // The timeouts exceed the duration of the test, whose worker sends no heartbeats.
    let timeouts = ["--heartbeat-timeout-ms", "600000", "--lease-timeout-s", "600"];
    let mut coordinator = sandbox.start(&[&head[..], &run, &timeouts, &TINY].concat());
    let line = coordinator.wait_for("dashboard: ");
    let dashboard = line.split_whitespace().nth(1).unwrap().to_owned();
    coordinator.port();
    let join = sandbox.text(&["token", "show"]).trim().parse().unwrap();
    Head { sandbox, coordinator, dashboard, join }
}

impl Head {
    /// Returns the secret for reading the status.
    fn status_secret(&self) -> Secret {
        self.sandbox.text(&["token", "show", "--status"]).trim().parse().unwrap()
    }

    /// Returns the events, whose sum is the state, without the traffic of connections, to which every request adds.
    fn events(&self) -> Vec<Value> {
        self.sandbox.events().into_iter().filter(|event| event["event"] != "resources").collect()
    }

    async fn state(&self) -> Value {
        let address = self.dashboard.strip_prefix("https://").unwrap().parse().unwrap();
        let token = JoinToken { address, secret: self.status_secret(), ..self.join.clone() };
        let client: Client = token.to_string().parse().unwrap();
        serde_json::from_slice(&client.get("/api/state").await.unwrap()).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_credentials_changes_nothing() {
    let head = start();
    let mut worker = Worker::join(head.join.clone()).await;
    let mut asked = worker.asked().await.unwrap();
    until("a lease in the journal", || head.sandbox.has_event("allocation"));
    let before = (head.events(), head.state().await["allocation"].take());

    for secret in [Secret::random().unwrap(), head.status_secret()] {
        let stranger = connect(&JoinToken { secret, ..head.join.clone() }.into()).await.unwrap();
        for (call, answer) in try_all_calls(&stranger, &worker, &asked).await.into_iter().enumerate() {
            assert_eq!(answer.unwrap_err().code(), Code::PermissionDenied, "call {call}");
        }
    }
    let plain = connect(&head.join.address.to_string().parse().unwrap()).await.unwrap();
    for answer in try_all_calls(&plain, &worker, &asked).await {
        assert!(answer.is_err(), "it is not encrypted");
    }
    let (url, secrets) = (head.dashboard.clone(), [Secret::random().unwrap(), head.join.secret.clone()]);
    let secrets = secrets.map(|secret| secret.to_string());
    tokio::task::spawn_blocking(move || try_all_paths(&url, &secrets)).await.unwrap();

    assert_eq!((head.events(), head.state().await["allocation"].take()), before, "nothing changed");
    // The session is still alive and holds its leases.
    for iteration in 1..=2 {
        assert_eq!(asked.iteration, Iteration(iteration));
        worker.has_computed().await;
        let (header, chunks) = worker.sum(&asked);
        let sent = worker.connection.submit_gradient(header, tokio_stream::iter(chunks)).await;
        // The last step is taken as soon as its chunks have arrived, so the run may end before the receipt is sent.
        let is_over = sent.as_ref().is_err_and(|error| error.to_string().contains("the run is over"));
        let is_accepted = sent.as_ref().is_ok_and(|receipt| *receipt == Receipt::Accepted);
        assert!(is_accepted || is_over && iteration == 2, "{sent:?}");
        match worker.asked().await {
            Some(next) => asked = next,
            None => assert_eq!(iteration, 2),
        }
    }
    let summary = head.coordinator.summary();
    assert_eq!(summary["refused"], serde_json::json!({}), "{summary}");
}
