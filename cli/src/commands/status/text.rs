//! Renders parts of a snapshot as text, for a terminal.

use ata_observe::{Snapshot, SnapshotPhase, WorkerActivity, WorkerSnapshot};
use ata_types::seconds;

use crate::output::{metrics_text, time_left};

/// Returns a line such as `run R: training, iteration 12 of 200, policy P, 4.9 s`.
pub(super) fn headline(snapshot: &Snapshot) -> String {
    let Snapshot { run, totals, time_s, .. } = snapshot;
    let labels = if run.labels.is_empty() { String::new() } else { format!(" ({})", run.labels) };
    format!(
        "run {}{labels}: {}, iteration {} of {}, policy {}, {}",
        run.run_id,
        phase(snapshot),
        totals.progress,
        run.iterations,
        run.policy,
        seconds(*time_s)
    )
}

/// Returns the phase with its details, such as `finished (target loss)`.
fn phase(Snapshot { phase, detail, .. }: &Snapshot) -> String {
    match (phase, detail.as_str()) {
        // `iterations` is the rule that ends a run as planned.
        (_, "") | (SnapshotPhase::Finished, "iterations") => phase.to_string(),
        (SnapshotPhase::Finished, rule) => format!("{phase} ({})", rule.replace('_', " ")),
        (_, detail) => format!("{phase} ({detail})"),
    }
}

/// Returns the changing values in one line, such as `training, iteration 12 of 200, 3s left, loss 0.120, accuracy 87.8 %`.
pub(super) fn current(snapshot: &Snapshot) -> String {
    let Snapshot { run, totals, .. } = snapshot;
    let mut parts = vec![phase(snapshot), format!("iteration {} of {}", totals.progress, run.iterations)];
    let left = time_left(totals.progress, run.iterations, totals.runtime_s);
    parts.extend(left.filter(|_| snapshot.phase == SnapshotPhase::Training));
    parts.extend(totals.steps.last_loss.map(|loss| format!("loss {loss:.3}")));
    parts.extend(totals.test_accuracy.map(|share| format!("accuracy {:.1} %", share * 100.0)));
    parts.join(", ")
}

/// The most groups of workers of which a text says that they could be released.
const MOST_RELEASES: usize = 3;

/// Returns figures of the whole run, by name; current values come first.
pub(super) fn facts(Snapshot { run, totals, .. }: &Snapshot) -> Vec<(&'static str, String)> {
    let steps = &totals.steps;
    let each = 1.0 / totals.iterations.max(1) as f64;
    let (runtime_s, worker_time_s) = (totals.runtime_s, steps.total_worker_time_s);
    let mut facts = Vec::new();
    if let (Some(first), Some(last)) = (steps.first_loss, steps.last_loss) {
        facts.push(("training loss", format!("{last:.3}, {first:.3} in the first iteration")));
    }
    if let Some(loss) = totals.test_loss {
        let accuracy = totals.test_accuracy.map(|share| format!(", accuracy {:.1} %", share * 100.0));
        facts.push(("test", format!("loss {loss:.3}{}", accuracy.unwrap_or_default())));
    }
    if !totals.metrics.is_empty() {
        let metrics = totals.metrics.iter().map(|(name, value)| (name, value.unwrap_or(f64::NAN)));
        facts.push(("metrics", metrics_text(metrics)));
    }
    let trained = steps.tasks_applied as f64 * f64::from(run.task_batch);
    if runtime_s > 0.0 {
        let epochs = run.samples.filter(|samples| *samples > 0).map(|samples| trained / samples as f64);
        let epochs = epochs.map(|epochs| format!(", {epochs:.3} epochs")).unwrap_or_default();
        facts.push(("speed", format!("{:.1} samples/s{epochs}", trained / runtime_s)));
    }
    facts.extend([
        ("runtime", format!("{}, {} per iteration", seconds(runtime_s), seconds(steps.iteration_time_s * each))),
        ("worker time", format!("{}, {} per iteration", seconds(worker_time_s), seconds(worker_time_s * each))),
        ("wasted tasks", steps.tasks_wasted.to_string()),
    ]);
    facts.extend(steps.links.map(|links| ("links", format!("a vector takes {links}"))));
    let counted = [
        ("in shards", steps.sharded_steps, format!("the vectors of {} steps", steps.sharded_steps)),
        ("skipped tests", totals.skipped_evaluations, format!("{} evaluations", totals.skipped_evaluations)),
        ("cut-off values", steps.saturated, steps.saturated.to_string()),
        ("rounded to 0", steps.vanished, steps.vanished.to_string()),
    ];
    facts.extend(counted.into_iter().filter(|(_, count, _)| *count > 0).map(|(name, _, text)| (name, text)));
    facts.extend(totals.saved.map(|saved| ("saved", format!("iteration {saved}"))));
    facts.extend(totals.spent.price.map(|price| ("price", format!("{price:.2}"))));
    for (at, release) in totals.releases.iter().take(MOST_RELEASES).enumerate() {
        facts.push(("release", format!("{} {release}", if at == 0 { "worker" } else { "also" })));
    }
    facts.extend(totals.spent.energy_wh.map(|energy_wh| ("energy", format!("{energy_wh:.1} Wh"))));
    facts
}

/// Returns the workers of a snapshot, those that matter first: with tasks, with a probe, with trouble, then the others that are present.
pub(super) fn by_importance(snapshot: &Snapshot) -> Vec<&WorkerSnapshot> {
    let mut workers: Vec<&WorkerSnapshot> = snapshot.workers.iter().collect();
    workers.sort_by_key(|worker| match worker.state {
        WorkerActivity::Computing if worker.share.tasks > 0 => 0,
        WorkerActivity::Computing => 1,
        WorkerActivity::Resting => 2,
        WorkerActivity::Idle => 3,
        WorkerActivity::Away | WorkerActivity::Expelled => 4,
    });
    workers
}

/// Returns a title such as `Workers: 2 computing, 58 idle; iteration 12: tasks are allocated in equal shares`.
pub(super) fn workers_title(Snapshot { workers, allocation, .. }: &Snapshot) -> String {
    let count = |state: &WorkerActivity| workers.iter().filter(|worker| worker.state == *state).count();
    let counts = WorkerActivity::ALL.iter().map(|state| (count(state), state)).filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, state)| format!("{count} {state}")).collect();
    let rule = match (allocation.iteration.number(), allocation.about.as_str()) {
        (0, _) | (_, "") => String::new(),
        (iteration, about) => format!("; iteration {iteration}: {about}"),
    };
    format!("Workers: {}{rule}", counts.join(", "))
}

pub(super) const COLUMNS: [&str; 12] = [
    "worker",
    "device",
    "state",
    "tasks",
    "mean time (95 %)",
    "estimate",
    "busy",
    "overhead",
    "failed, lost",
    "cores",
    "memory",
    "network",
];

pub(super) fn cells(worker: &WorkerSnapshot) -> [String; 12] {
    let share = &worker.share;
    let time = |value: Option<f64>| value.map_or("-".into(), seconds);
    let mean = match (share.mean_s, share.low_s, share.high_s) {
        (Some(mean_s), Some(low_s), Some(high_s)) => {
            format!("{} ±{:.0} %", seconds(mean_s), 50.0 * (high_s - low_s) / mean_s)
        }
        (mean_s, ..) => time(mean_s),
    };
    [
        format!("{} {}", share.number, share.name),
        worker.device.clone(),
        worker.state.to_string(),
        format!("{}{}", share.tasks, if share.probe { " + probe" } else { "" }),
        mean,
        time(share.bound_s),
        format!("{:.0} %", worker.busy_share * 100.0),
        format!("{:.0} %", worker.overhead_share * 100.0),
        format!("{}, {}", worker.failures, worker.losses),
        worker.cpu_cores.map_or("-".into(), |cores| format!("{cores:.1}")),
        worker.memory_bytes.map_or("-".into(), |bytes| format!("{:.2} GB", bytes as f64 / 1e9)),
        worker.traffic_bytes_per_s.map_or("-".into(), |rate| format!("{:.1} MB/s", rate / 1e6)),
    ]
}
