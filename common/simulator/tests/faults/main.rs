//! The engine across a network in which messages, workers and the coordinator fail, on virtual time.
//!
//! A seed determines everything: the policy, the cluster, and which messages are delayed, duplicated, overtaken or lost,
//! which workers are cut off in one or both directions, which workers crash or hang and come back, and where the
//! coordinator crashes, to go on from what it saved last while workers still compute for the one before. What must never
//! happen is checked at every event and effect (`checks`); then the faults stop, and the run must end.
//!
//! # Layout
//! - here: the seeds that are run
//! - `scenario`: what a seed determines
//! - `coordinator`: takes steps, saves the engine, crashes and restarts
//! - `checks`: what must hold of events and effects
//! - `log`: what happened, hashed
//! - `unruly`: a policy that orders anything within an iteration

mod checks;
mod coordinator;
mod log;
mod scenario;
#[path = "../../../scheduler/tests/unruly/mod.rs"]
mod unruly;

use std::ops::AddAssign;

use ata_simulator::{Change, MessageCounts, Moment, SimulationError};
use coordinator::Coordinator;
use log::Log;
use scenario::Scenario;

/// Seeds that every test run goes through.
const SEEDS: u64 = 30_000;

/// Every so many seeds, one is run twice.
const REPEATED: u64 = 50;

/// How often each fault happened, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Events, messages and effects.
    noted: u64,
    lost: u64,
    duplicated: u64,
    overtaking: u64,
    worker_crashes: u64,
    worker_hangs: u64,
    coordinator_crashes: u64,
    /// Crashes in the middle of carrying out effects.
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
    /// Workers whose number was given to another machine.
    forgotten: u64,
    /// Iterations that waited for a save.
    held_up: u64,
    /// Virtual seconds from the end of the faults to the end of the run; of several runs, the longest.
    slowest_s: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.noted += other.noted;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.overtaking += other.overtaking;
        self.worker_crashes += other.worker_crashes;
        self.worker_hangs += other.worker_hangs;
        self.coordinator_crashes += other.coordinator_crashes;
        self.torn += other.torn;
        self.resumed += other.resumed;
        self.undone += other.undone;
        self.failures += other.failures;
        self.aborts += other.aborts;
        self.late += other.late;
        self.impostors += other.impostors;
        self.not_held += other.not_held;
        self.forgotten += other.forgotten;
        self.held_up += other.held_up;
        self.slowest_s = self.slowest_s.max(other.slowest_s);
    }
}

/// Runs a seed to its end; returns the hash of its log, and what happened.
fn run(seed: u64, print: bool) -> (u64, Counts) {
    let scenario = Scenario::new(seed);
    let mut simulation = scenario.simulation();
    let (mut coordinator, mut engine) = Coordinator::new(&scenario, Log::new(print));
    let end = simulation.run(&mut engine, &mut coordinator);
    let end_s = end.unwrap_or_else(|error: SimulationError| panic!("{error}"));
    let (hash, mut counts) = coordinator.ended(&engine);

    let MessageCounts { lost, duplicated, overtaking } = simulation.network.expect("it has one").counts();
    (counts.lost, counts.duplicated, counts.overtaking) = (lost, duplicated, overtaking);
    let happened = |moment: &Moment| matches!(moment, Moment::Time(at_s) if *at_s <= end_s);
    let count = |is: fn(&Change) -> bool| {
        scenario.changes.iter().filter(|(moment, change)| happened(moment) && is(change)).count() as u64
    };
    counts.worker_crashes = count(|change| matches!(change, Change::Leave(_)));
    counts.worker_hangs = count(|change| matches!(change, Change::Hang(_)));
    counts.slowest_s = (end_s - scenario.faults.end_s).max(0.0) as u64;
    (hash, counts)
}

/// Names the seed if its run panics.
struct Blame(u64);

impl Drop for Blame {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let command = "cargo test --release -p ata-simulator --test faults -- --nocapture";
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
    for (count, what) in [
        (all.lost, "lost messages"),
        (all.duplicated, "duplicates"),
        (all.overtaking, "messages out of order"),
        (all.worker_crashes, "worker crashes"),
        (all.worker_hangs, "workers that hang"),
        (all.coordinator_crashes, "coordinator crashes"),
        (all.torn, "crashes between two effects"),
        (all.resumed, "restarts from a save"),
        (all.undone, "steps to take again"),
        (all.failures, "failures"),
        (all.late, "late results"),
        (all.impostors, "late results with the number of a lease that is held"),
        (all.not_held, "results for leases that are over"),
        (all.forgotten, "workers replaced by others"),
        (all.held_up, "iterations that wait for a save"),
    ] {
        assert!(count > SEEDS / 100, "too few {what}: {count}");
    }
}
