//! Tests the engine across a network in which messages, workers and the coordinator fail, in virtual time.
//!
//! A seed determines everything: the policy, the cluster, and which messages are delayed, duplicated, overtaken or lost, which
//! workers are cut off in one or both directions, which workers crash or hang and come back, and where the coordinator crashes, to
//! continue from its last save while workers still compute for its predecessor. Invariants are checked at every event and effect
//! (`checks`); then the faults stop, and the run must end.

mod checks;
mod collections;
mod coordinator;
mod scenario;
mod unruly;

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::hash::{DefaultHasher, Hasher};

use ata_simulator::{Change, MessageCounts, Moment, SimulationError};
use coordinator::Coordinator;
use scenario::Scenario;

const SEEDS: u64 = 30_000;

const REPEATED: u64 = 50;

/// The events that must happen often in all seeds together.
const EXPECTED: [&str; 26] = [
    "messages lost",
    "messages duplicated",
    "messages out of order",
    "worker crashes",
    "workers that hang",
    "workers replaced by others",
    "coordinator crashes",
    "crashes between two effects",
    "restarts from a save",
    "steps that a crash undid",
    "iterations that wait for a save",
    "evictions and failed leases",
    "results for a session that is over",
    "those with the number of a lease that the worker holds now",
    "results for a lease that is over",
    "collections that shrank",
    "collections that workers gave up",
    "gradients that were lost with their worker",
    "gradients that were lost on their way",
    "steps that were taken back",
    "leases of an iteration ahead",
    "those before the iteration has all results",
    "those that were given up",
    "results compared",
    "wrong results found",
    "results disputed",
];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    fn add(&mut self, what: &'static str, count: u64) {
        *self.0.entry(what).or_default() += count;
    }

    fn add_all(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, count)| self.add(what, *count));
    }
}

/// Hashes what happened in a run, and prints it if that is wanted.
struct Log {
    hasher: DefaultHasher,
    line: String,
    print: bool,
}

impl Log {
    fn note(&mut self, now_s: f64, what: &dyn Debug) {
        if self.print {
            println!("{now_s:10.3} {what:?}");
        }
        self.line.clear();
        writeln!(self.line, "{now_s} {what:?}").expect("a string takes it");
        self.hasher.write(self.line.as_bytes());
    }
}

/// Runs a seed to its end; returns the hash of its log, and the counts.
fn run(seed: u64, print: bool) -> (u64, Counts) {
    let scenario = Scenario::new(seed);
    let mut simulation = scenario.simulation();
    let (mut coordinator, mut engine) =
        Coordinator::new(&scenario, Log { hasher: DefaultHasher::new(), line: String::new(), print });
    let end = simulation.run(&mut engine, &mut coordinator);
    let end_s = end.unwrap_or_else(|error: SimulationError| panic!("{error}"));
    let (hash, mut counts) = coordinator.ended(&engine);

    let MessageCounts { lost, duplicated, overtaking } = simulation.network.expect("it has one").counts();
    let happened = |moment: &Moment| matches!(moment, Moment::Time(at_s) if *at_s <= end_s);
    let changes = |is: fn(&Change) -> bool| {
        scenario.changes.iter().filter(|(moment, change)| happened(moment) && is(change)).count() as u64
    };
    counts.add("messages lost", lost);
    counts.add("messages duplicated", duplicated);
    counts.add("messages out of order", overtaking);
    counts.add("worker crashes", changes(|change| matches!(change, Change::Leave(_))));
    counts.add("workers that hang", changes(|change| matches!(change, Change::Hang(_))));
    (hash, counts)
}

/// Names the seed if its run panics.
struct Blame(u64);

impl Drop for Blame {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let command = "cargo test --release -p ata-simulator --test suite faults -- --nocapture";
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
            assert_eq!(run(seed, false), (hash, counts.clone()), "the same seed has another log");
        }
        all.add_all(&counts);
    }
    println!("{SEEDS} seeds: {all:#?}");
    for what in EXPECTED {
        let count = all.0.get(what).copied().unwrap_or(0);
        assert!(count > SEEDS / 100, "too few {what}: {count}");
    }
}
