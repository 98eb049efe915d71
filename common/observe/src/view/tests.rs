use ata_record::RunEvent;
use ata_types::{Iteration, TaskOutcome};
use serde_json::{Value, json};

use super::*;
use crate::testing::{begun, join, step, task, worker};

fn told(view: &View, cursor: &mut Cursor) -> Value {
    serde_json::to_value(view.message(0, cursor, &[])).unwrap()
}

fn allocation(iteration: u64, shares: &[u64]) -> RunEvent {
    RunEvent::Allocation {
        iteration: Iteration(iteration),
        time_s: iteration as f64,
        workers: (0..shares.len()).map(WorkerId::from_slot).collect(),
        allocation: shares.into(),
        probes: vec![],
        scores_s: vec![0.5; shares.len()],
        rule: "for a test".into(),
    }
}

#[test]
fn later_messages_hold_what_changed() {
    let mut view = begun("uta", 4);
    let mut cursor = Cursor::default();
    view.apply(&join(1));
    view.apply(&join(2));
    let first = told(&view, &mut cursor);
    assert_eq!((first["workers"].as_array().unwrap().len(), &first["phase"]), (2, &json!("waiting")));
    assert_eq!((&first["run"]["model"], &first["log"]["from"]), (&json!("cnn"), &json!(0)));
    for event in
        [allocation(1, &[3, 1]), task(1, 1, Some(0.5), TaskOutcome::Applied), step(1, 2.0), allocation(2, &[3, 1])]
    {
        view.apply(&event);
    }
    let second = told(&view, &mut cursor);
    assert_eq!(second["steps"]["points"], json!([[1.0, 1.0, 2.0, 4.0, 1.0, 0.001, 0.0]]));
    assert_eq!(second["heat"]["columns"], json!([{"first": 1, "count": 1, "tasks": {"1": 1}}]));
    assert_eq!(second["log"], json!({"from": 3, "lines": []}));
    let numbers: Vec<&Value> = second["workers"].as_array().unwrap().iter().map(|row| &row["number"]).collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(second["workers"][0]["state"], "computing");
    view.apply(&step(2, 3.0));
    let third = told(&view, &mut cursor);
    assert_eq!((&third["steps"]["from"], third["steps"]["points"].as_array().unwrap().len()), (&json!(1), 1));
}

#[test]
fn an_evaluation_without_accuracy_has_null() {
    let mut view = begun("uta", 4);
    view.apply(&RunEvent::Evaluation { time_s: 1.0, iteration: Iteration(1), loss: 2.0, accuracy: None });
    assert_eq!(told(&view, &mut Cursor::default())["evaluations"]["points"], json!([[1.0, 0.0, 0.0, 2.0, null]]));
}

/// Present from 0 to 4 s and busy for 1 s of them, 0.5 s of overhead: a quarter, an eighth, and the rest.
#[test]
fn shares_are_of_the_time_present() {
    let mut view = begun("uta", 4);
    view.apply(&join(1));
    let mut computed = task(1, 1, Some(1.0), TaskOutcome::Applied);
    if let RunEvent::Task { overhead_s, .. } = &mut computed {
        *overhead_s = Some(0.5);
    }
    view.apply(&computed);
    view.apply(&RunEvent::Loss { time_s: 4.0, worker: WorkerId::from_slot(0), why: "it left".into() });
    view.apply(&step(1, 8.0));
    let row = &told(&view, &mut Cursor::default())["workers"][0];
    let share = |name: &str| row[name].as_f64().unwrap();
    assert_eq!((share("busy_share"), share("overhead_share"), share("idle_share")), (0.25, 0.125, 0.625));
    assert_eq!((&row["state"], &row["losses"]), (&json!("away"), &json!(1)));
}

/// Two hours at 3 per hour, and one hour under 100 W; then another worker has the number.
#[test]
fn money_and_energy_add_up() {
    let price = WorkerPrice { price_per_hour: Some(3.0), watts: Some(100.0) };
    let mut view = View::new(Prices::from([("worker-1".into(), price)]));
    view.apply(&join(1));
    view.apply(&task(1, 1, Some(3600.0), TaskOutcome::Applied));
    view.apply(&RunEvent::Loss { time_s: 7200.0, worker: worker(1), why: "it left".into() });
    for expected in [(Some(6.0), Some(100.0)); 2] {
        let spent = view.spent_in_all();
        assert_eq!((spent.price, spent.energy_wh), expected);
        let (time_s, name, device) = (7300.0, "other".to_owned(), "cpu".to_owned());
        view.apply(&RunEvent::Join { time_s, worker: worker(1), name, device });
    }
    assert_eq!(View::new(Prices::new()).spent_in_all().price, None);
}

#[test]
fn the_log_is_bounded() {
    let mut view = begun("uta", 4);
    let mut cursor = Cursor::default();
    for at in 0..500_u32 {
        view.apply(&RunEvent::Rest { time_s: f64::from(at), worker: worker(1), rest_s: 1.0, strikes: 1 });
    }
    let log = &told(&view, &mut cursor)["log"];
    assert_eq!((&log["from"], log["lines"].as_array().unwrap().len()), (&json!(301), 200));
    assert_eq!(told(&view, &mut cursor)["log"]["lines"], json!([]));
}
