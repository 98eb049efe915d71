//! Runs a cluster of real processes on this machine under faults, and compares it with a run without faults.
//!
//! The program under test is used only through its command line, its exit codes, and the files that it writes (the ready file, the journal,
//! `summary.json`). Nothing here depends on the wording of a log.
//!
//! # Layout
//! - this file: [`run`], which disturbs a run, ends it, repeats it without faults, and returns the verdict
//! - `args`, `command`: the command line
//! - `schedule`: the kinds of faults, and their sequence
//! - `cluster`: the processes
//! - `inject`: carries out a fault, and waits until the run has recovered
//! - `ending`: ends a run, and reads its results
//! - `progress`: the progress of the run, read from its journal
//! - `outcome`: the outcomes of the faults, as numbers; [`Verdict`], the whole result

mod args;
mod cluster;
mod command;
mod ending;
mod inject;
mod outcome;
mod progress;
mod schedule;

pub(crate) use args::ChaosArgs;
pub(crate) use command::command;

use std::time::{Duration, Instant};

use ata::{Failure, note};
use indicatif::ProgressBar;
use rustix::process::Signal;

use self::cluster::{Cluster, Plan, kill_start};
use self::command::recovered;
use self::inject::DisturbedRun;
use self::outcome::{KindSummary, Outcome, Verdict};
use self::progress::RunProgress;
use self::schedule::{FaultKind, Schedule, Target};

/// The exit code of a coordinator that was stopped and can be resumed.
const RESUMABLE: i32 = 75;

/// The times at which the first coordinators are killed, as fractions of the time that a start may take.
const FIRST_STARTS: [f64; 6] = [0.02, 0.05, 0.1, 0.2, 0.4, 0.8];

/// The time that the workers of a killed `ata up` have to exit. They look for their coordinator for ten seconds.
const ORPHANS_END_WITHIN: Duration = Duration::from_secs(20);

/// The time that a process has to exit after SIGTERM.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

/// Runs the cluster under faults and then without, and compares the two. Dropping the future kills all processes.
async fn run(plan: Plan, line: ProgressBar) -> Result<Verdict, Failure> {
    let target = Target {
        workers: plan.run.workers,
        heartbeat_timeout: plan.run.heartbeat_timeout,
        parameters_bytes: plan.run.parameters_bytes,
        cadence: plan.args.checkpoint_every.clone(),
    };
    let schedule = Schedule::new(&plan.args.only, target, plan.run.seed);
    let kinds = schedule.kinds().to_vec();
    let names = kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
    let (workers, seed) = (plan.run.workers, plan.run.seed);
    note!("{workers} workers under faults of seed {seed}: {names}; logs in {}", plan.folder.display());
    let mut verdict = Verdict { seed: plan.run.seed, ..Verdict::default() };
    let first = plan.run.checkpoint_every.clone();
    if kinds.contains(&FaultKind::KillStart) {
        // A run's folder is created in several steps, so a start can be interrupted between any two of them.
        for moment in FIRST_STARTS {
            kill_start(&plan, &first, moment).await?;
        }
    }
    let progress = RunProgress::new(&plan.disturbed());
    let cluster = Cluster::start(plan, &first).await?;
    let mut run = DisturbedRun { cluster, progress, cadence: first, line };
    run.gets_going().await?;
    let (outcomes, broken) = inject_all(&mut run, schedule).await;
    run.line.finish_and_clear();
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

/// Injects as many faults as were asked for, or as there is time for. Returns their outcomes, and the fault from which the run
/// did not recover.
async fn inject_all(run: &mut DisturbedRun, schedule: Schedule) -> (Vec<Outcome>, Vec<String>) {
    let (count, minutes) = (run.cluster.plan.args.faults, run.cluster.plan.args.minutes);
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
                run.line.suspend(|| recovered(number, elapsed_s, &outcome));
                outcomes.push(outcome);
            }
            Err(error) => return (outcomes, vec![format!("fault {number}, {}: {error}", fault.kind.name())]),
        }
    }
    (outcomes, Vec::new())
}

/// Stops the run, repeats it without faults, and compares the two.
async fn end(mut run: DisturbedRun, verdict: &mut Verdict) -> Result<(), Failure> {
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
    let DisturbedRun { cluster: Cluster { plan, .. }, progress, .. } = run;
    verdict.processes_left = plan.processes_left(ORPHANS_END_WITHIN).await;
    if verdict.processes_left > 0 {
        verdict.broken.push(format!("{} processes were left", verdict.processes_left));
    }
    let disturbed = plan.end(progress.step + 1).await?;
    verdict.iterations = disturbed.iterations;
    note!("the same {} iterations without faults…", disturbed.iterations);
    let undisturbed = plan.undisturbed(disturbed.iterations).await?;
    verdict.compare(disturbed, undisturbed, plan.run.takes_local_steps);
    Ok(())
}
