use std::io::Read;

use ata_types::WorkerId;
use serde_json::json;

use super::*;
use crate::event::tests::{run, step};
use crate::journal::{Gap, line, read_journal};
use crate::state::Prices;

fn after(steps: u64) -> RunState {
    let mut state = RunState::default();
    state.apply(&run("run"));
    (1..=steps).for_each(|at| state.apply(&step(at)));
    state
}

fn resume(folder: &Path, steps: u64) {
    resume_journal(folder, &run("run"), Iteration(steps), &after(steps)).unwrap();
}

fn folder(lines: &[&[u8]]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(JOURNAL_FILE), lines.concat()).unwrap();
    folder
}

/// Returns the lines of a run of four steps, with another event after the second one.
fn four_steps() -> Vec<u8> {
    let late = RunEvent::Loss { time_s: 2.5, worker: WorkerId::from_slot(0), why: "it left".into() };
    [run("run"), step(1), step(2), late, step(3), step(4)].iter().flat_map(line).collect()
}

/// Returns the content of a file; empty if it is missing.
fn content(folder: &tempfile::TempDir, file: &str) -> Vec<u8> {
    std::fs::read(folder.path().join(file)).unwrap_or_default()
}

fn events(folder: &tempfile::TempDir) -> (Vec<RunEvent>, Option<Gap>) {
    let mut events = Vec::new();
    let gap = read_journal(folder.path(), |event| events.push(event)).unwrap();
    (events, gap)
}

fn added_up(folder: &tempfile::TempDir) -> RunState {
    let mut state = RunState::default();
    read_journal(folder.path(), |event| state.apply(&event)).unwrap();
    state
}

/// Returns the parts of a state that a test compares: everything that is saved, except the log.
fn figures(state: &RunState) -> serde_json::Value {
    let mut saved = state.saved();
    saved.as_object_mut().unwrap().remove("log");
    saved
}

#[test]
fn later_events_are_moved_aside() {
    let folder = folder(&[&four_steps(), b"{\"event\":\"st"]);
    // The process was killed while it replaced the journal's older part.
    let replacement = replacement(&folder.path().join(JOURNAL_FILE));
    std::fs::write(&replacement, line(&run("run"))).unwrap();
    assert_eq!(steps_after(folder.path(), Iteration(2)).unwrap(), 2);
    for _ in 0..2 {
        resume(folder.path(), 2);
        assert!(!replacement.exists());
        assert_eq!(events(&folder), (vec![run("run"), step(1), step(2)], None));
        let lines = |file| String::from_utf8(content(&folder, file)).unwrap().lines().count();
        assert_eq!((lines(METRICS_FILE), lines(DISCARDED_FILE)), (3, 4), "{:?}", content(&folder, DISCARDED_FILE));
        assert_eq!(steps_after(folder.path(), Iteration(2)).unwrap(), 0, "nothing is left to truncate");
    }
}

/// Whatever a crash took from the journal, the state after the checkpoint takes its place: its end, the step itself, or all of it. The first
/// line is kept.
#[test]
fn a_journal_without_the_step_continues_with_its_state() {
    let step_lost = [&line(&run("run"))[..], &line(&step(1)), b"nonsense\n", &line(&step(3)), &line(&step(4))].concat();
    let all_lost = [&[0; 3000][..], b"\nnonsense\n"].concat();
    for (text, iteration, is_run_kept) in [
        (four_steps(), 9, true),
        (step_lost, 2, true),
        (all_lost, 2, false),
        (vec![0; 3000], 2, true),
        (Vec::new(), 2, true),
        (line(&run("run")), 2, true),
    ] {
        let folder = folder(&[&text]);
        for _ in 0..2 {
            resume(folder.path(), iteration);
            let state = added_up(&folder);
            assert!(figures(&state) == figures(&after(iteration)));
            let (events, _) = events(&folder);
            let folded = events.iter().filter(|event| matches!(event, RunEvent::Folded { .. })).count();
            assert_eq!((folded, events[0] == run("run")), (1, is_run_kept));
            assert_eq!(steps_after(folder.path(), Iteration(iteration)).unwrap(), 0);
        }
    }
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(steps_after(empty.path(), Iteration(0)).unwrap(), 0);
    resume(empty.path(), 9);
    assert_eq!(added_up(&empty).iterations, 9);
}

/// After a power loss, parts of the journal hold zeros or garbage. Readers leave them out, and say so.
#[test]
fn unreadable_lines_are_left_out() {
    for (damage, lines) in [
        (&b"nonsense\n"[..], 1),
        (&[b"\n\n", &[0; 3000][..], b"\n"].concat(), 1),
        (&[&vec![0; 65 << 20][..], b"\n{}\n"].concat(), 3),
    ] {
        let folder = folder(&[&line(&run("run")), &line(&step(1)), damage, &line(&step(2)), &line(&step(3))]);
        assert_eq!(steps_after(folder.path(), Iteration(0)).unwrap(), 3);
        resume(folder.path(), 2);
        let (events, gap) = events(&folder);
        assert_eq!((&events[1..], gap.unwrap().lines), (&[step(1), step(2)][..], lines));
        assert!(!gap.unwrap().is_torn);
    }
}

/// A journal of another run or release is left alone.
#[test]
fn foreign_journals_are_refused_untouched() {
    let newer = br#"{"event":"run","version":99,"written_by":"7.1","what":1}"#;
    for (first, message) in [
        (&line(&run("another"))[..], "is the journal of run another"),
        (&[&newer[..], b"\n"].concat(), "line 1: ata 7.1 wrote this journal, in version 99; this is ata "),
    ] {
        let folder = folder(&[first, &four_steps()]);
        let text = content(&folder, JOURNAL_FILE);
        let resumed = resume_journal(folder.path(), &run("run"), Iteration(2), &after(2));
        let error = resumed.unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert_eq!(content(&folder, JOURNAL_FILE), text);
    }
}

#[test]
fn a_run_that_begins_again_keeps_its_events_aside() {
    let folder = folder(&[&four_steps(), b"{\"event\":\"st"]);
    discard_journal(folder.path()).unwrap();
    discard_journal(folder.path()).unwrap();
    assert!(!folder.path().join(JOURNAL_FILE).exists());
    assert_eq!(content(&folder, DISCARDED_FILE), [&four_steps()[..], b"{\"event\":\"st"].concat());
}

/// The step is found at each place of a long file, in the journal and in the metrics.
#[test]
fn a_step_is_found_in_a_long_file() {
    let steps = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, mut table) = (line(&run("run")), metrics::HEADER.to_owned());
    let mut ends = vec![(journal.len() as u64, table.len() as u64)];
    for at in 1..=steps {
        // Iterations are of unequal length.
        let late = RunEvent::Loss { time_s: 2.5, worker: WorkerId::from_slot(0), why: "x".repeat(at as usize % 300) };
        journal.extend([line(&late), line(&step(at))].concat());
        table += &metrics::line(&step(at)).unwrap();
        ends.push((journal.len() as u64, table.len() as u64));
    }
    let paths = [JOURNAL_FILE, METRICS_FILE].map(|file| folder.path().join(file));
    std::fs::write(&paths[0], &journal).unwrap();
    std::fs::write(&paths[1], &table).unwrap();
    for at in (1..=steps).step_by(271).chain([1, 2, steps - 1, steps]) {
        let found = StepPlace::find(&paths[0], Iteration(at), in_journal).unwrap();
        assert_eq!((found.end, found.last), (ends[at as usize].0, Iteration(at)));
        let found = StepPlace::find(&paths[1], Iteration(at), in_metrics).unwrap();
        assert_eq!((found.end, found.last), (ends[at as usize].1, Iteration(at)));
    }
    let beyond = StepPlace::find(&paths[0], Iteration(steps + 9), in_journal).unwrap();
    assert_eq!((beyond.end, beyond.last), (journal.len() as u64, Iteration(steps)));
}

/// Numbers of a state are checked, and prices are those of this process.
#[test]
fn a_state_is_restored_as_it_was_saved() {
    let mut state = after(3);
    let loss = |loss: f64| {
        let fields =
            json!({"event": "evaluation", "time_s": 4.0, "iteration": 3, "loss": loss, "metrics": {"error": null}});
        serde_json::from_value(fields).unwrap()
    };
    state.apply(&loss(f64::NAN));
    state.apply(&loss(1.5));
    let text = state.saved().to_string();
    let restored = RunState::restored(serde_json::from_str(&text).unwrap()).unwrap();
    assert_eq!(restored.saved().to_string(), text);
    assert!(restored.metrics["error"].is_nan());
    let price = Prices::from([("a".into(), crate::WorkerPrice { price_per_hour: Some(3.0), watts: None })]);
    let mut priced = restored.priced_as(&RunState::new(price));
    let join = json!({"event": "join", "time_s": 4.0, "worker": 1, "name": "a", "device": "cpu", "machine": ""});
    priced.apply(&serde_json::from_value(join).unwrap());
    priced.apply(&step(3604));
    assert_eq!(priced.spent().price, Some(3.0));
    for (from, to) in [
        ("\"iterations\":3", "\"iterations\":18446744073709551615"),
        ("\"stride\":1", "\"stride\":3"),
        ("\"now_s\":4.0", "\"now_s\":-1.0"),
        ("\"budget\":", "\"budget\":99999999"),
        ("\"seed\"", "\"sea\""),
        ("{\"", "{\"unknown\":1,\""),
    ] {
        assert!(text.contains(from), "{from}: {text}");
        let changed = serde_json::from_str(&text.replace(from, to)).unwrap();
        assert!(RunState::restored(changed).is_err(), "{to}");
    }
}

/// The journal of a long run stays small, and still adds up to the same state. A run can be resumed from a checkpoint of the past.
#[test]
fn an_old_part_of_the_journal_is_folded() {
    let folder = tempfile::tempdir().unwrap();
    let long = "x".repeat(1 << 20);
    let (worker, kind) = (WorkerId::from_slot(0), crate::RefusalKind::Stale);
    let event = |at: u64| RunEvent::Refusal { time_s: at as f64, worker, kind, reason: long.clone(), count: 1 };
    let steps = 300;
    let write = |is_full: bool, folder: &Path| {
        let history = crate::PastEvents { is_full, ..crate::PastEvents::default() };
        let writer = crate::Writer::open(folder, history, crate::Listeners::default(), |error| panic!("{error}"));
        let writer = writer.unwrap();
        let mut state = RunState::default();
        let mut queue = |event: RunEvent| {
            state.apply(&event);
            writer.write(vec![event]);
        };
        queue(run("run"));
        for at in 1..=steps {
            queue(event(at));
            queue(step(at));
        }
        let saved = writer.state().recv().unwrap();
        writer.finish().unwrap();
        (saved, state)
    };
    let (saved, state) = write(false, folder.path());
    assert!(figures(&saved) == figures(&state), "it is what a checkpoint holds");
    assert!(figures(&added_up(&folder)) == figures(&state));
    let journal = folder.path().join(JOURNAL_FILE);
    let bytes = journal.metadata().unwrap().len();
    assert!((FOLD_BYTES..2 * FOLD_BYTES + (2 << 20)).contains(&bytes), "{bytes}");
    let mut begin = [0; 20];
    File::open(&journal).unwrap().read_exact(&mut begin).unwrap();
    assert_eq!(&begin, br#"{"event":"run","vers"#);
    assert!(!replacement(&journal).exists());
    for at in [steps - 3, 5] {
        resume(folder.path(), at);
        assert_eq!(added_up(&folder).iterations, at);
        assert_eq!(events(&folder).0[0], run("run"));
    }
    let full = tempfile::tempdir().unwrap();
    write(true, full.path());
    assert!(full.path().join(JOURNAL_FILE).metadata().unwrap().len() > steps << 20);
}
