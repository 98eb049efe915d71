//! Tests seeded sequences of faults in a real cluster: links that are cut or go silent, and workers and coordinators that crash. The next
//! fault depends on the progress of the run, not on time, and the run ends with the parameters of an undisturbed one.

use std::time::Duration;

use ata_harness::{Cluster, Condition, FaultProxy, Settings, WorkerSettings, soon};
use ata_record::{RunEvent, RunState};
use ata_types::TaskOutcome;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use tokio::task::AbortHandle;

/// The number of sequences in every test run.
const SEEDS: u64 = 3;

const WORKERS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The coordinator crashes, and resumes from its newest checkpoint.
    Crash,
    /// A worker crashes, and restarts.
    Kill,
    /// A worker's connections break.
    Cut,
    /// No data passes to or from a worker, until it is lost.
    Silence,
    /// All data to and from a worker is delayed from now on.
    Delay,
}

/// The faults of a sequence, each at least once.
const FAULTS: [Fault; 7] =
    [Fault::Crash, Fault::Crash, Fault::Kill, Fault::Cut, Fault::Cut, Fault::Silence, Fault::Delay];

fn settings(policy: &'static str) -> Settings {
    Settings {
        policy,
        min_workers: 1,
        iterations: 600,
        heartbeat_timeout: Duration::from_millis(500),
        checkpoint_every: Some(20),
        ..Settings::default()
    }
}

struct Run {
    settings: Settings,
    cluster: Cluster,
    links: Vec<FaultProxy>,
    workers: Vec<AbortHandle>,
    crashes: u64,
}

impl Run {
    async fn start(settings: Settings) -> Self {
        let cluster = Cluster::start(&settings).await;
        let mut run = Self { settings, cluster, links: Vec::new(), workers: Vec::new(), crashes: 0 };
        for worker in 0..WORKERS {
            run.links.push(FaultProxy::to(run.cluster.address).await);
            let handle = run.worker(worker);
            run.workers.push(handle);
        }
        run
    }

    fn worker(&mut self, worker: usize) -> AbortHandle {
        let through = Some(self.links[worker].address);
        // An iteration takes a few milliseconds, so that the run lasts longer than the faults.
        let task_time = Duration::from_millis(1);
        // This is longer than a coordinator takes to start on a busy machine.
        let retry_for = Duration::from_secs(20);
        let settings = WorkerSettings::new(format!("worker-{worker}"));
        self.cluster.worker(WorkerSettings { through, task_time, retry_for, ..settings })
    }

    async fn progress(&mut self, steps: u64) {
        let from = self.cluster.state.borrow().iterations;
        self.cluster.wait_for("progress", |state| state.iterations >= from + steps).await;
    }

    async fn is_there(&mut self, worker: usize) {
        let name = format!("worker-{worker}");
        self.cluster.wait_for("the worker", |state| is_present(state, &name)).await;
    }

    async fn suffer(&mut self, fault: Fault, worker: usize) {
        match fault {
            Fault::Crash => {
                // The links are severed first, so that no more messages of the old process arrive.
                for link in &self.links {
                    link.sever();
                }
                let saved = self.cluster.state.borrow().saved;
                let resumed = self.cluster.crash(&self.settings).await;
                assert!(
                    saved.is_none_or(|saved| resumed >= saved.number()),
                    "resumed after iteration {resumed}, but {saved:?} was saved"
                );
                self.links.iter().for_each(|link| link.lead_to(Some(self.cluster.address)));
                self.crashes += 1;
            }
            Fault::Kill => {
                assert!(!self.workers[worker].is_finished());
                self.workers[worker].abort();
                self.workers[worker] = self.worker(worker);
            }
            Fault::Cut => {
                while !self.links[worker].sever() {
                    // The worker lost its connection by itself, and returns.
                    self.progress(1).await;
                    self.is_there(worker).await;
                }
            }
            Fault::Silence => {
                self.links[worker].set(Condition { stalled: true, ..Condition::default() });
                let name = format!("worker-{worker}");
                let is_lost = |state: &RunState| !is_present(state, &name);
                self.cluster.wait_for("the loss", is_lost).await;
                self.links[worker].set(Condition::default());
            }
            Fault::Delay => {
                let latency = Duration::from_millis(20);
                self.links[worker].set(Condition { latency, ..Condition::default() });
            }
        }
    }
}

fn is_present(state: &RunState, name: &str) -> bool {
    state.workers.values().any(|worker| worker.present && worker.name == name)
}

async fn undisturbed(settings: &Settings) -> [u8; 32] {
    let mut cluster = Cluster::start(settings).await;
    cluster.worker(WorkerSettings::new("honest"));
    cluster.end().await.report.parameters_sha256
}

async fn run(seed: u64, expected: &[u8; 32]) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut faults = FAULTS;
    faults.shuffle(&mut rng);
    let mut run = Run::start(settings(["uta", "ata-auto", "ata-empirical"][seed as usize % 3])).await;
    // Faults begin after the first checkpoint.
    run.cluster.wait_for("a checkpoint", |state| state.saved.is_some()).await;
    for fault in faults {
        let (steps, worker) = (rng.random_range(0..8), rng.random_range(0..WORKERS));
        println!("seed {seed}: {fault:?} of worker {worker} after {steps} steps");
        run.progress(steps).await;
        // The worker may not have returned yet.
        run.is_there(worker).await;
        run.suffer(fault, worker).await;
    }
    let Run { cluster, crashes, settings, .. } = run;
    let ended = soon("the end", cluster.end()).await;
    assert!(ended.report.ended.is_ok(), "{:?}", ended.report.ended);
    assert_eq!(&ended.report.parameters_sha256, expected);
    let count = |is_one: fn(&RunEvent) -> bool| ended.events.iter().filter(|event| is_one(event)).count() as u64;
    // A journal that is truncated to the same checkpoint twice loses the event of the first resumption.
    assert!((1..=crashes).contains(&count(|event| matches!(event, RunEvent::Resume { .. }))));
    assert_eq!(count(|event| matches!(event, RunEvent::Step { .. })), settings.iterations);
    let applied = count(|event| matches!(event, RunEvent::Task { outcome: TaskOutcome::Applied, .. }));
    assert_eq!(applied, settings.budget * settings.iterations, "every task once");
}

/// Prints the seed if its run panics.
struct Blame(u64);

impl Drop for Blame {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to repeat it: ATA_FAULT_SEED={} cargo test --release -p ata-harness --test schedule", self.0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_fails_the_parameters_are_the_same() {
    let chosen = std::env::var("ATA_FAULT_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seeds = chosen.map_or(0..SEEDS, |seed: u64| seed..seed + 1);
    let expected = undisturbed(&settings("uta")).await;
    for seed in seeds {
        let _blame = Blame(seed);
        run(seed, &expected).await;
    }
}
