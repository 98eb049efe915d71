use super::*;
use std::collections::{BTreeMap, BTreeSet};

use ata_record::Labels;

use crate::tests as testing;

fn exposed() -> String {
    let mut metrics = Metrics::new("0.1.0");
    let mut state = testing::begun("uta", 4);
    let mut clamped = testing::step(1, 1.0);
    let RunEvent::Step(step) = &mut clamped else { unreachable!("it is a step") };
    (step.saturated, step.vanished, step.shards) = (7, 9, 3);
    state.labels = Labels { name: Some("first".into()), tags: BTreeMap::from([("team".into(), "a \"b\"".into())]) };
    for event in [
        testing::join(1),
        testing::task(1, 1, Some(0.25), TaskOutcome::Applied),
        testing::task(1, 1, None, TaskOutcome::Lost),
        RunEvent::Refusal {
            time_s: 1.0,
            worker: testing::worker(1),
            kind: RefusalKind::NotFinite,
            reason: "\"NaN\"\n".into(),
            count: 3,
        },
        RunEvent::Rest { time_s: 1.0, worker: testing::worker(1), rest_s: 1.0, strikes: 1 },
        RunEvent::Checkpoint { time_s: 1.0, iteration: ata_types::Iteration(1), path: "x".into(), seconds: 0.5 },
        clamped,
        RunEvent::Links { time_s: 1.0, up_s: 0.25, down_s: 0.0, own_s: 0.5, workers: Vec::new() },
    ] {
        metrics.on_event(&event);
        state.apply(&event);
    }
    metrics.encode(&Snapshot::of(&state, &[]))
}

/// Prometheus requires each family to appear once, with its type.
#[test]
fn events_are_counted() {
    let text = exposed();
    let families: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert_eq!((BTreeSet::from_iter(&families).len(), text.matches("# EOF").count()), (families.len(), 1));
    for line in [
        "ata_iterations_total 1",
        "ata_tasks_total{outcome=\"applied\"} 1",
        "ata_tasks_total{outcome=\"lost\"} 1",
        "ata_refusals_total{kind=\"not finite\"} 3",
        "ata_faults_total{kind=\"rest\"} 1",
        "ata_saturated_values_total 7",
        "ata_vanished_values_total 9",
        "ata_sharded_steps_total 1",
        "ata_link_up_seconds 0.25",
        "ata_task_duration_seconds_count 1",
        "ata_checkpoint_duration_seconds_sum 0.5",
        "ata_workers{state=\"resting\"} 1.0",
        "ata_worker_tasks_total{worker=\"1\",name=\"worker-1\"} 1",
        r#"ata_run_info{run_id="test-run",policy="uta",name="first",tag_team="a \"b\""} 1"#,
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }
}

#[test]
fn names_are_those_of_the_samples() {
    let openmetrics = "# HELP a Of a.\n# TYPE a counter\na_total 1\n# HELP b Of b.\n# TYPE b info\nb_info{v=\"1\"} 1\n\
                       # HELP c Of c.\n# TYPE c gauge\nc 2\n# EOF\n";
    let expected = "# HELP a_total Of a.\n# TYPE a_total counter\na_total 1\n# HELP b_info Of b.\n# TYPE b_info gauge\n\
                    b_info{v=\"1\"} 1\n# HELP c Of c.\n# TYPE c gauge\nc 2\n";
    assert_eq!(classic(openmetrics), expected);
}
