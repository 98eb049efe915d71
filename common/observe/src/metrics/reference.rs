//! The list of all metrics, for the documentation.

use ata_record::{Listener, Prices, RunEvent, RunState, WorkerPrice};

use super::Metrics;
use crate::snapshot::Snapshot;

/// The journal of a run with a value for every metric.
const FULL_RUN: &str = r#"
{"event":"run","version":0,"run_id":"run","policy":"uta","budget":1,"iterations":1,"task_batch":1,"seed":1,"model":""}
{"event":"join","time_s":0,"worker":1,"name":"worker","device":""}
{"event":"allocation","iteration":1,"time_s":0,"workers":[1],"allocation":[1],"scores_s":[1],"rule":""}
{"event":"task","iteration":1,"task":0,"worker":1,"lease":1,"time_s":1,"busy_s":1,"overhead_s":1,"outcome":"applied"}
{"event":"step","iteration":1,"time_s":1,"loss":1,"runtime_s":1,"total_worker_time_s":1,"tasks":1,"wasted":0,"employments":1,"results":1,"learning_rate":1,"gradient_norm":1,"noise_scale":1}
{"event":"links","time_s":1,"up_s":1,"down_s":1,"own_s":1}
{"event":"evaluation","time_s":1,"iteration":1,"loss":1,"accuracy":1,"metrics":{"error":1}}
{"event":"checkpoint","time_s":1,"iteration":1,"path":"","seconds":1}
"#;

/// The description of a metric in the documentation.
#[derive(Default)]
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
        let price = WorkerPrice { price_per_hour: Some(1.0), watts: Some(1.0) };
        let mut state = RunState::new(Prices::from([("worker".into(), price)]));
        for line in FULL_RUN.trim().lines() {
            let event: RunEvent = serde_json::from_str(line).expect("they are events");
            metrics.on_event(&event);
            state.apply(&event);
        }
        parse(&metrics.encode(&Snapshot::of(&state, &[])))
    }
}

fn parse(exposed: &str) -> Vec<MetricDescription> {
    let mut all: Vec<MetricDescription> = Vec::new();
    for line in exposed.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap_or((help, ""));
            all.push(MetricDescription { name: name.into(), help: help.into(), ..MetricDescription::default() });
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
