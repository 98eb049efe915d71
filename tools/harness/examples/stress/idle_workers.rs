//! Measures the cost of thousands of workers without work: the speed of a run of 16 workers, with and without them, and
//! the time in which more workers join. The policy is FTA with given means, which employs only the first 16.
//!
//! The idle workers run in another process, since each end of a connection needs a file descriptor.
//!
//! Arguments: `[WORKERS]`

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ata_harness::{Cluster, Peer, Rate, Settings, WorkerSettings, resident_kb};
use ata_wire::{FromWorker, ProcessUsage};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, mpsc};

const EMPLOYED: usize = 16;
const TASK_TIME: Duration = Duration::from_millis(5);
const NEWCOMERS: usize = 1000;
const CONNECTING: usize = 64;
const MEASURED: Duration = Duration::from_secs(20);

pub(crate) async fn run(arguments: &[String]) {
    ata_net::raise_file_limit();
    let number = |text: &String| text.parse().expect("a number");
    match arguments {
        [address, first, count] => join(address.parse().expect("an address"), number(first), number(count)).await,
        [count] => measure(number(count)).await,
        _ => measure(10_000).await,
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
    let (_idle, took_s) = start(cluster.address, 0, idle).await;
    let per_worker_kb = resident_kb().saturating_sub(resident) as f64 / idle as f64;
    println!("{idle} more join in {took_s:.1} s, {:.0} a second", idle as f64 / took_s);
    let together = Rate::measure(&cluster, MEASURED).await;
    println!("next to {idle} idle ones: {together}, ratio {:.3}", together.iteration_s / alone.iteration_s);
    println!("resident: {per_worker_kb:.1} kB per idle worker");
    let (_newcomers, took_s) = start(cluster.address, idle, NEWCOMERS).await;
    println!("{NEWCOMERS} newcomers, {CONNECTING} at a time: {took_s:.2} s");
    let all = EMPLOYED + idle + NEWCOMERS;
    cluster.wait_for("all of them", |state| state.present() == all).await;
}

/// Starts a process of idle workers. Returns it, and the seconds until they had joined.
async fn start(address: SocketAddr, first: usize, count: usize) -> (Child, f64) {
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    command.args(["idle_workers".into(), address.to_string(), first.to_string(), count.to_string()]);
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("it can be started");
    let mut answers = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let answer = answers.next_line().await.expect("it can be read").expect("it answers");
    (child, answer.parse().expect("a time"))
}

/// Lets `count` workers join, prints the seconds until they have been welcomed and have reported that they are ready, and keeps them.
async fn join(address: SocketAddr, first: usize, count: usize) {
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
                    () = tokio::time::sleep(interval) => session.say(FromWorker::Heartbeat { idle: true, usage: ProcessUsage::default() }).await,
                }
            }
        });
    }
    drop(welcome);
    // The channel is closed once all workers have dropped their sender.
    assert_eq!(all.recv().await, None);
    println!("{}", began.elapsed().as_secs_f64());
    std::future::pending::<()>().await;
}
