//! Tests of reading and writing the journal.

use super::*;

const ITERATION: &str = r#"{"event":"allocation","iteration":1,"time_s":0.1,"workers":[1,3],"allocation":[1,1],"scores_s":[],"rule":"uniform"}
{"event":"task","iteration":1,"task":0,"worker":3,"lease":1,"time_s":0.6,"busy_s":0.5,"outcome":"applied"}
{"event":"task","iteration":1,"task":1,"worker":1,"lease":2,"time_s":0.3,"busy_s":0.25,"outcome":"applied"}
{"event":"task","iteration":1,"task":2,"worker":1,"lease":3,"time_s":0.6,"busy_s":null,"outcome":"cancelled"}
{"event":"step","iteration":1,"time_s":0.7,"loss":4.5,"runtime_s":0.5,"total_worker_time_s":0.75,"tasks":2,"wasted":1,"employments":2,"results":2,"learning_rate":0.1}
"#;

fn read(text: &str) -> Result<(Vec<RunEvent>, Option<Gap>), String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(JOURNAL_FILE), text).unwrap();
    let mut events = Vec::new();
    let torn = read_journal(folder.path(), |event| events.push(event)).map_err(|error| error.to_string())?;
    Ok((events, torn))
}

/// The journal of a training run that diverged can be read.
#[test]
fn nan_is_read_back() {
    let event = RunEvent::Evaluation {
        time_s: 1.0,
        iteration: Iteration(2),
        loss: f64::NAN,
        accuracy: None,
        metrics: [("error".into(), f64::NAN)].into(),
        skipped: 0,
    };
    let (events, _) = read(std::str::from_utf8(&line(&event)).unwrap()).unwrap();
    let RunEvent::Evaluation { loss, .. } = events[0] else { panic!("{events:?}") };
    assert!(loss.is_nan());
    let scores = ITERATION.replace("\"scores_s\":[]", "\"scores_s\":[null,2.5]");
    let RunEvent::Allocation { ref scores_s, .. } = read(&scores).unwrap().0[0] else { panic!("{scores}") };
    assert!(scores_s[0].is_nan() && scores_s[1] == 2.5);
}

/// Wherever a crash or a full disk cuts off the journal, the lines before are read and the loss is reported.
#[test]
fn a_torn_last_line_is_reported() {
    let lines: Vec<&str> = ITERATION.split_inclusive('\n').collect();
    for end in 0..ITERATION.len() {
        let (events, torn) = read(&ITERATION[..end]).unwrap();
        let mut whole = 0;
        let complete = lines.iter().take_while(|line| {
            whole += line.len();
            // A line that lacks only its newline is complete.
            whole <= end + 1
        });
        assert_eq!(events.len(), complete.count(), "ends at {end}");
        let starts_a_line = end == 0 || ITERATION.as_bytes()[end - 1] == b'\n' || ITERATION.as_bytes()[end] == b'\n';
        assert_eq!(torn.is_none(), starts_a_line, "ends at {end}");
        assert!(torn.is_none_or(|gap| gap.is_torn && gap.lines == 1), "{torn:?}");
    }
}

/// Lines that no release writes are left out and counted.
#[test]
fn damaged_lines_are_left_out() {
    for (text, line) in [
        (ITERATION.replace("0.25", "NaN"), 3),
        (ITERATION.replace(r#""worker":1"#, r#""worker":0"#), 3),
        (ITERATION.replace(r#""event":"step""#, r#""event":"stop""#), 5),
        (ITERATION.replace("\"task\":1,\"w", "\"w"), 3),
    ] {
        let (events, gap) = read(&text).unwrap();
        let lines = 5 - events.len() as u64;
        assert_eq!(gap, Some(Gap { line, lines, is_torn: false }), "{text}");
    }
}

#[test]
fn impossible_values_are_refused_with_their_line() {
    let run = |version: u32, budget: u64| {
        let rest = r#""run_id":"","policy":"","iterations":1,"task_batch":1,"seed":1,"model":"""#;
        format!("{{\"event\":\"run\",\"version\":{version},\"budget\":{budget},{rest}}}\n")
    };
    for (text, message) in [
        (ITERATION.replace("0.25", "-0.25"), "line 3: busy_s is -0.25"),
        (ITERATION.replace("0.25", "1e300"), "line 3: busy_s is 1"),
        (ITERATION.replace(":0.1,", ":1e300,"), "line 1: time_s is 1"),
        (ITERATION.replace(r#""tasks":2"#, r#""tasks":4294967296"#), "line 5: tasks is 4294967296: expected at most"),
        (ITERATION.replace(r#""wasted":1"#, r#""wasted":18446744073709551615"#), "line 5: wasted is 1844674407370955"),
        (ITERATION.replace("[1,1]", "[1,4294967297]"), "line 1: allocation is 4294967297"),
        (run(JOURNAL_VERSION, 1 << 32), "line 1: budget is 4294967296: expected at most 16777216"),
        (ITERATION.replace(r#""worker":1"#, r#""worker":1048577"#), "line 3: worker 1048577"),
        (ITERATION.replace(r#""runtime_s":0.5"#, r#""runtime_s":-1"#), "line 5: runtime_s is -1"),
        (r#"{"event":"links","time_s":1,"up_s":0,"down_s":0,"own_s":-1}"#.to_owned() + "\n", "line 1: own_s is -1"),
        (run(JOURNAL_VERSION + 1, 1), "line 1: another release of ata wrote this journal, in version "),
        (run(OLDEST_VERSION - 1, 1), "line 1: another release of ata wrote this journal, in version "),
        (
            r#"{"event":"resume","version":9,"written_by":"2.0"}"#.into(),
            "line 1: ata 2.0 wrote this journal, in version 9",
        ),
        (
            r#"{"event":"folded","time_s":1,"iteration":1,"state":{"iterations":18446744073709551615}}"#.into(),
            "line 1: the state's iterations has a number beyond",
        ),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn what_is_no_journal_is_refused_by_name() {
    let error = read("not a journal\nat all\n").unwrap_err();
    assert!(error.contains("line 1: expected"), "{error}");
    let error = read_journal(Path::new("nowhere"), drop).unwrap_err().to_string();
    assert!(error.contains("nowhere") && error.contains("events.jsonl"), "{error}");
}
