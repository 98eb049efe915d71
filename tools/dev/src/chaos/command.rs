//! The command `ata-dev chaos`.

use std::path::Path;

use ata::{Exit, Extensions, Failure, LocalRun, live_line, note, print, render_table};
use ata_figures::Table;
use ata_types::seconds;
use indicatif::ProgressBar;
use tokio::signal::unix::{SignalKind, signal};

use super::{ChaosArgs, ChaosError, Config, FaultKind, KindSummary, Observer, Outcome, Verdict};

/// Default settings of a run under faults that differ from those of `ata up`. The run lasts until it is stopped.
const DEFAULTS: &str = "
device = 'cpu'
model = 'cnn:widths=8/16/256/1024'
iterations = 1_000_000_000
eval_every = 0
task_time = 'const(20); const(20); const(20); const(400)'
";

/// Minutes during which faults are injected by default: enough for each kind to occur at least once.
const MINUTES: f64 = 2.0;

/// Runs the cluster under faults, and prints the verdict.
pub(crate) async fn command(args: ChaosArgs) -> Result<Exit, Failure> {
    let (config, json) = (config(&args)?, args.json);
    let mut console = Console { workers: config.workers, seed: config.seed, line: live_line() };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::internal)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::internal)?;
    let verdict = tokio::select! {
        biased;
        // The processes are killed when the last branch is dropped.
        _ = interrupt.recv() => return Ok(Exit::INTERRUPTED),
        _ = terminate.recv() => return Ok(Exit::INTERRUPTED),
        verdict = Box::pin(super::run(config, &mut console)) => verdict.map_err(failure)?,
    };
    print(json, &verdict, || text(&verdict))?;
    if verdict.broken.is_empty() {
        return Ok(Exit::DONE);
    }
    Err(Failure::internal(format!("broken promises: {}", verdict.broken.join("; "))))
}

fn config(args: &ChaosArgs) -> Result<Config, Failure> {
    let minutes = args.minutes.unwrap_or(MINUTES);
    if !(minutes > 0.0 && minutes.is_finite()) || args.faults == Some(0) {
        return Err(Failure::usage("--minutes and --faults: expected more than 0"));
    }
    let flags = toml::Table::try_from(args).map_err(Failure::usage)?;
    let run = LocalRun::resolve(DEFAULTS, args.config.as_deref(), &flags, Extensions::default())?;
    Ok(Config {
        program: run.program,
        settings: run.settings,
        folder: args.out.clone().unwrap_or_else(|| Path::new("runs").join(LocalRun::new_id("chaos"))),
        worker_args: run.worker_args,
        workers: run.workers,
        budget: run.budget,
        parameters_bytes: run.parameters_bytes,
        heartbeat_timeout: run.heartbeat_timeout,
        first_checkpoint_every: run.checkpoint_every,
        checkpoint_every: args.checkpoint_every.clone(),
        seed: run.seed,
        only: args.only.clone(),
        faults: args.faults,
        minutes,
    })
}

/// Converts an error of a chaos run to a failure with an exit code.
fn failure(error: ChaosError) -> Failure {
    match error {
        ChaosError::FolderExists(_) => Failure::usage(error),
        ChaosError::Write { .. } => Failure::disk(error),
        ChaosError::Journal(error) => error.into(),
        ChaosError::Output { .. } => Failure::data(error),
        ChaosError::Process(_) | ChaosError::Broken(_) => Failure::internal(error),
    }
}

/// Shows the progress on standard error.
struct Console {
    workers: u32,
    seed: u64,
    /// A live line with the state of the run, on a terminal.
    line: ProgressBar,
}

impl Observer for Console {
    fn starts(&mut self, kinds: &[FaultKind], folder: &Path) {
        let names: Vec<String> = kinds.iter().map(|kind| kind.name()).collect();
        let (workers, seed, names) = (self.workers, self.seed, names.join(", "));
        note!("{workers} workers under faults of seed {seed}: {names}; logs in {}", folder.display());
    }

    fn progresses(&mut self, step: u64, workers: usize) {
        self.line.set_message(format!("iteration {step}  {workers} workers"));
    }

    fn recovered(&mut self, number: u64, elapsed_s: f64, outcome: &Outcome) {
        let worker = outcome.worker.map_or_else(String::new, |worker| format!(" {worker}"));
        let what = if outcome.worker.is_some() { "longer" } else { "to the first new step" };
        let (name, iteration, took) = (outcome.kind.name(), outcome.iteration, seconds(outcome.recovery_s));
        self.line.suspend(|| {
            note!("{elapsed_s:6.1} s  fault {number}: {name}{worker} in iteration {iteration}: {took} {what}");
        });
    }

    fn faults_end(&mut self) {
        self.line.finish_and_clear();
    }

    fn repeats(&mut self, iterations: u64) {
        note!("the same {iterations} iterations without faults…");
    }
}

fn text(verdict: &Verdict) -> String {
    let unknown = || "unknown".to_owned();
    let (coordinator, workers) = (seconds(verdict.coordinator_stopped_s), seconds(verdict.workers_stopped_s));
    let lines = [
        ("iterations", verdict.iterations.to_string()),
        ("after SIGTERM", format!("the coordinator ended in {coordinator}, the workers in {workers}")),
        ("processes left", verdict.processes_left.to_string()),
        ("parameters", verdict.parameters_sha256.clone().unwrap_or_else(unknown)),
        ("without faults", verdict.undisturbed_sha256.clone().unwrap_or_else(unknown)),
    ];
    let lines = lines.map(|(name, value)| format!("\n{name:<16}{value}")).concat();
    render_table(&table(&verdict.faults), usize::MAX) + &lines + "\n"
}

/// Returns the table of all kinds of faults.
fn table(kinds: &[KindSummary]) -> Table {
    let header = [
        "fault",
        "fired",
        "in a step",
        "steps again (worst)",
        "median",
        "99 %",
        "worst",
        "late",
        "workers lost wrongly",
        "saved steps lost",
    ];
    Table {
        title: "Recovery: time to the first step beyond those taken before; for faults of a worker, extra time of an iteration"
            .into(),
        header: header.map(String::from).into(),
        rows: kinds.iter().map(row).collect(),
    }
}

fn row(kind: &KindSummary) -> Vec<String> {
    vec![
        kind.kind.name(),
        kind.fired.to_string(),
        kind.in_step.to_string(),
        format!("{} ({})", kind.steps_again, kind.steps_again_worst),
        seconds(kind.recovery_median_s),
        seconds(kind.recovery_p99_s),
        seconds(kind.recovery_worst_s),
        kind.late.to_string(),
        kind.lost_wrongly.to_string(),
        kind.saved_steps_lost.to_string(),
    ]
}
