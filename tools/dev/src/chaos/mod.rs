//! Runs a cluster of real processes on this machine under faults, and compares it with a run without faults.
//!
//! The program under test is used only through its command line, its exit codes, and the files that it writes (the ready file, the journal,
//! `summary.json`). Nothing here depends on the wording of a log.
//!
//! # Layout
//! - this file: [`run`], which disturbs a run, ends it, repeats it without faults, and returns the verdict
//! - `args`, `command`: the command line; `config`: [`Config`]; `fault`: [`FaultKind`]; `schedule`: the sequence of faults
//! - `cluster`: the processes
//! - `inject`: carries out a fault, and waits until the run has recovered
//! - `ending`: ends a run, and reads its results
//! - `progress`: the progress of the run, read from its journal
//! - `outcome`: the outcomes of the faults, as numbers; `verdict`: [`Verdict`], the whole result

mod args;
mod cluster;
mod command;
mod config;
mod ending;
mod error;
mod fault;
mod inject;
mod outcome;
mod progress;
mod schedule;
mod verdict;

pub(crate) use args::ChaosArgs;
pub(crate) use command::command;
use config::Config;
use error::ChaosError;
use fault::FaultKind;
use outcome::{KindSummary, Outcome};
use verdict::Verdict;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use self::cluster::{Cluster, Plan, kill_start};
use self::config::RESUMABLE;
use self::inject::DisturbedRun;
use self::progress::RunProgress;
use self::schedule::{Schedule, Target};

/// The times at which the first coordinators are killed, as fractions of the time that a start may take.
const FIRST_STARTS: [f64; 6] = [0.02, 0.05, 0.1, 0.2, 0.4, 0.8];

/// The time that the workers of a killed `ata up` have to exit. They look for their coordinator for ten seconds.
const ORPHANS_END_WITHIN: Duration = Duration::from_secs(20);

/// The time that a process has to exit after SIGTERM.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

/// An observer of a chaos run.
pub(crate) trait Observer: Send {
    /// Called before the cluster starts; faults of these kinds will be injected.
    fn starts(&mut self, kinds: &[FaultKind], folder: &Path);
    /// Called when the disturbed run has taken the step of iteration `step` with `workers` workers present.
    fn progresses(&mut self, step: u64, workers: usize);
    /// Called when the run has recovered from a fault that was injected after `elapsed_s` seconds.
    fn recovered(&mut self, number: u64, elapsed_s: f64, outcome: &Outcome);
    /// Called after the last fault.
    fn faults_end(&mut self);
    /// Called before the run is repeated without faults.
    fn repeats(&mut self, iterations: u64);
}

/// Runs the cluster under faults and then without, and compares the two. Dropping the future kills all processes.
pub(crate) async fn run(mut config: Config, observer: &mut dyn Observer) -> Result<Verdict, ChaosError> {
    config.folder = create(&config.folder)?;
    let plan = Plan::new(config)?;
    let config = &plan.config;
    let target = Target {
        workers: config.workers,
        heartbeat_timeout: config.heartbeat_timeout,
        parameters_bytes: config.parameters_bytes,
        cadence: config.checkpoint_every.clone(),
    };
    let schedule = Schedule::new(&config.only, target, config.seed);
    let kinds = schedule.kinds().to_vec();
    observer.starts(&kinds, &config.folder);
    let mut verdict = Verdict { seed: config.seed, ..Verdict::default() };
    let first = config.first_checkpoint_every.clone();
    let (faults, minutes) = (config.faults, config.minutes);
    if kinds.contains(&FaultKind::KillStart) {
        // A run's folder is created in several steps, so a start can be interrupted between any two of them.
        for moment in FIRST_STARTS {
            kill_start(&plan, &first, moment).await?;
        }
    }
    let progress = RunProgress::new(&plan.disturbed());
    let cluster = Cluster::start(plan, &first).await?;
    let mut run = DisturbedRun { cluster, progress, cadence: first, observer };
    run.gets_going().await?;
    let (outcomes, broken) = inject_all(&mut run, schedule, faults, minutes).await;
    run.observer.faults_end();
    verdict.broken = broken;
    verdict.faults = kinds.into_iter().map(|kind| KindSummary::new(kind, &outcomes)).collect();
    verdict.broken.extend(verdict.faults.iter().flat_map(KindSummary::broken));
    if run.progress.lost_without_fault > 0 {
        let lost = run.progress.lost_without_fault;
        verdict.broken.push(format!("{lost} workers lost that were well, without any fault"));
    }
    if let Err(error) = end(run, &mut verdict).await {
        verdict.broken.push(error.to_string());
    }
    Ok(verdict)
}

/// Creates a folder, and returns its absolute path.
fn create(folder: &Path) -> Result<PathBuf, ChaosError> {
    if folder.exists() {
        return Err(ChaosError::FolderExists(folder.into()));
    }
    let created = std::fs::create_dir_all(folder).and_then(|()| folder.canonicalize());
    created.map_err(|cause| ChaosError::Write { path: folder.into(), cause })
}

/// Injects as many faults as were asked for, or as there is time for. Returns their outcomes, and the fault from which the run
/// did not recover.
async fn inject_all(
    run: &mut DisturbedRun<'_>,
    schedule: Schedule,
    count: Option<u64>,
    minutes: f64,
) -> (Vec<Outcome>, Vec<String>) {
    let began = Instant::now();
    let mut outcomes = Vec::new();
    for (number, fault) in (1..).zip(schedule) {
        let elapsed_s = began.elapsed().as_secs_f64();
        if count.map_or(elapsed_s >= minutes * 60.0, |count| number > count) {
            break;
        }
        let injected = async {
            run.goes_on(fault.after).await?;
            run.inject(&fault).await
        };
        match injected.await {
            Ok(outcome) => {
                run.observer.recovered(number, elapsed_s, &outcome);
                outcomes.push(outcome);
            }
            Err(error) => return (outcomes, vec![format!("fault {number}, {}: {error}", fault.kind.name())]),
        }
    }
    (outcomes, Vec::new())
}

/// Stops the run, repeats it without faults, and compares the two.
async fn end(mut run: DisturbedRun<'_>, verdict: &mut Verdict) -> Result<(), ChaosError> {
    let began = Instant::now();
    run.cluster.signal_coordinator(Signal::TERM)?;
    let status = run.cluster.coordinator_ends(STOPS_WITHIN).await?;
    verdict.coordinator_stopped_s = began.elapsed().as_secs_f64();
    if status.code() != Some(RESUMABLE) {
        verdict.broken.push(format!("after SIGTERM the coordinator ended with {status}: expected {RESUMABLE}"));
    }
    let began = Instant::now();
    let workers = run.cluster.stop_workers(STOPS_WITHIN).await?;
    verdict.workers_stopped_s = began.elapsed().as_secs_f64();
    for status in workers.iter().filter(|status| !status.success()) {
        verdict.broken.push(format!("after SIGTERM a worker ended with {status}: expected 0"));
    }
    run.progress.read()?;
    let DisturbedRun { cluster, progress, observer, .. } = run;
    let plan = cluster.plan;
    verdict.processes_left = plan.processes_left(ORPHANS_END_WITHIN).await;
    if verdict.processes_left > 0 {
        verdict.broken.push(format!("{} processes were left", verdict.processes_left));
    }
    let disturbed = plan.end(progress.step + 1).await?;
    verdict.iterations = disturbed.iterations;
    observer.repeats(disturbed.iterations);
    let undisturbed = plan.undisturbed(disturbed.iterations).await?;
    verdict.compare(disturbed, undisturbed);
    Ok(())
}
