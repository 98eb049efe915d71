//! `ata chaos`: a cluster of real processes on this machine under faults, held against a run without any.
//!
//! # Layout
//! - here: the disturbed run, its end, the undisturbed run, and the verdict
//! - `schedule`: which faults come when
//! - `cluster`: the processes
//! - `inflict`: carries out a fault, and waits until the run has recovered
//! - `ending`: brings a run to its end, and reads what it left
//! - `seen`: what the journal shows of it
//! - `outcome`: what came of the faults, as numbers; `verdict`: all that is reported

mod cluster;
mod ending;
mod inflict;
mod outcome;
mod schedule;
mod seen;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use self::cluster::{Cluster, Plan, kill_start};
use self::inflict::Disturbed;
use self::outcome::{OfKind, Outcome};
use self::schedule::{Schedule, Target};
use self::seen::Seen;
use self::verdict::Verdict;
use crate::Extensions;
use crate::args::{ChaosArgs, FaultKind};
use crate::failure::{Failure, INTERRUPTED, RESUMABLE};
use crate::inputs::Inputs;
use crate::output::live_line;
use crate::run::new_run_id;
use crate::settings::Settings;
use crate::signals;
use ata_observe::seconds;

/// What a run under faults has besides the usual defaults. It lasts until it is stopped.
const DEFAULTS: &str = "
device = 'cpu'
iterations = 1_000_000_000
eval_every = 0
model = 'cnn:widths=8/16/256/1024'
task_time = 'const(20); const(20); const(20); const(400)'
";

/// How long faults are injected: each kind comes once at least.
const MINUTES: f64 = 2.0;

/// When the first coordinators are killed, as shares of the time that a start may take.
const FIRST_STARTS: [f64; 6] = [0.02, 0.05, 0.1, 0.2, 0.4, 0.8];

/// Time that a process has to end after SIGTERM.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: ChaosArgs, extensions: Extensions) -> Result<ExitCode, Failure> {
    let minutes = args.minutes.unwrap_or(MINUTES);
    if !(minutes > 0.0 && minutes.is_finite()) || args.faults == Some(0) {
        return Err(Failure::usage("--minutes and --faults: expected more than 0"));
    }
    let files: Vec<&Path> = args.config.as_deref().into_iter().collect();
    let defaults = DEFAULTS.parse().map_err(Failure::internal)?;
    let mut settings = Settings { out: None, ..Settings::extended(defaults, &files, &[&args])? };
    // With fewer, the first worker that is back has all tasks of an iteration, and it may be the slow one.
    settings.min_workers = settings.workers.count as usize;
    let inputs = Inputs::open((extensions.models)(&settings.model)?, &settings.data, settings.seed)?;
    let folder = create(&args.out.clone().unwrap_or_else(|| Path::new("runs").join(new_run_id("chaos"))))?;
    let (file, data, table) = (folder.join("settings.toml"), inputs.training_file(), inputs.model.table());
    let plan = Plan { settings, file, folder, data, table };
    std::fs::write(&plan.file, plan.settings.to_toml()?).map_err(Failure::disk)?;
    let signal = signals::stop()?;
    tokio::select! {
        biased;
        // The processes are killed when the other branch is dropped.
        _ = signal => Ok(ExitCode::from(INTERRUPTED)),
        ended = Box::pin(disturb(args, minutes, plan)) => ended,
    }
}

/// Creates a folder, and returns its absolute path.
fn create(folder: &Path) -> Result<PathBuf, Failure> {
    let shown = folder.display();
    if folder.exists() {
        return Err(Failure::usage(format!("--out {shown}: it exists; expected a new folder")));
    }
    let created = std::fs::create_dir_all(folder).and_then(|()| folder.canonicalize());
    created.map_err(|cause| Failure::disk(format!("cannot create {shown}: {cause}")))
}

/// Runs the cluster under faults and then without, and compares.
async fn disturb(args: ChaosArgs, minutes: f64, plan: Plan) -> Result<ExitCode, Failure> {
    let (workers, seed) = (plan.settings.workers.count, plan.settings.seed);
    let target = Target {
        workers,
        heartbeat_timeout: plan.settings.heartbeat_timeout(),
        parameters_bytes: 4 * plan.table.parameters() as u64,
        cadence: args.checkpoint_every.clone(),
    };
    let schedule = Schedule::new(&args.only, target, seed);
    let kinds = schedule.kinds().to_vec();
    let names: Vec<String> = kinds.iter().map(|kind| kind.name()).collect();
    eprintln!("{workers} workers under faults of seed {seed}: {}; logs in {}", names.join(", "), plan.folder.display());
    let (cadence, heartbeat_timeout) = (plan.settings.checkpoint_cadence()?, plan.settings.heartbeat_timeout());
    let seen = Seen::new(&plan.disturbed());
    let first = plan.settings.checkpoint_every.clone();
    if kinds.contains(&FaultKind::KillStart) {
        // The folder is created in several steps.
        for moment in FIRST_STARTS {
            kill_start(&plan, &first, moment).await?;
        }
    }
    let (cluster, line) = (Cluster::start(plan, &first).await?, live_line());
    let mut run = Disturbed { cluster, seen, cadence, heartbeat_timeout, line };
    run.gets_going().await?;
    let (outcomes, mut broken) = inflict_all(&mut run, schedule, args.faults, minutes).await;
    run.line.finish_and_clear();
    let faults: Vec<OfKind> = kinds.into_iter().map(|kind| OfKind::new(kind, &outcomes)).collect();
    broken.extend(faults.iter().flat_map(OfKind::broken));
    if run.seen.lost_without_fault > 0 {
        broken.push(format!("{} workers lost that were well, without any fault", run.seen.lost_without_fault));
    }
    let mut verdict = Verdict { seed, faults, broken, ..Verdict::default() };
    if let Err(failure) = end(run, &mut verdict).await {
        verdict.broken.push(failure.to_string());
    }
    verdict.finish(args.json)
}

/// Carries out as many faults as were asked for, or as there is time for. Returns what came of them, and the fault from
/// which the run did not recover.
async fn inflict_all(
    run: &mut Disturbed,
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
        let inflicted = async {
            run.goes_on(fault.after).await?;
            run.inflict(&fault).await
        };
        match inflicted.await {
            Ok(outcome) => {
                let worker = outcome.worker.map_or_else(String::new, |worker| format!(" {worker}"));
                let what = if outcome.worker.is_some() { "longer" } else { "to the first step after it" };
                let (iteration, took) = (outcome.iteration, seconds(outcome.recovery_s));
                let name = fault.kind.name();
                run.line.suspend(|| {
                    eprintln!(
                        "{elapsed_s:6.1} s  fault {number}: {name}{worker} in iteration {iteration}: {took} {what}"
                    );
                });
                outcomes.push(outcome);
            }
            Err(failure) => return (outcomes, vec![format!("fault {number}, {}: {failure}", fault.kind.name())]),
        }
    }
    (outcomes, Vec::new())
}

/// Stops the run, repeats it without faults, and compares the two.
async fn end(mut run: Disturbed, verdict: &mut Verdict) -> Result<(), Failure> {
    let began = Instant::now();
    run.cluster.signal_coordinator(Signal::TERM)?;
    let status = run.cluster.coordinator_ends(STOPS_WITHIN).await?;
    verdict.coordinator_stopped_s = began.elapsed().as_secs_f64();
    if status.code() != Some(RESUMABLE.into()) {
        verdict.broken.push(format!("after SIGTERM the coordinator ended with {status}: expected {RESUMABLE}"));
    }
    let began = Instant::now();
    let workers = run.cluster.stop_workers(STOPS_WITHIN).await?;
    verdict.workers_stopped_s = began.elapsed().as_secs_f64();
    for status in workers.iter().filter(|status| !status.success()) {
        verdict.broken.push(format!("after SIGTERM a worker ended with {status}: expected 0"));
    }
    run.seen.look()?;
    let plan = run.cluster.plan;
    verdict.processes_left = plan.processes();
    let steps = run.seen.step;
    let disturbed = plan.end(steps + 1).await?;
    verdict.iterations = disturbed.iterations;
    eprintln!("the same {} iterations without faults…", disturbed.iterations);
    let undisturbed = plan.undisturbed(disturbed.iterations).await?;
    verdict.compare(disturbed, undisturbed);
    Ok(())
}
