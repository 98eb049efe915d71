//! The list of all metrics, for the documentation.

use ata_record::{JOURNAL_VERSION, Labels, Listener, Prices, RunEvent, RunState, WorkerPrice};
use ata_types::{Iteration, WorkerId};

use super::Metrics;
use crate::snapshot::Snapshot;

/// The description of a metric in the documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricDescription {
    /// The name in queries; for a histogram, without `_bucket`, `_sum` and `_count`.
    pub name: String,
    /// The kind: `counter`, `gauge`, `histogram` or `info`.
    pub kind: String,
    /// The help text.
    pub help: String,
    /// The names of the labels.
    pub labels: Vec<String>,
}

impl Metrics {
    /// Returns all metrics that a coordinator may have.
    pub fn reference() -> Vec<MetricDescription> {
        let mut metrics = Self::new("");
        let state = full_run(&mut metrics);
        parse(&metrics.encode(&Snapshot::of(&state, &[])))
    }
}

/// Returns a run in which all counted events happened.
fn full_run(metrics: &mut Metrics) -> RunState {
    let worker = WorkerId::from_slot(0);
    let price = WorkerPrice { price_per_hour: Some(1.0), watts: Some(1.0) };
    let mut state = RunState::new(Prices::from([("worker".into(), price)]));
    for event in [
        beginning(),
        RunEvent::Join { time_s: 0.0, worker, name: "worker".into(), device: String::new() },
        RunEvent::Allocation {
            iteration: Iteration(1),
            time_s: 0.0,
            workers: vec![worker],
            allocation: vec![1],
            probes: vec![],
            scores_s: vec![1.0],
            rule: String::new(),
        },
        RunEvent::Task {
            iteration: Iteration(1),
            task: 0,
            worker,
            lease: ata_types::LeaseId(1),
            time_s: 1.0,
            busy_s: Some(1.0),
            censored_s: None,
            overhead_s: Some(1.0),
            outlasted: 0,
            outcome: ata_types::TaskOutcome::Applied,
        },
        RunEvent::Step {
            iteration: Iteration(1),
            time_s: 1.0,
            loss: 1.0,
            runtime_s: 1.0,
            total_worker_time_s: 1.0,
            tasks: 1,
            wasted: 0,
            employments: 1,
            results: 1,
            learning_rate: 1.0,
            gradient_norm: Some(1.0),
            saturated: 0,
            vanished: 0,
            shards: 0,
        },
        RunEvent::Links { time_s: 1.0, up_s: 1.0, down_s: 1.0, own_s: 1.0, workers: Vec::new() },
        RunEvent::Evaluation {
            time_s: 1.0,
            iteration: Iteration(1),
            loss: 1.0,
            accuracy: Some(1.0),
            metrics: [("error".into(), 1.0)].into(),
        },
        RunEvent::Checkpoint { time_s: 1.0, iteration: Iteration(1), path: String::new(), seconds: 1.0 },
    ] {
        metrics.on_event(&event);
        state.apply(&event);
    }
    state
}

fn beginning() -> RunEvent {
    RunEvent::Run {
        version: JOURNAL_VERSION,
        run_id: "run".into(),
        policy: "uta".into(),
        budget: 1,
        iterations: 1,
        task_batch: 1,
        seed: 1,
        model: String::new(),
        labels: Labels::default(),
    }
}

fn parse(exposed: &str) -> Vec<MetricDescription> {
    let mut all: Vec<MetricDescription> = Vec::new();
    for line in exposed.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap_or((help, ""));
            all.push(MetricDescription {
                name: name.into(),
                kind: String::new(),
                help: help.into(),
                labels: Vec::new(),
            });
        } else if let (Some(kind), Some(last)) = (line.strip_prefix("# TYPE "), all.last_mut()) {
            last.kind = kind.split_once(' ').map_or("", |(_, kind)| kind).into();
            last.name += match last.kind.as_str() {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
        } else if let (Some((_, rest)), Some(last)) = (line.split_once('{'), all.last_mut()) {
            let labels = rest.split('"').step_by(2).filter_map(|part| part.strip_suffix('='));
            let labels = labels.map(|label| label.trim_start_matches(',').to_owned()).filter(|label| label != "le");
            last.labels = labels.collect();
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_queries() {
        let all = Metrics::reference();
        let of =
            |name: &str| all.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{name}: {all:?}"));
        assert_eq!(
            (of("ata_tasks_total").kind.as_str(), &of("ata_tasks_total").labels[..]),
            ("counter", &["outcome".to_owned()][..])
        );
        assert_eq!(
            (of("ata_task_duration_seconds").kind.as_str(), of("ata_task_duration_seconds").labels.len()),
            ("histogram", 0)
        );
        assert_eq!(of("ata_worker_up").labels, ["worker", "name"]);
        assert_eq!(of("ata_run_info").labels, ["run_id", "policy"]);
        for metric in &all {
            assert!(
                metric.name.starts_with("ata_") && !metric.help.is_empty() && !metric.kind.is_empty(),
                "{metric:?}"
            );
        }
        for known_only_at_times in [
            "ata_price_total",
            "ata_energy_joules_total",
            "ata_gradient_norm",
            "ata_test_accuracy",
            "ata_test_metric",
            "ata_link_own_seconds",
        ] {
            of(known_only_at_times);
        }
    }
}
