//! `ata chaos`: a cluster on this machine under faults, by [`ata_chaos`].

use std::ffi::OsString;
use std::path::Path;

use ata_chaos::{ChaosError, Config, FaultKind, KindSummary, Observer, Outcome, Verdict};
use ata_figures::Table;
use ata_learn::DeviceChoice;
use ata_types::seconds;
use indicatif::ProgressBar;

use super::up::worker_args;
use crate::Extensions;
use crate::args::ChaosArgs;
use crate::failure::{Exit, Failure, INTERRUPTED};
use crate::inputs::Inputs;
use crate::output::{Output, live_line, note, render_table};
use crate::run::new_run_id;
use crate::settings::Settings;
use crate::signals;

/// Settings of a run under faults that are not the usual defaults. It lasts until it is stopped.
const DEFAULTS: &str = "
device = 'cpu'
iterations = 1_000_000_000
eval_every = 0
task_time = 'const(20); const(20); const(20); const(400)'
";

/// The model that is trained, unless the program has another one.
const MODEL: &str = "cnn:widths=8/16/256/1024";

/// How long faults are injected: each kind comes once at least.
const MINUTES: f64 = 2.0;

pub(crate) async fn run(args: ChaosArgs, extensions: Extensions) -> Result<Exit, Failure> {
    let (config, json) = (config(&args, extensions)?, args.json);
    let mut console = Console { workers: config.workers, seed: config.seed, line: live_line() };
    let signal = signals::stop()?;
    let verdict = tokio::select! {
        biased;
        // The processes are killed when the other branch is dropped.
        _ = signal => return Ok(Exit(INTERRUPTED)),
        verdict = Box::pin(ata_chaos::run(config, &mut console)) => verdict?,
    };
    verdict.print(json)?;
    if verdict.broken.is_empty() {
        return Ok(Exit::DONE);
    }
    Err(Failure::internal(format!("broken promises: {}", verdict.broken.join("; "))))
}

fn config(args: &ChaosArgs, extensions: Extensions) -> Result<Config, Failure> {
    let minutes = args.minutes.unwrap_or(MINUTES);
    if !(minutes > 0.0 && minutes.is_finite()) || args.faults == Some(0) {
        return Err(Failure::usage("--minutes and --faults: expected more than 0"));
    }
    let files: Vec<&Path> = args.config.as_deref().into_iter().collect();
    let mut defaults = extensions.defaults()?;
    defaults.entry("model").or_insert_with(|| MODEL.into());
    defaults.extend(DEFAULTS.parse::<toml::Table>().map_err(Failure::internal)?);
    let mut settings = Settings { out: None, ..Settings::extended(defaults, &files, &[args])? };
    // With fewer, the first worker that is back has all tasks of an iteration, and it may be the slow one.
    settings.min_workers = settings.workers.count as usize;
    let inputs = Inputs::open(extensions.models, &settings.model, &settings.data, settings.seed)?;
    let mut worker_args: Vec<OsString> =
        worker_args(&settings, DeviceChoice::Cpu).into_iter().map(OsString::from).collect();
    if let Some(data) = inputs.training_file() {
        worker_args.extend(["--data".into(), data.into_os_string()]);
    }
    Ok(Config {
        program: extensions.program()?,
        settings: settings.to_toml()?,
        folder: args.out.clone().unwrap_or_else(|| Path::new("runs").join(new_run_id("chaos"))),
        worker_args,
        workers: settings.workers.count,
        budget: settings.budget,
        parameters_bytes: 4 * inputs.model.parameter_count() as u64,
        heartbeat_timeout: settings.heartbeat_timeout(),
        first_checkpoint_every: settings.checkpoint_every,
        checkpoint_every: args.checkpoint_every.clone(),
        seed: settings.seed,
        only: args.only.clone(),
        faults: args.faults,
        minutes,
    })
}

impl From<ChaosError> for Failure {
    fn from(error: ChaosError) -> Self {
        match error {
            ChaosError::FolderExists(_) => Self::usage(error),
            ChaosError::Write { .. } => Self::disk(error),
            ChaosError::Journal(error) => error.into(),
            ChaosError::Output { .. } => Self::data(error),
            ChaosError::Process(_) | ChaosError::Broken(_) => Self::internal(error),
        }
    }
}

/// Shows the progress on standard error.
struct Console {
    workers: u32,
    seed: u64,
    /// The state of the run, on a terminal.
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

impl Output for Verdict {
    fn text(&self) -> String {
        let unknown = || "unknown".to_owned();
        let (coordinator, workers) = (seconds(self.coordinator_stopped_s), seconds(self.workers_stopped_s));
        let lines = [
            ("iterations", self.iterations.to_string()),
            ("after SIGTERM", format!("the coordinator ended in {coordinator}, the workers in {workers}")),
            ("processes left", self.processes_left.to_string()),
            ("parameters", self.parameters_sha256.clone().unwrap_or_else(unknown)),
            ("without faults", self.undisturbed_sha256.clone().unwrap_or_else(unknown)),
        ];
        let lines = lines.map(|(name, value)| format!("\n{name:<16}{value}")).concat();
        render_table(&table(&self.faults), usize::MAX) + &lines + "\n"
    }
}

/// The table of all kinds.
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
