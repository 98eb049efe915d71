//! Renders the metrics of a coordinator as a page.

use std::collections::BTreeMap;

use ata_observe::{Metrics, Snapshot};
use ata_record::{Listener, Prices, RunEvent, RunState, WorkerPrice};

const INTRODUCTION: &str = "\
A coordinator's dashboard serves them at `/metrics`, in the OpenMetrics text format. Times are in seconds. Counters and histograms \
begin at 0 with the process; those of single workers, prices and energy go on when a run is resumed. A histogram `NAME` is queried as \
`NAME_bucket`, `NAME_sum` and `NAME_count`.

| metric | type | labels | |
| --- | --- | --- | --- |
";

/// The journal of a run with a value for every metric.
const FULL_RUN: &str = r#"{"event":"run","version":0,"run_id":"run","policy":"uta","budget":1,"iterations":1,"task_batch":1,"seed":1,"model":""}
{"event":"join","time_s":0,"worker":1,"name":"worker","device":""}
{"event":"allocation","iteration":1,"time_s":0,"workers":[1],"allocation":[1],"scores_s":[1],"rule":""}
{"event":"task","iteration":1,"task":0,"worker":1,"lease":1,"time_s":1,"busy_s":1,"overhead_s":1,"outcome":"applied"}
{"event":"step","iteration":1,"time_s":1,"loss":1,"runtime_s":1,"total_worker_time_s":1,"tasks":1,"wasted":0,"employments":1,"results":1,"learning_rate":1,"gradient_norm":1,"noise_scale":1}
{"event":"links","time_s":1,"up_s":1,"down_s":1,"own_s":1}
{"event":"evaluation","time_s":1,"iteration":1,"loss":1,"accuracy":1,"metrics":{"error":1}}
{"event":"checkpoint","time_s":1,"iteration":1,"path":"","seconds":1}"#;

pub(crate) fn page() -> String {
    let mut metrics = Metrics::new("");
    let price = WorkerPrice { price_per_hour: Some(1.0), watts: Some(1.0) };
    let mut state = RunState::new(Prices::from([("worker".into(), price)]));
    for line in FULL_RUN.lines() {
        let event: RunEvent = serde_json::from_str(line).expect("they are events");
        metrics.on_event(&event);
        state.apply(&event);
    }
    let exposed = metrics.encode(&Snapshot::of(&state, &[]));
    let rows: BTreeMap<String, String> = exposed.split("# HELP ").filter_map(row).collect();
    INTRODUCTION.to_owned() + &rows.into_values().collect::<String>()
}

/// Returns the name of a metric in queries, and its row. In the text, its help comes first, then its type, then a value.
fn row(exposed: &str) -> Option<(String, String)> {
    let mut lines = exposed.lines();
    let (name, help) = lines.next()?.split_once(' ')?;
    let kind = lines.next()?.rsplit(' ').next()?;
    let suffix = match kind {
        "counter" => "_total",
        "info" => "_info",
        _ => "",
    };
    let labels = lines.next().and_then(|value| value.split_once('{')).map_or("", |(_, labels)| labels);
    let labels = labels.split('"').step_by(2).filter_map(|part| part.strip_suffix('='));
    let labels: Vec<String> = labels.map(|label| format!("`{}`", label.trim_start_matches(','))).collect();
    let row = format!("| `{name}{suffix}` | {kind} | {} | {help} |\n", labels.join(", "));
    Some((format!("{name}{suffix}"), row))
}
