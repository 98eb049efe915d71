//! Renders the result of a run as tables, for the terminal.

use ata_figures::Table;
use ata_observe::PolicyCost;
use ata_types::{WorkerId, seconds};

use super::counterfactual::{cost_text, own_replay};
use super::summary::Summary;
use crate::escape::escaped;
use crate::output::{metrics_text, render_table};

const WORKERS_SHOWN: usize = 16;

pub(crate) fn render(summary: &Summary) -> String {
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
