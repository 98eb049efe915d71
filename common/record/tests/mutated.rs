//! Tests that any journal is either refused, or has events that add up to a state.

use std::path::Path;

use ata_mutator::{Mutator, feed, write_file};
use ata_record::{
    EndState, JOURNAL_FILE, JOURNAL_VERSION, JournalError, Labels, RefusalKind, RunEvent, RunState, read_journal,
    resume_journal, steps_after,
};
use ata_types::{Iteration, LeaseId, TaskOutcome, WorkerId};

/// The number of journals that are tried.
const COUNT: u64 = 40_000;

/// One in this many journals is also resumed, which waits for the disk.
const PER_RESUMED: u64 = 200;

const RUN_ID: &str = "r";

fn worker(number: usize) -> WorkerId {
    WorkerId::from_slot(number - 1)
}

fn task(iteration: u64, task: u64, number: usize) -> RunEvent {
    RunEvent::Task {
        iteration: Iteration(iteration),
        task,
        worker: worker(number),
        busy_s: Some(0.25),
        censored_s: None,
        outcome: TaskOutcome::Applied,
        lease: LeaseId(7),
        time_s: 0.5,
        overhead_s: Some(0.1),
        outlasted: 0,
    }
}

/// Returns the journal of a short run with every kind of event that has something to check.
#[expect(clippy::too_many_lines, reason = "it is a list")]
fn journal() -> Vec<u8> {
    let policy = "uta".to_owned();
    let allocation = |iteration, time_s| RunEvent::Allocation {
        iteration: Iteration(iteration),
        time_s,
        workers: vec![worker(1), worker(2)],
        allocation: vec![2, 1],
        probes: vec![worker(2)],
        scores_s: vec![0.5, 1.0],
        rule: "uniform".into(),
    };
    let step = |iteration, time_s| RunEvent::Step {
        iteration: Iteration(iteration),
        time_s,
        loss: 4.5,
        runtime_s: 0.5,
        total_worker_time_s: 1.5,
        tasks: 3,
        wasted: 1,
        employments: 2,
        results: 3,
        learning_rate: 0.5,
        gradient_norm: None,
        saturated: 1,
        vanished: 2,
        shards: 2,
    };
    let join =
        |number| RunEvent::Join { time_s: 0.1, worker: worker(number), name: "a-1".into(), device: "CPU".into() };
    let events = [
        RunEvent::Run {
            version: JOURNAL_VERSION,
            run_id: RUN_ID.into(),
            policy: policy.clone(),
            budget: 3,
            iterations: 9,
            task_batch: 2,
            seed: 5,
            model: "cnn".into(),
            labels: Labels::default(),
        },
        RunEvent::Wait { time_s: 0.0, present: 0, needed: 2 },
        join(1),
        join(2),
        allocation(1, 0.2),
        task(1, 0, 1),
        task(1, 1, 1),
        task(1, 2, 2),
        RunEvent::Refusal {
            time_s: 0.5,
            worker: worker(2),
            kind: RefusalKind::NotFinite,
            reason: "value 3 is NaN".into(),
            count: 2,
        },
        RunEvent::Rest { time_s: 0.5, worker: worker(2), rest_s: 1.0, strikes: 1 },
        step(1, 0.7),
        RunEvent::Links { time_s: 0.7, up_s: 0.1, down_s: 0.05, own_s: 0.1, workers: Vec::new() },
        RunEvent::Evaluation {
            time_s: 0.8,
            iteration: Iteration(1),
            loss: 4.0,
            accuracy: Some(0.1),
            metrics: [("top 5".into(), 0.5)].into(),
        },
        RunEvent::Checkpoint { time_s: 0.9, iteration: Iteration(1), path: "step-000001".into(), seconds: 0.01 },
        RunEvent::Loss { time_s: 1.0, worker: worker(2), why: "it left".into() },
        RunEvent::Resume {
            time_s: 1.0,
            version: JOURNAL_VERSION,
            epoch: 1,
            iteration: Iteration(1),
            policy,
            iterations: 9,
        },
        allocation(2, 1.1),
        step(2, 1.7),
        RunEvent::End { time_s: 2.0, state: EndState::Finished, reason: "iterations".into() },
    ];
    let line = |event: &RunEvent| serde_json::to_string(event).unwrap() + "\n";
    events.iter().map(line).collect::<String>().into_bytes()
}

/// Returns whether the journal in a folder can be read. In either case, a run can be resumed from it, after which it can be read.
fn reads(folder: &Path, is_resumed: bool) -> bool {
    let (mut state, mut steps) = (RunState::default(), 0);
    let mut on_event = |event: RunEvent| {
        steps += u64::from(matches!(event, RunEvent::Step { iteration, .. } if iteration > Iteration(1)));
        state.apply(&event);
    };
    let is_read = read_journal(folder, &mut on_event).is_ok();
    assert!(!is_read || steps_after(folder, Iteration(1)).unwrap() == steps);
    if is_resumed {
        match resume_journal(folder, RUN_ID, Iteration(1), RunState::default()) {
            Ok(_) => assert_eq!(read_journal(folder, |event| state.apply(&event)).unwrap(), None),
            Err(error) => assert!(matches!(error, JournalError::OtherRun { .. }), "{error}"),
        }
    }
    is_read
}

#[test]
fn mutated_journals_are_refused_or_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(JOURNAL_FILE);
    let tokens = ["null", "-1", "1e308", "18446744073709551615", "[", "{\"a\":", "\"", "\n", "NaN", "\\ud800"];
    let mutator = Mutator::new(1, vec![journal()]).with_tokens(&tokens);
    let mut count = 0;
    let fed = feed(mutator, COUNT, |bytes| {
        write_file(&path, bytes);
        count += 1;
        reads(folder.path(), count % PER_RESUMED == 0)
    });
    println!("{fed:?}");
}
