//! Measures the cost of thousands of workers without work: the speed of a run of 16 workers, with and without them, and
//! the time in which more workers join. The policy is FTA with given means, which employs only the first 16.
//!
//! The idle workers run in another process, since each end of a connection needs a file descriptor.
//!
//! cargo build --release --workspace --examples && target/release/examples/idle_workers [WORKERS]

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ata_harness::{Cluster, Peer, Rate, Settings, WorkerSettings, resident_kb};
use ata_wire::FromWorker;
use tokio::sync::{Semaphore, mpsc};

const EMPLOYED: usize = 16;
const TASK_TIME: Duration = Duration::from_millis(5);
const NEWCOMERS: usize = 1000;
/// The number of workers that connect at the same time.
const CONNECTING: usize = 64;
const MEASURED: Duration = Duration::from_secs(20);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    ata_net::raise_file_limit();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    match &arguments[..] {
        [role, address] if role == "clients" => runtime.block_on(clients(address.parse().expect("an address"))),
        [count] => runtime.block_on(measure(count.parse().expect("a number of workers"))),
        _ => runtime.block_on(measure(10_000)),
    }
}

async fn measure(idle: usize) {
    let means = format!("fta:means={}1000", "1/".repeat(EMPLOYED));
    let settings = Settings {
        policy: means.leak(),
        budget: 4 * EMPLOYED as u64,
        iterations: u64::MAX,
        min_workers: EMPLOYED,
        heartbeat_timeout: Duration::from_secs(2),
        ..Settings::default()
    };
    let mut cluster = Cluster::start(&settings).await;
    for number in 1..=EMPLOYED {
        cluster.worker(WorkerSettings { task_time: TASK_TIME, ..WorkerSettings::new(format!("employed-{number}")) });
    }
    cluster.wait_for("the first iterations", |state| state.iterations > 50).await;
    let alone = Rate::measure(&cluster, MEASURED).await;
    println!("{EMPLOYED} workers alone: {alone}");

    let resident = resident_kb();
    let mut others = Clients::start(cluster.address);
    let took_s = others.join(idle);
    let per_worker_kb = resident_kb().saturating_sub(resident) as f64 / idle as f64;
    println!("{idle} more join in {took_s:.1} s, {:.0} a second", idle as f64 / took_s);
    let together = Rate::measure(&cluster, MEASURED).await;
    println!("next to {idle} idle ones: {together}, ratio {:.3}", together.iteration_s / alone.iteration_s);
    println!("resident: {per_worker_kb:.1} kB per idle worker");
    let took_s = others.join(NEWCOMERS);
    println!("{NEWCOMERS} newcomers, {CONNECTING} at a time: {took_s:.2} s");
    let all = EMPLOYED + idle + NEWCOMERS;
    cluster.wait_for("all of them", |state| state.present() == all).await;
}

/// The process of the idle workers.
struct Clients {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Clients {
    fn start(address: SocketAddr) -> Self {
        let program = std::env::current_exe().expect("a program");
        let mut command = Command::new(program);
        command.args(["clients", &address.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it can be started");
        let requests = child.stdin.take().expect("it is piped");
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, requests, answers }
    }

    /// Lets `count` workers join. Returns how long this took, in seconds.
    fn join(&mut self, count: usize) -> f64 {
        writeln!(self.requests, "{count}").expect("it is there");
        let mut line = String::new();
        tokio::task::block_in_place(|| self.answers.read_line(&mut line)).expect("it answers");
        line.trim().parse().expect("a time")
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill().and_then(|()| self.child.wait()));
    }
}

/// Serves requests to join until its standard input ends.
async fn clients(address: SocketAddr) {
    let (lines, mut requests) = mpsc::channel::<String>(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            drop(lines.blocking_send(line));
        }
    });
    let mut joined = 0;
    while let Some(request) = requests.recv().await {
        let count = request.parse().expect("a number of workers");
        println!("{}", join(address, joined, count).await);
        joined += count;
    }
}

/// Returns the seconds until `count` workers have been welcomed and have reported that they are ready.
async fn join(address: SocketAddr, first: usize, count: usize) -> f64 {
    let began = Instant::now();
    let room = Arc::new(Semaphore::new(CONNECTING));
    let (welcome, mut all) = mpsc::channel::<()>(1);
    for number in first..first + count {
        let permit = room.clone().acquire_owned().await.expect("it is open");
        let welcome = welcome.clone();
        tokio::spawn(async move {
            let mut session = Peer::connect(address).await.join(&format!("idle-{number}")).await;
            drop((permit, welcome));
            let interval = Duration::from_millis(session.welcome.idle_heartbeat_interval_ms.into());
            loop {
                tokio::select! {
                    message = session.incoming.message() => panic!("idle-{number}: {message:?}"),
                    () = tokio::time::sleep(interval) => session.say(FromWorker::Heartbeat { idle: true }).await,
                }
            }
        });
    }
    drop(welcome);
    // The channel is closed once all workers have dropped their sender.
    assert_eq!(all.recv().await, None);
    began.elapsed().as_secs_f64()
}
