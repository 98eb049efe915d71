//! The engine in a simulated cluster whose network, workers and coordinator fail, on virtual time.
//!
//! A seed determines everything: the policy, the cluster, and which messages are delayed, duplicated, overtaken or lost, which
//! links are cut in one or both directions, which workers crash and come back, and where the coordinator crashes, to go
//! on from what it saved last while workers still compute for the one before. What must never happen is checked at every
//! event (`coordinator`); then the faults stop, and the run must end.
//!
//! # Layout
//! - here: the seeds that are run
//! - `scenario`: what a seed stands for
//! - `simulation`: virtual time, and the faults
//! - `network`: messages, and what becomes of them
//! - `worker`: computes, and reconnects
//! - `coordinator`: drives the engine as the real one does, saves it, and checks what it does
//! - `log`: what happened, hashed
//! - `unruly`: a policy that orders anything within an iteration

mod coordinator;
mod log;
mod network;
mod scenario;
mod simulation;
#[path = "../unruly/mod.rs"]
mod unruly;
mod worker;

use std::ops::AddAssign;

use log::Log;
use scenario::Scenario;
use simulation::Simulation;

/// Seeds that every test run goes through.
const SEEDS: u64 = 30_000;

/// Every so many seeds, one is run twice.
const REPEATED: u64 = 50;

/// How often each fault happened, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    events: u64,
    lost: u64,
    duplicated: u64,
    overtaken: u64,
    worker_crashes: u64,
    coordinator_crashes: u64,
    /// Crashes in the middle of sending messages.
    torn: u64,
    /// Restarts from something saved.
    resumed: u64,
    /// Steps that a crash undid, as they were not saved.
    undone: u64,
    /// Evictions, and leases that workers reported as failed.
    failures: u64,
    /// Runs given up because tasks failed on too many workers, to be taken up again.
    aborts: u64,
    /// Results for a session that was over.
    late: u64,
    /// Those among them with the number of a lease that the worker holds in its new session.
    impostors: u64,
    /// Results of a session for a lease that it does not hold.
    not_held: u64,
    /// Virtual seconds from the end of the faults to the end of the run; of several runs, the longest.
    slowest_s: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.overtaken += other.overtaken;
        self.worker_crashes += other.worker_crashes;
        self.coordinator_crashes += other.coordinator_crashes;
        self.torn += other.torn;
        self.resumed += other.resumed;
        self.undone += other.undone;
        self.failures += other.failures;
        self.aborts += other.aborts;
        self.late += other.late;
        self.impostors += other.impostors;
        self.not_held += other.not_held;
        self.slowest_s = self.slowest_s.max(other.slowest_s);
    }
}

/// Runs a seed to its end; returns the hash of its log, and what happened.
fn run(seed: u64, print: bool) -> (u64, Counts) {
    let mut simulation = Simulation::new(Scenario::new(seed), Log::new(print));
    simulation.run();
    simulation.ended()
}

/// Names the seed if its run panics.
struct Blame(u64);

impl Drop for Blame {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let command = "cargo test --release -p ata-scheduler --test cluster -- --nocapture";
            eprintln!("seed {} failed; to see what happens in it: ATA_FAULT_SEED={} {command}", self.0, self.0);
        }
    }
}

#[test]
fn whatever_fails_every_task_counts_once_and_the_run_ends() {
    if let Ok(seed) = std::env::var("ATA_FAULT_SEED") {
        let seed = seed.parse().expect("ATA_FAULT_SEED is a number");
        let _blame = Blame(seed);
        println!("{:?}", run(seed, true));
        return;
    }
    let mut all = Counts::default();
    for seed in 0..SEEDS {
        let _blame = Blame(seed);
        let (hash, counts) = run(seed, false);
        if seed % REPEATED == 0 {
            assert_eq!(run(seed, false), (hash, counts), "the same seed has another log");
        }
        all += counts;
    }
    println!("{SEEDS} seeds: {all:?}");
    // Every kind of fault has happened, and often.
    let Counts { lost, duplicated, overtaken, worker_crashes, coordinator_crashes, torn, resumed, .. } = all;
    for (count, what) in [
        (lost, "lost messages"),
        (duplicated, "duplicates"),
        (overtaken, "messages out of order"),
        (worker_crashes, "worker crashes"),
        (coordinator_crashes, "coordinator crashes"),
        (torn, "crashes between two messages"),
        (resumed, "restarts from a save"),
        (all.undone, "steps to take again"),
        (all.failures, "failures"),
        (all.late, "late results"),
        (all.impostors, "late results with the number of a lease that is held"),
        (all.not_held, "results for leases that are over"),
    ] {
        assert!(count > SEEDS / 100, "too few {what}: {count}");
    }
}
