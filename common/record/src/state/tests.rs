use serde_json::{Value, json};

use super::*;

fn event(fields: Value) -> RunEvent {
    serde_json::from_value(fields).unwrap()
}

fn join(time_s: f64, name: &str, machine: &str) -> RunEvent {
    event(json!({"event": "join", "time_s": time_s, "worker": 1, "name": name, "device": "cpu", "machine": machine}))
}

fn loss(time_s: f64) -> RunEvent {
    event(json!({"event": "loss", "time_s": time_s, "worker": 1, "why": "it left"}))
}

fn task(worker: usize, busy_s: Option<f64>, outcome: TaskOutcome) -> RunEvent {
    event(json!({"event": "task", "iteration": 1, "task": 0, "worker": worker, "lease": 1, "time_s": 1.0,
                 "busy_s": busy_s, "overhead_s": 0.5, "outlasted": 1, "outcome": outcome}))
}

fn step(iteration: u64, time_s: f64, loss: f64) -> RunEvent {
    event(json!({"event": "step", "iteration": iteration, "time_s": time_s, "loss": loss, "runtime_s": 2.0,
                 "total_worker_time_s": 3.0, "tasks": 1, "wasted": 1, "employments": 2, "results": 3,
                 "learning_rate": 0.1, "saturated": 5, "vanished": 7, "shards": 4}))
}

/// Iterations of 8 tasks, of which 20 were applied in three.
#[test]
fn a_run_is_as_far_as_its_tasks_if_their_number_is_chosen() {
    let totals = StepTotals { tasks_applied: 20, ..StepTotals::default() };
    let chosen = RunState { budget: 8, most_tasks: Some(99), iterations: 3, totals, ..RunState::default() };
    assert_eq!(RunState { most_tasks: None, ..chosen.clone() }.progress(), 3);
    assert_eq!(chosen.progress(), 2);
    let saved: Value = chosen.saved();
    assert_eq!(RunState::restored(saved).unwrap().most_tasks, Some(99));
}

#[test]
fn costs_add_up_over_committed_iterations() {
    let mut state = RunState::default();
    let allocation = event(json!({"event": "allocation", "iteration": 1, "time_s": 1.0, "workers": [1, 3],
                                  "allocation": [1, 1], "scores_s": [], "rule": "uniform"}));
    for event in [
        allocation,
        task(1, Some(2.0), TaskOutcome::Applied),
        task(3, None, TaskOutcome::Cancelled),
        task(3, Some(9.0), TaskOutcome::Ignored),
        step(1, 3.5, 4.0),
        task(3, Some(7.0), TaskOutcome::Applied),
        step(2, 6.0, 3.0),
        RunEvent::Links { time_s: 6.0, up_s: 9.0, down_s: 9.0, own_s: 9.0, workers: Vec::new() },
        RunEvent::Links { time_s: 6.5, up_s: 0.2, down_s: 0.05, own_s: 0.3, workers: Vec::new() },
        task(1, Some(5.0), TaskOutcome::Applied),
    ] {
        state.apply(&event);
    }
    let totals = state.totals;
    assert_eq!((state.iterations, totals.iteration_time_s, totals.total_worker_time_s), (2, 4.0, 6.0));
    assert_eq!((totals.tasks_applied, totals.tasks_wasted, totals.employments, totals.results), (2, 2, 4, 6));
    assert_eq!((totals.saturated, totals.vanished, totals.sharded_steps), (10, 14, 2));
    let links = totals.links.expect("they were measured").to_string();
    assert_eq!(links, "200 ms up and 50.0 ms down on the coordinator's link, 300 ms on a worker's own link");
    assert_eq!(state.tasks_outlasted, 4, "of all that were computed");
    assert_eq!((totals.first_loss, totals.last_loss, state.runtime_s()), (Some(4.0), Some(3.0), 5.0));
    let worker = |number: usize| &state.workers[&WorkerId::from_slot(number - 1)];
    assert_eq!((worker(1).tasks_applied, worker(1).busy_s), (1, 2.0), "the third iteration is not committed");
    assert_eq!((worker(3).tasks_applied, worker(3).overhead_s), (1, 0.5));
    assert_eq!((&worker(1).times_s, &worker(3).times_s), (&[2.0, 5.0].into(), &[9.0, 7.0].into()));
}

#[test]
fn a_number_belongs_to_its_last_worker() {
    let mut state = RunState::default();
    let mut apply = |event: RunEvent| {
        state.apply(&event);
        let worker = &state.workers[&WorkerId::from_slot(0)];
        (state.present(), worker.name.clone(), worker.times_s.len())
    };
    apply(join(0.0, "a", ""));
    apply(task(1, Some(1.0), TaskOutcome::Ignored));
    assert_eq!(apply(loss(1.0)), (0, "a".into(), 1));
    assert_eq!(apply(join(2.0, "a", "")), (1, "a".into(), 1), "the same one is back");
    assert_eq!(apply(join(3.0, "b", "")), (1, "b".into(), 0));
}

/// A worker is present for two hours at a price of 3 per hour, and computes for one hour at 100 W; then another worker gets its number.
#[test]
fn money_and_energy_add_up() {
    let price = WorkerPrice { price_per_hour: Some(3.0), watts: Some(100.0) };
    let mut state = RunState::new(Prices::from([("a".into(), price)]));
    for event in [join(0.0, "a", ""), task(1, Some(3600.0), TaskOutcome::Applied), loss(7200.0)] {
        state.apply(&event);
    }
    for expected in [(Some(6.0), Some(100.0)); 2] {
        let spent = state.spent();
        assert_eq!((spent.price, spent.energy_wh), expected);
        state.apply(&join(7300.0, "other", ""));
    }
    assert_eq!(RunState::default().spent().price, None);
}

#[test]
fn the_log_is_bounded() {
    let mut state = RunState::default();
    (0..500).for_each(|_| state.apply(&loss(1.0)));
    let mut read = 0;
    let (from, lines) = state.log.since(&mut read);
    assert_eq!((from, lines.len(), state.log.since(&mut read).1.len()), (300, 200, 0));
}

/// Joins say who is present. A wait is notable when the run begins, and after a loss.
#[test]
fn the_log_does_not_count_workers_that_join() {
    let mut state = RunState::default();
    let wait = |present| event(json!({"event": "wait", "time_s": 0.0, "present": present, "needed": 2}));
    for event in [wait(0), join(0.0, "a", ""), wait(1), join(0.0, "b", ""), wait(2), loss(1.0), wait(1)] {
        state.apply(&event);
    }
    let kinds: Vec<_> = state.log.since(&mut 0).1.into_iter().map(|line| line.kind).collect();
    assert_eq!(kinds, [LogKind::Info, LogKind::Join, LogKind::Join, LogKind::Loss, LogKind::Info]);
}

/// What a worker is excluded from stays on the list until the operator forgives its name, whatever becomes of its number.
#[test]
fn exclusions_last_until_they_are_forgiven() {
    let mut state = RunState::default();
    let kind = RefusalKind::WrongMeasurement;
    for event in [
        join(0.0, "rig", "10.0.0.1"),
        event(json!({"event": "refusal", "time_s": 1.0, "worker": 1, "kind": kind, "reason": "", "count": 1})),
        event(json!({"event": "rest", "time_s": 1.0, "worker": 1, "rest_s": 9.0, "strikes": 7})),
        event(json!({"event": "expulsion", "time_s": 2.0, "worker": 1, "why": "it failed"})),
        join(0.0, "rag", "10.0.0.2"),
    ] {
        state.apply(&event);
    }
    let mut forgive = |name: &str| {
        state.apply(&RunEvent::Forgive { time_s: 3.0, name: name.into() });
        let all = state.exclusions.iter();
        all.map(|of| format!("{} on {} from {}", of.name, of.machine, of.from)).collect::<Vec<_>>()
    };
    assert_eq!(forgive("rag"), ["rig on 10.0.0.1 from evaluations", "rig on 10.0.0.1 from run"], "another name");
    assert!(forgive("rig").is_empty());
}
