//! A run of the coordinator, from settings to the final table, for `ata up` and `ata coordinator`.
//!
//! # Layout
//! - this file: [`Run`], which is ready to begin, and [`EndedRun`]
//! - `folder`: the run's folder; `place`: the place of its checkpoints, and the right to write there
//! - `resume`: the run that `--resume` names
//! - `summary`: the result, for scripts and as tables; `statistics`: the file that later runs read
//! - `model`: the metadata of model files, and reading them
//! - `dashboard`: the observers of the run
//! - `recorded`: a run read back from its journal
//! - `task_size`: the size of tasks, if only the samples of a step are given
//! - `counterfactual`: the costs of other policies on its times

pub(crate) mod counterfactual;
pub(crate) mod dashboard;
mod folder;
pub(crate) mod model;
mod place;
pub(crate) mod recorded;
pub(crate) mod registry;
pub(crate) mod resume;
mod statistics;
mod summary;
mod task_size;

pub(crate) use folder::RunFolder;
#[cfg(target_os = "linux")]
pub(crate) use folder::new_run_id;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use ata_coordinator::{
    CheckpointConfig, CoordinatorConfig, EvaluationConfig, OwnEvaluation, PolicyConfig, ProblemConfig, Progress,
    RunConfig, RunError, RunReport, Start, StopReason, TransferLimits, WorkersConfig,
};
use ata_learn::{DeviceChoice, OpenDevice};
use ata_net::Security;
use ata_observe::{PolicyCost, Snapshot};
use ata_record::{REPORT_FILE, RunState, STATISTICS_FILE, check_run, steps_after};
use ata_scheduler::{FinishReason, Policy, PolicyContext, WorkerStatistics};
use ata_sums::{RuleName, TensorKind};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use crate::Extensions;
use crate::args::CommonArgs;
use crate::escape::escaped;
use crate::failure::{Exit, Failure, require};
use crate::inputs::Inputs;
use crate::output::{note, show_progress};
use crate::settings::{KeptJournal, OnBadSample, Settings};
use crate::signals::Signal;
use counterfactual::counterfactuals;
pub(crate) use dashboard::Dashboard;
use dashboard::Observers;
use place::Hold;
use resume::{Results, Resumption};
use summary::Summary;

pub(crate) struct ExpectedWorkers {
    pub(crate) at_least: usize,
    pub(crate) exactly: Option<u32>,
    pub(crate) means: Option<Vec<f64>>,
    pub(crate) devices: Option<String>,
}

pub(crate) struct Run {
    settings: Settings,
    policy: Box<dyn Policy>,
    warm_start: BTreeMap<String, WorkerStatistics>,
    inputs: Inputs,
    device: OpenDevice,
    start: Start,
    min_workers: usize,
    resumption: Option<Resumption>,
    /// Whether a run without a checkpoint is restarted in the same folder.
    again: bool,
    hold: Option<Hold>,
    device_name: String,
    state: watch::Sender<RunState>,
}

impl Run {
    /// Checks everything that can be checked before an address is bound or a file is written, except that a resumed run is locked.
    pub(crate) fn new(
        mut settings: Settings,
        extensions: Extensions,
        inputs: Inputs,
        device: DeviceChoice,
        expected: ExpectedWorkers,
        resumption: Option<Resumption>,
        common: &CommonArgs,
    ) -> Result<Self, Failure> {
        settings.count_epochs(inputs.samples)?;
        let model = &inputs.model;
        model::check_size(&settings.model, &model.table())?;
        // A mistake in the parameter groups is found before the run has a folder.
        settings.optimizer(&model.table())?;
        require(settings.optimizer != RuleName::Own || model.optimizer()?.is_some(), || {
            format!("--optimizer own: '{}' has none of its own; expected adam, adamw or sgd", settings.model)
        })?;
        require(settings.target_accuracy.is_none() || !model.class_names().is_empty(), || {
            format!("--target-accuracy: model '{}' has no classes, only a loss", settings.model)
        })?;
        require(
            settings.verify == 0.0 || expected.exactly != Some(1),
            || "--verify: one worker cannot be checked by another; expected at least 2",
        )?;
        let has_weights = model.table().tensors.iter().any(|entry| entry.kind == TensorKind::Weight);
        require(!settings.measures_noise() || !has_weights, || {
            format!(
                "--gradient-noise, --budget auto and noise: the tasks of '{}' have weights; expected tasks that count alike",
                settings.model
            )
        })?;
        let hold = resumption.as_ref().map(Resumption::hold).transpose()?;
        let start = match (&resumption, &settings.init) {
            (Some(resumption), _) => Start::Checkpoint(Box::new(resumption.load(&model.table(), &settings)?)),
            (None, Some(file)) => Start::Parameters(model::read_start(file, &**model, &settings)?),
            (None, None) => Start::Random,
        };
        let context = PolicyContext { means: expected.means, workers: expected.exactly, ..PolicyContext::default() };
        let policy_specification = settings.policy_specification()?;
        let policy = || (extensions.policies)(&policy_specification, &context);
        if let (Some(resumption), Start::Checkpoint(checkpoint)) = (&resumption, &start) {
            checkpoint.progress.check_data(&inputs.training.identity())?;
            check_run(&resumption.folder, &checkpoint.progress.run_id)?;
            checkpoint.progress.engine.teach(&mut *policy()?).map_err(RunError::from)?;
        }
        let policy = policy()?;
        let warm_start = settings.warm_start.as_deref().map_or_else(|| Ok(BTreeMap::new()), statistics::read)?;
        let device = device.open()?;
        let prices = settings.workers.prices.clone();
        let device_name = expected.devices.unwrap_or_else(|| device.name.clone());
        Ok(Self {
            settings,
            policy,
            warm_start,
            inputs,
            device,
            start,
            min_workers: expected.at_least,
            again: common.resume.as_deref() == Some("auto"),
            resumption,
            hold,
            device_name,
            state: watch::Sender::new(RunState::new(prices)),
        })
    }

    /// Returns the reason why the resumed run is over, if it has no iterations left.
    pub(crate) fn finished(&self) -> Option<FinishReason> {
        let Start::Checkpoint(checkpoint) = &self.start else { return None };
        checkpoint.progress.engine.finished(&self.settings.engine(1))
    }

    /// Returns the last iteration of the checkpoint that the run resumes from; 0 for a new run.
    pub(crate) fn resumes_after(&self) -> u64 {
        match &self.start {
            Start::Checkpoint(checkpoint) => checkpoint.progress.iteration.number(),
            _ => 0,
        }
    }

    /// Whether the run is over and has all its results, which is printed. With `--resume auto`, it may have left no checkpoint.
    pub(crate) fn is_complete(&self) -> bool {
        let out = self.settings.out.as_deref().filter(|_| self.again && self.resumption.is_none());
        if let Some((out, results)) = out.and_then(|out| Some((out, Results::of(out)?))) {
            let (out, iterations) = (out.display(), results.iterations);
            note!("the run in {out} is finished after {iterations} iterations, and left no checkpoint to go on from");
            return true;
        }
        let (Start::Checkpoint(checkpoint), Some(reason)) = (&self.start, self.finished()) else { return false };
        let Progress { run_id, iteration, .. } = &checkpoint.progress;
        let run_id = escaped(run_id);
        let results = self.resumption.as_ref().and_then(|resumption| Results::of(&resumption.folder));
        if results.is_none_or(|results| results.iterations != iteration.number()) {
            note!("run {run_id} is over after {iteration} iterations, but lacks results: they are made now");
            return false;
        }
        if reason == FinishReason::Iterations {
            note!("run {run_id} has its {iteration} iterations; --iterations with a larger number extends it");
        } else {
            let limit = reason.name();
            note!(
                "run {run_id} is finished: it reached its {limit} after {iteration} iterations; another limit extends it"
            );
        }
        true
    }

    pub(crate) fn folder(&mut self) -> Result<RunFolder, Failure> {
        let (Some(resumption), Some(hold), Start::Checkpoint(checkpoint)) =
            (&self.resumption, self.hold.take(), &self.start)
        else {
            return RunFolder::create(&self.settings, self.again);
        };
        let Progress { run_id, iteration, .. } = &checkpoint.progress;
        let again = match steps_after(&resumption.folder, *iteration)? {
            0 => String::new(),
            1 => "; one later iteration is computed again".into(),
            later => format!("; {later} later iterations are computed again"),
        };
        note!("resuming run {} after iteration {iteration}{again}", escaped(run_id));
        RunFolder::reopen(hold, resumption, run_id, *iteration, &self.settings)
    }

    pub(crate) fn state(&self) -> watch::Receiver<RunState> {
        self.state.subscribe()
    }

    /// Trains with the workers that connect to `listener`, until the run is done or `stop` resolves.
    pub(crate) async fn train(
        self,
        folder: &RunFolder,
        listener: TcpListener,
        security: Arc<Security>,
        dashboard: Option<Dashboard>,
        stop: impl Future<Output = ()>,
    ) -> Result<EndedRun, Failure> {
        let mut observers = Observers::start(dashboard, &self.settings, &folder.path, self.state())?;
        let Self { settings, policy, warm_start, inputs, device, start, min_workers, device_name, state, .. } = self;
        let Inputs { model, specification, training, samples, test, own_test, test_samples, by_workers, .. } = inputs;
        let (model_metadata, table) = (model::metadata(&specification, &*model), model.table());
        if settings.verify > 0.0 {
            note!("a share of {} of all leases is computed by two workers, and must agree", settings.verify);
        }
        let config = CoordinatorConfig {
            run: RunConfig {
                id: folder.run_id.clone(),
                labels: settings.labels(),
                folder: folder.path.clone(),
                keeps_all_events: settings.journal == KeptJournal::Full,
                settings: settings.to_toml()?,
                listeners: observers.take_listeners(),
            },
            engine: settings.engine(min_workers),
            policy: PolicyConfig { policy, specification: settings.policy_specification()? },
            problem: ProblemConfig {
                model,
                specification,
                task_batch: settings.task_batch,
                skip_bad_samples: settings.on_bad_sample == OnBadSample::Skip,
                data: training,
                samples,
            },
            training: settings.training(&table, start)?,
            evaluation: EvaluationConfig {
                source: test,
                own: own_test.map(|data| OwnEvaluation { data, device }),
                samples: test_samples,
                by_workers,
                every: settings.evaluate_every(),
            },
            checkpoints: CheckpointConfig {
                cadence: settings.checkpoint_cadence()?,
                retention: settings.retention(),
                store: place::open(settings.checkpoint.as_deref(), &folder.path)?,
                model_metadata,
            },
            workers: WorkersConfig {
                heartbeat_timeout: settings.heartbeat_timeout(),
                transfers: TransferLimits::default(),
                exchange: settings.exchange,
                peer_hosts: settings.peer_hosts(),
                warm_start,
            },
            security,
        };
        let display = tokio::spawn(show_progress(state.subscribe(), settings.iterations.count()));
        let report = ata_coordinator::run(config, listener, state, stop).await;
        // The run has dropped its sender, so the display ends by itself.
        drop(display.await);
        Ok(EndedRun { report: report?, settings, device_name, observers })
    }
}

pub(crate) struct EndedRun {
    report: RunReport,
    settings: Settings,
    device_name: String,
    observers: Observers,
}

impl EndedRun {
    /// Writes the run's results, prints them, and returns the exit code. `received` is the signal that stopped the run. With `--stay`, the
    /// dashboard of a successful run is served until `signal` resolves; a failed run ends at once, so that its supervisor learns of it.
    pub(crate) async fn finish(
        self,
        folder: &RunFolder,
        CommonArgs { json, stay, .. }: &CommonArgs,
        received: Option<Signal>,
        signal: impl Future<Output = Signal>,
    ) -> Result<Exit, Failure> {
        let Self { report, settings, device_name, observers } = self;
        let mut summary = Summary::new(&folder.run_id, &folder.path, &settings, &device_name, &report);
        let statistics = statistics::to_json(&report.statistics).and_then(|text| folder.write(STATISTICS_FILE, &text));
        // An error is ignored because the summary is written again.
        drop(summary.write(folder));
        let mut signal = pin!(signal);
        let (is_stopped, rows) = match received {
            // A supervisor waits for the process to exit, so this takes no time for other policies.
            Some(Signal::Terminate) => (true, Vec::new()),
            Some(Signal::Interrupt) => (true, other_policies(&report.state, &settings).await),
            None => tokio::select! {
                rows = other_policies(&report.state, &settings) => (false, rows),
                _ = &mut signal => (true, Vec::new()),
            },
        };
        summary.counterfactual = Some(rows);
        let page = write_page(&summary, &report.state, folder);
        let written = [statistics, page, summary.write(folder), observers.written(), summary.print(*json)];
        let code = exit_code(report, written.into_iter().filter_map(Result::err).collect(), received);
        if *stay && !is_stopped && code.is_ok() && observers.are_seen() {
            note!("the dashboard stays until Ctrl-C");
            signal.await;
        }
        observers.end().await;
        code
    }
}

/// Computes what policies would have cost, which takes seconds in a large cluster. A process that exits does not wait for it.
async fn other_policies(run: &RunState, settings: &Settings) -> Vec<PolicyCost> {
    let (recorded, budget, seed) = (counterfactual::recorded(run), settings.tasks(), settings.seed);
    let (iterations, own) = (run.iterations, run.policy.clone());
    let (sender, rows) = oneshot::channel();
    std::thread::spawn(move || drop(sender.send(counterfactuals(&recorded, budget, iterations, seed, &own))));
    // A panic has been printed, and the table omits these costs.
    rows.await.unwrap_or_default()
}

/// Returns the exit code after a run, given which of its results are missing.
fn exit_code(report: RunReport, mut missing: Vec<Failure>, signal: Option<Signal>) -> Result<Exit, Failure> {
    // A failure of the run takes precedence over a failure to write its results.
    let stopped = report.ended.inspect_err(|_| missing.iter().for_each(|failure| tracing::warn!("{failure}")))?;
    let not_saved = report.not_saved.map(|reason| format!("{reason}; the checkpoints before it are kept"));
    missing.extend(not_saved.map(Failure::disk));
    if !missing.is_empty() {
        let missing: Vec<String> = missing.iter().map(Failure::to_string).collect();
        return Err(Failure::disk(missing.join("; ")));
    }
    match (stopped, signal) {
        (_, Some(Signal::Interrupt)) => Ok(Exit::INTERRUPTED),
        // This includes runs without checkpoints: the run is not done, and its supervisor should restart it.
        (StopReason::Stopped, Some(Signal::Terminate)) => Ok(Exit::RESUMABLE),
        (StopReason::Stopped, None) => {
            Err(Failure::internal("too few workers are left to continue; see the messages above"))
        }
        _ => Ok(Exit::DONE),
    }
}

fn write_page(summary: &Summary, state: &RunState, folder: &RunFolder) -> Result<(), Failure> {
    if summary.iterations == 0 {
        return Ok(());
    }
    let others = summary.counterfactual.as_deref().unwrap_or_default();
    folder.write(REPORT_FILE, &ata_observe::report(&format!("Run {}", summary.run_id), &[Snapshot::of(state, others)]))
}
