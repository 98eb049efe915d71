use ata_record::RunEvent;
use ata_types::TaskOutcome;
use serde_json::{Value, json};

use super::*;
use crate::tests::{self as testing, begun, join, step, task};

fn changes(run: &RunState, cursor: &mut Cursor) -> Value {
    serde_json::to_value(Snapshot::since(cursor, run, &[])).unwrap()
}

fn allocation(iteration: u64, shares: &[u64]) -> RunEvent {
    testing::allocation(iteration, shares, &vec![0.5; shares.len()], "for a test")
}

#[test]
fn later_snapshots_hold_the_changes() {
    let mut run = begun("uta", 4);
    let mut cursor = Cursor::default();
    run.apply(&join(1));
    run.apply(&join(2));
    let first = changes(&run, &mut cursor);
    assert_eq!((first["workers"].as_array().unwrap().len(), &first["phase"]), (2, &json!("waiting")));
    assert_eq!((&first["run"]["model"], &first["log"]["from"]), (&json!("cnn"), &json!(0)));
    for event in
        [allocation(1, &[3, 1]), task(1, 1, Some(0.5), TaskOutcome::Applied), step(1, 2.0), allocation(2, &[3, 1])]
    {
        run.apply(&event);
    }
    let second = changes(&run, &mut cursor);
    assert_eq!(second["steps"]["points"], json!([[1.0, 1.0, 2.0, 4.0, 1.0, 0.001, 0.0]]));
    assert_eq!(second["heat"]["columns"], json!([{"first": 1, "count": 1, "tasks": {"1": 1}}]));
    assert_eq!(second["log"], json!({"from": 3, "lines": []}));
    let numbers: Vec<&Value> = second["workers"].as_array().unwrap().iter().map(|row| &row["number"]).collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(second["workers"][0]["state"], "computing");
    run.apply(&step(2, 3.0));
    let third = changes(&run, &mut cursor);
    assert_eq!((&third["steps"]["from"], third["steps"]["points"].as_array().unwrap().len()), (&json!(1), 1));
}

/// A worker that is present from 0 to 4 s, with 1 s of tasks and 0.5 s of overhead, has shares of a quarter, an eighth, and the rest.
#[test]
fn shares_are_of_the_time_present() {
    let mut run = begun("uta", 4);
    run.apply(&join(1));
    let mut computed = task(1, 1, Some(1.0), TaskOutcome::Applied);
    if let RunEvent::Task { overhead_s, .. } = &mut computed {
        *overhead_s = Some(0.5);
    }
    run.apply(&computed);
    run.apply(&RunEvent::Loss { time_s: 4.0, worker: WorkerId::from_slot(0), why: "it left".into() });
    run.apply(&step(1, 8.0));
    let row = &changes(&run, &mut Cursor::default())["workers"][0];
    let share = |name: &str| row[name].as_f64().unwrap();
    assert_eq!((share("busy_share"), share("overhead_share"), share("idle_share")), (0.25, 0.125, 0.625));
    assert_eq!((&row["state"], &row["losses"]), (&json!("away"), &json!(1)));
}

/// NaN is written as null, and points and lines as arrays.
#[test]
fn snapshots_are_read_back() {
    let mut run = begun("uta", 4);
    for event in [join(1), allocation(1, &[3, 1]), task(1, 1, Some(0.5), TaskOutcome::Applied), step(1, 2.0)] {
        run.apply(&event);
    }
    let snapshot = Snapshot::of(&run, &[]);
    let text = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
    let (time_s, iteration, metrics) = (1.0, Iteration(1), BTreeMap::new());
    run.apply(&RunEvent::Evaluation { time_s, iteration, loss: 2.0, accuracy: None, metrics, skipped: 0 });
    let mut json = changes(&run, &mut Cursor::default());
    assert_eq!(json["evaluations"]["points"], json!([[1.0, 1.0, 2.0, 2.0, null]]));
    let read: Snapshot = serde_json::from_value(json.take()).unwrap();
    assert!(read.evaluations.points[0].accuracy.is_nan());
}
