//! Tests the HTTP server from the view of clients.

use std::time::Duration;

use ata_net::{Credentials, JoinToken, Role, Secret, Secrets, ServerTls};
use ata_record::{EndState, Listeners, PastEvents, RunEvent, RunState, Writer};
use ata_types::TaskOutcome;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

use super::{App, DashboardSource, serve};
use crate::tests::{self as testing, join};
use crate::{Access, Client, ClientError, Metrics};

/// A wait that takes longer counts as hung.
const DEADLINE: Duration = Duration::from_secs(30);

fn run() -> RunEvent {
    testing::run("uta", 4)
}

fn allocation(iteration: u64) -> RunEvent {
    testing::allocation(iteration, &[4], &[0.5], "for a test")
}

fn task(iteration: u64) -> RunEvent {
    testing::task(iteration, 1, Some(0.5), TaskOutcome::Applied)
}

struct Served {
    address: String,
    state: watch::Sender<RunState>,
    /// The folder of the credentials and the run.
    folder: TempDir,
    stop: Option<oneshot::Sender<()>>,
    server: tokio::task::JoinHandle<()>,
}

impl Served {
    async fn start(access: impl FnOnce(&TempDir) -> Access) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (state, seen) = watch::channel(RunState::default());
        let source = DashboardSource { state: seen, folder: folder.path().to_owned(), costs: |_| Vec::new() };
        let app = App { runs: vec![source], metrics: Some(Metrics::new("1.2.3")) };
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(serve(listener, access(&folder), app, async { drop(stopped.await) }));
        Self { address, state, folder, stop: Some(stop), server }
    }

    fn apply(&self, event: &RunEvent) {
        self.state.send_modify(|state| state.apply(event));
    }

    async fn get(&self, path: &str) -> Result<String, ClientError> {
        let client: Client = format!("http://{}", self.address).parse()?;
        client.get(path).await.map(|body| String::from_utf8(body.to_vec()).unwrap())
    }

    /// Sends text without changes, and returns the whole answer.
    async fn say(&self, text: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(DEADLINE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        answer
    }
}

#[tokio::test]
async fn a_run_is_served() {
    let served = Served::start(|_| Access::Local).await;
    assert_eq!(served.get("/healthz").await.unwrap(), "ok\n");
    assert!(matches!(served.get("/readyz").await, Err(ClientError::Unavailable(..))), "the run has not begun");
    for event in [run(), join(1), task(2), allocation(3)] {
        served.apply(&event);
    }
    assert_eq!(served.get("/readyz").await.unwrap(), "ready\n");
    let state: Value = serde_json::from_str(&served.get("/api/state").await.unwrap()).unwrap();
    assert_eq!((&state["run"]["run_id"], &state["workers"][0]["tasks"]), (&"test-run".into(), &4.into()));
    let explained: Value = serde_json::from_str(&served.get("/api/explain").await.unwrap()).unwrap();
    assert_eq!((&explained["iteration"], &explained["expected_s"]), (&3.into(), &2.0.into()));
    assert!(served.get("/metrics").await.unwrap().contains("ata_build_info{version=\"1.2.3\"} 1\n"));
    assert!(served.get("/").await.unwrap().starts_with("<!"));
    assert!(matches!(served.get("/nothing").await, Err(ClientError::NotFound(_))));
}

/// A past iteration is read from the journal, as it was when it began.
#[tokio::test]
async fn past_iterations_are_explained() {
    let served = Served::start(|_| Access::Local).await;
    let writer =
        Writer::open(served.folder.path(), PastEvents::default(), Listeners::default(), |error| panic!("{error}"))
            .unwrap();
    writer.write(vec![run(), join(1), allocation(1), task(1), allocation(2), task(2), allocation(3)]);
    writer.finish().unwrap();
    for event in [run(), join(1), allocation(3)] {
        served.apply(&event);
    }
    let explained: Value = serde_json::from_str(&served.get("/api/explain?iteration=2").await.unwrap()).unwrap();
    assert_eq!((&explained["iteration"], &explained["workers"][0]["observed"]), (&2.into(), &1.into()));
    let error = served.get("/api/explain?iteration=9").await.unwrap_err().to_string();
    assert!(error.contains("iteration 9 has not begun: the last one is 3"), "{error}");
}

#[tokio::test]
async fn viewers_get_the_changes_and_the_end() {
    let mut served = Served::start(|_| Access::Local).await;
    served.apply(&run());
    let mut stream = TcpStream::connect(&served.address).await.unwrap();
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut received = String::new();
    let mut buffer = [0; 4096];
    let mut read_until = async |text: &str, received: &mut String| {
        while !received.contains(text) {
            let read = tokio::time::timeout(DEADLINE, stream.read(&mut buffer)).await.unwrap().unwrap();
            assert!(read > 0, "it ended without '{text}': {received}");
            received.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    };
    read_until("\"run_id\":\"test-run\"", &mut received).await;
    assert!(received.contains("text/event-stream"));
    served.apply(&join(1));
    read_until("\"name\":\"worker-1\"", &mut received).await;
    served.apply(&RunEvent::End { time_s: 1.0, state: EndState::Finished, reason: "done".into() });
    // The state's sender is dropped before the server is stopped.
    drop(served.state);
    drop(served.stop.take());
    read_until("\"phase\":\"finished\"", &mut received).await;
    tokio::time::timeout(DEADLINE, served.server).await.unwrap().unwrap();
}

/// A page from elsewhere can make its name resolve to this machine, but cannot read from it.
#[tokio::test]
async fn on_loopback_only_local_names_are_answered() {
    let served = Served::start(|_| Access::Local).await;
    let ask = async |host: &str| {
        served.say(&format!("GET /api/state HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await
    };
    assert!(ask("localhost:7071").await.starts_with("HTTP/1.1 200"));
    assert!(ask("evil.example").await.starts_with("HTTP/1.1 403"));
}

fn client_with(served: &Served, credentials: &Credentials, secret: Secret) -> Client {
    let (address, pin) = (served.address.parse().unwrap(), credentials.tls_files().pin().unwrap());
    JoinToken { address, pin, secret }.to_string().parse().unwrap()
}

/// Returns access with the secret of the credentials in a folder.
fn secret(folder: &TempDir) -> Access {
    let credentials = Credentials::open(&folder.path().join("credentials")).unwrap();
    Access::Secret(Box::new(ServerTls::new(credentials.tls_files()).unwrap()), Secrets::of(&credentials).unwrap())
}

/// Only the status secret opens the dashboard; health checks need no secret.
#[tokio::test]
async fn elsewhere_the_status_secret_is_wanted() {
    let served = Served::start(secret).await;
    served.apply(&run());
    let open = |folder: &str| Credentials::open(&served.folder.path().join(folder)).unwrap();
    let (credentials, other) = (open("credentials"), open("other"));
    let get = async |credentials: &Credentials, secret: Secret, path: &str| {
        client_with(&served, credentials, secret).get(path).await
    };
    let (status, worker) = (credentials.secret(Role::Status).unwrap(), credentials.secret(Role::Worker).unwrap());
    assert!(get(&credentials, status.clone(), "/api/state").await.is_ok());
    for path in ["/api/state", "/metrics", "/events", "/api/explain", "/"] {
        assert!(matches!(get(&credentials, worker.clone(), path).await, Err(ClientError::Refused(_))), "{path}");
    }
    let wrong = get(&credentials, Secret::random().unwrap(), "/api/state").await;
    assert!(matches!(wrong, Err(ClientError::Refused(_))));
    assert!(matches!(get(&other, status, "/").await, Err(ClientError::Unreachable(..))));
    let unknown: Client = format!("https://{}", served.address).parse().unwrap();
    assert_eq!(unknown.get("/healthz").await.unwrap(), "ok\n");
    assert!(served.get("/healthz").await.is_err(), "not without encryption");
}

/// The number of idle connections, several times as many as the dashboard has places for: if each were only closed by
/// its own deadline, this would take longer than [`DEADLINE`].
const SILENT: usize = 1500;

/// Connections that send nothing, or only the beginning of a request, make room for health checks.
async fn health_comes_first(access: impl FnOnce(&TempDir) -> Access, said: &[u8], client: impl Fn(&Served) -> Client) {
    ata_net::raise_file_limit();
    let served = Served::start(access).await;
    served.apply(&run());
    let mut silent = Vec::new();
    let answered = async {
        for _ in 0..SILENT {
            let mut stream = TcpStream::connect(&served.address).await.unwrap();
            stream.write_all(said).await.unwrap();
            silent.push(stream);
        }
        let client = client(&served);
        for path in ["/healthz", "/api/state"] {
            assert!(client.get(path).await.is_ok(), "{path}");
        }
    };
    tokio::time::timeout(DEADLINE, answered).await.expect("answers before the silent ones run into their deadlines");
}

#[tokio::test]
async fn health_comes_first_in_plain_text() {
    let client = |served: &Served| format!("http://{}", served.address).parse().unwrap();
    for said in [
        &b""[..],
        b"GET /healthz HTTP/1.1\r\nHost:",
        b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 33\r\n\r\n",
    ] {
        health_comes_first(|_| Access::Local, said, client).await;
    }
}

#[tokio::test]
async fn health_comes_first_with_tls() {
    for said in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
        let client = |served: &Served| {
            let credentials = Credentials::open(&served.folder.path().join("credentials")).unwrap();
            client_with(served, &credentials, credentials.secret(Role::Status).unwrap())
        };
        health_comes_first(secret, said, client).await;
    }
}
