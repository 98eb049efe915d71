//! The result of a run: the file `summary.json` for scripts, and tables for the terminal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ata_coordinator::{RunReport, StopReason};
use ata_data::hex;
use ata_figures::Table;
use ata_observe::{Efficiency, PolicyCost, contributions};
use ata_record::{EndState, Labels, RefusalKind, RunState, SUMMARY_FILE, WorkerState};
use ata_types::{Iteration, WorkerId, seconds};
use serde::Serialize;

use super::RunFolder;
use super::counterfactual::{cost_text, own_replay};
use crate::escape::escaped;
use crate::failure::Failure;
use crate::output::{metrics_text, note, print, render_table};
use crate::say::is_json;
use crate::settings::{BudgetPath, Settings};
use crate::shell;

const WORKERS_SHOWN: usize = 16;

/// The result of a run, for scripts. Times are in seconds, losses in the problem's unit; accuracy is from 0 to 1, and null without classes.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) run_id: String,
    #[serde(flatten)]
    pub(crate) labels: Labels,
    /// The state at the end: `finished`, `stopped` before it was done, or `failed`.
    state: EndState,
    /// The rule that ended the run: `iterations`, `target_loss`, `runtime`, `total_worker_time` or `employments`.
    ended_by: Option<&'static str>,
    pub(crate) error: Option<String>,
    pub(crate) policy: String,
    /// The largest number of any worker. It is the number of workers that took part, unless some were forgotten and their numbers reused.
    workers: usize,
    pub(crate) worker_names: BTreeMap<WorkerId, String>,
    budget: u64,
    /// If the number of tasks was chosen, the --budget that repeats it.
    pub(crate) budget_path: Option<String>,
    task_batch: u32,
    pub(crate) iterations: u64,
    /// The time from the first assignment to the last committed step.
    pub(crate) runtime_s: f64,
    /// The sum of the total worker times of all iterations.
    pub(crate) total_worker_time_s: f64,
    /// The mean over iterations of the time from assignment to the last result.
    pub(crate) mean_iteration_s: f64,
    tasks_applied: u64,
    pub(crate) tasks_wasted: u64,
    /// The number of results, each the gradient of one task or the sum of several.
    results: u64,
    employments: u64,
    /// The mean number of applied tasks per iteration of each worker, worker 1 first.
    pub(crate) allocation_mean: Vec<f64>,
    /// The mean time per applied task of each worker, worker 1 first; null for a worker without any.
    pub(crate) task_mean_s: Vec<Option<f64>>,
    /// The time of each worker that was not computation (transport, waiting, encoding), worker 1 first.
    overhead_s: Vec<f64>,
    /// What the workers achieve together, if the noise of gradients is measured and known.
    pub(crate) efficiency: Option<Efficiency>,
    /// The share of what a second achieves that would be missing without each worker, by number, if that is known.
    pub(crate) contributions: BTreeMap<WorkerId, f64>,
    pub(crate) first_loss: Option<f64>,
    pub(crate) final_loss: Option<f64>,
    pub(crate) test_loss: Option<f64>,
    pub(crate) test_accuracy: Option<f64>,
    /// The problem's own metrics on the test data, by name.
    pub(crate) test_metrics: BTreeMap<String, f64>,
    pub(crate) test_iteration: Option<u64>,
    pub(crate) parameters_sha256: String,
    device: String,
    seed: u64,
    data: String,
    model: String,
    /// The number of tasks whose real computation outlasted their emulated time.
    pub(crate) tasks_outlasted: u64,
    /// The number of gradient values that were clamped because they were too large for their unit.
    pub(crate) saturated: u64,
    /// The number of nonzero gradient values that the wire format `compact` rounded to 0.
    pub(crate) vanished: u64,
    /// The share of these values in all values of the applied tasks' gradients.
    #[serde(skip)]
    pub(crate) vanished_share: f64,
    /// The number of steps whose vectors were exchanged in shards.
    pub(crate) sharded_steps: u64,
    verify: f64,
    /// The number of results that differ from those on which two other workers agree, by the number of the worker that sent them.
    pub(crate) mismatches: BTreeMap<WorkerId, u64>,
    pub(crate) expelled: BTreeMap<WorkerId, String>,
    refused: BTreeMap<RefusalKind, u64>,
    /// The costs that other policies would have had on the recorded task times. It is computed last, and null until then.
    pub(crate) counterfactual: Option<Vec<PolicyCost>>,
    /// A description of where a stopped run ended, and how to resume it.
    #[serde(skip)]
    pub(crate) stopped: Option<String>,
    #[serde(skip)]
    pub(crate) folder: PathBuf,
}

/// Says where a stopped run ended, and which command goes on with it.
fn stopped(folder: &Path, settings: &Settings, report: &RunReport) -> String {
    let (ended, done) = (report.state.iterations, report.state.progress());
    let saved = match report.state.saved.map(Iteration::number) {
        None => return format!("after {done} of {} iterations, which are not saved", settings.iterations),
        Some(saved) if saved == ended => "and saved".into(),
        Some(saved) => format!("saved up to iteration {saved}"),
    };
    format!("after {done} of {} iterations, {saved}; to go on: {}", settings.iterations, shell::resuming(folder))
}

fn of_workers<T>(run: &RunState, what: impl Fn(&WorkerState) -> Option<T>) -> BTreeMap<WorkerId, T> {
    run.workers.iter().filter_map(|(id, worker)| Some((*id, what(worker)?))).collect()
}

impl Summary {
    pub(crate) fn new(run_id: &str, folder: &Path, settings: &Settings, device: &str, report: &RunReport) -> Self {
        let (state, ended_by) = match &report.ended {
            Ok(StopReason::Finished(reason)) => (EndState::Finished, Some(reason.name())),
            Ok(StopReason::Stopped) => (EndState::Stopped, None),
            Err(_) => (EndState::Failed, None),
        };
        let (run, totals) = (&report.state, &report.state.totals);
        let absent = WorkerState::default();
        let workers = || {
            (0..run.last_worker() as usize).map(|slot| run.workers.get(&WorkerId::from_slot(slot)).unwrap_or(&absent))
        };
        let iterations = run.iterations.max(1) as f64;
        Self {
            run_id: run_id.into(),
            labels: settings.labels(),
            state,
            ended_by,
            error: report.ended.as_ref().err().map(ToString::to_string),
            policy: settings.policy.clone(),
            workers: run.workers.len(),
            worker_names: run.workers.iter().map(|(id, worker)| (*id, worker.name.clone())).collect(),
            budget: settings.tasks(),
            budget_path: settings.budget.rule().and_then(|_| BudgetPath::of(&run.budgets)).map(|path| path.to_string()),
            task_batch: settings.task_batch,
            iterations: run.iterations,
            runtime_s: run.runtime_s(),
            total_worker_time_s: totals.total_worker_time_s,
            mean_iteration_s: totals.iteration_time_s / iterations,
            tasks_applied: totals.tasks_applied,
            tasks_wasted: totals.tasks_wasted,
            results: totals.results,
            employments: totals.employments,
            allocation_mean: workers().map(|worker| worker.tasks_applied as f64 / iterations).collect(),
            task_mean_s: workers().map(WorkerState::mean_task_s).collect(),
            overhead_s: workers().map(|worker| worker.overhead_s).collect(),
            efficiency: Efficiency::of(run),
            contributions: contributions(run),
            first_loss: totals.first_loss,
            final_loss: totals.last_loss,
            test_loss: run.evaluation.map(|(loss, _)| loss),
            test_accuracy: run.evaluation.and_then(|(_, accuracy)| accuracy),
            test_metrics: run.metrics.clone(),
            test_iteration: run.evaluated.map(Iteration::number),
            parameters_sha256: hex(&report.parameters_sha256),
            device: device.into(),
            seed: settings.seed,
            data: settings.data.clone(),
            model: settings.model.clone(),
            tasks_outlasted: run.tasks_outlasted,
            saturated: totals.saturated,
            vanished: totals.vanished,
            vanished_share: totals.vanished as f64 / (totals.tasks_applied as f64 * report.parameters as f64).max(1.0),
            sharded_steps: totals.sharded_steps,
            verify: settings.verify,
            mismatches: of_workers(run, |worker| Some(worker.mismatches).filter(|count| *count > 0)),
            expelled: of_workers(run, |worker| worker.expelled.clone()),
            refused: run.refused.clone(),
            counterfactual: None,
            stopped: (state == EndState::Stopped).then(|| stopped(folder, settings, report)),
            folder: folder.into(),
        }
    }

    pub(super) fn write(&self, folder: &RunFolder) -> Result<(), Failure> {
        folder.write(SUMMARY_FILE, &(serde_json::to_string_pretty(self).map_err(Failure::internal)? + "\n"))
    }

    /// Prints the table or the JSON. The JSON does not say how to go on with a stopped run, so this is said on standard error.
    pub(super) fn print(&self, as_json: bool) -> Result<(), Failure> {
        if let (true, Some(stopped)) = (as_json || is_json(), &self.stopped) {
            note!("stopped {}", escaped(stopped));
        }
        print(as_json, self, || render(self))
    }
}

fn render(summary: &Summary) -> String {
    let Summary { run_id, labels, iterations, runtime_s, .. } = summary;
    let labels = if labels.is_empty() { String::new() } else { format!(" ({labels})") };
    let mut text = format!("\nrun {}{labels}: {iterations} iterations in {runtime_s:.1} s\n", escaped(run_id));
    text += &costs(summary);
    text.extend(about_replays(summary));
    text += &render_table(&workers(summary), WORKERS_SHOWN);
    let mut lines = result(summary);
    lines.push(("files", summary.folder.display().to_string()));
    let lines: Vec<String> =
        lines.into_iter().map(|(name, value)| format!("\n{name:<16}{}", escaped(&value))).collect();
    text + &lines.concat() + "\n"
}

fn costs(summary: &Summary) -> String {
    let per_iteration = 1.0 / summary.iterations.max(1) as f64;
    let own = PolicyCost {
        policy: summary.policy.clone(),
        label: format!("{} (this run)", summary.policy),
        iteration_s: summary.mean_iteration_s,
        worker_time_s: summary.total_worker_time_s * per_iteration,
        wasted: summary.tasks_wasted as f64 * per_iteration,
        bootstrapped: 0.0,
        note: String::new(),
    };
    let others = summary.counterfactual.as_deref().unwrap_or_default();
    let costs: Vec<PolicyCost> = std::iter::once(own).chain(others.iter().cloned()).collect();
    let has_idle = summary.task_mean_s.iter().any(Option::is_none);
    let left_out = if has_idle { ", by the workers that completed a task" } else { "" };
    let others = if others.is_empty() {
        String::new()
    } else {
        format!("; the first row was measured, the others replay its times of tasks and transfers{left_out}")
    };
    cost_text(format!("Per iteration{others}"), &costs)
}

fn about_replays(summary: &Summary) -> Option<String> {
    let own = own_replay(summary.counterfactual.as_deref()?)?;
    let measured_s = summary.total_worker_time_s / summary.iterations.max(1) as f64;
    Some(format!(
        "\nThe replay of {} itself has {:.2} times the measured runtime and {:.2} times the worker time: compare the other replays with it.\n\
         Workers that share cores slow each other down, which no replay knows.\n",
        escaped(&own.policy),
        own.iteration_s / summary.mean_iteration_s,
        own.worker_time_s / measured_s
    ))
}

fn workers(summary: &Summary) -> Table {
    let row = |(id, name): (&WorkerId, &String)| {
        let slot = id.slot();
        let time = summary.task_mean_s[slot].map_or("-".into(), seconds);
        let mut row = vec![format!("{id} {name}"), format!("{:.2}", summary.allocation_mean[slot]), time];
        if summary.efficiency.is_some() {
            let missing = summary.contributions.get(id).map(|share| format!("{:.0} %", 100.0 * share));
            row.push(missing.unwrap_or("-".into()));
        }
        row
    };
    let mut header: Vec<String> = ["worker", "tasks per iteration", "mean time of a task"].map(String::from).into();
    header.extend(summary.efficiency.map(|_| "missing without it".into()));
    Table { title: "Workers".into(), header, rows: summary.worker_names.iter().map(row).collect() }
}

fn result(summary: &Summary) -> Vec<(&'static str, String)> {
    let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.3}"));
    let (first, last) = (number(summary.first_loss), number(summary.final_loss));
    let mut lines = vec![("training loss", format!("{first} in the first iteration, {last} in the last"))];
    if let Some(loss) = summary.test_loss {
        let accuracy =
            summary.test_accuracy.map_or(String::new(), |share| format!(", accuracy {:.1} %", share * 100.0));
        let earlier = summary.test_iteration.filter(|iteration| *iteration != summary.iterations);
        let earlier = earlier.map_or(String::new(), |iteration| format!(", after iteration {iteration}"));
        lines.push(("test", format!("loss {loss:.3}{accuracy}{earlier}")));
    }
    if !summary.test_metrics.is_empty() {
        lines.push(("metrics", metrics_text(summary.test_metrics.iter().map(|(name, value)| (name, *value)))));
    }
    lines.extend(summary.efficiency.map(|of| ("speed-up", of.to_string())));
    lines.extend(summary.budget_path.as_ref().map(|path| ("budget", format!("--budget {path} repeats it"))));
    lines.push(("parameters", format!("sha256 {}", summary.parameters_sha256)));
    let Summary { tasks_outlasted, sharded_steps, saturated, vanished, vanished_share, .. } = summary;
    let counted = [
        ("emulated times", tasks_outlasted, format!("{tasks_outlasted} tasks took longer than their emulated time")),
        ("in shards", sharded_steps, format!("the vectors of {sharded_steps} steps")),
        ("cut-off values", saturated, format!("{saturated} values of gradients were too large for their unit")),
        ("rounded to 0", vanished, format!("{:.2} % of the values of gradients", vanished_share * 100.0)),
    ];
    lines.extend(counted.into_iter().filter(|(_, count, _)| **count > 0).map(|(name, _, text)| (name, text)));
    for (id, count) in &summary.mismatches {
        let name = &summary.worker_names[id];
        lines.push(("mismatches", format!("{count} results of worker {id} {name} differ from those of two others")));
    }
    lines.extend(summary.stopped.clone().map(|stopped| ("stopped", stopped)));
    lines.extend(summary.error.clone().map(|error| ("failed", error)));
    lines
}
