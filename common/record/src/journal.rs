//! The journal: one line of JSON per event.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use ata_types::{Iteration, WorkerId};
use serde::Deserialize;

use super::event::{JOURNAL_VERSION, PROGRAM_VERSION, RunEvent};
use super::folder::JOURNAL_FILE;
use super::limits::{MAX_BUDGET, MAX_COUNT, MAX_TIME_S, MAX_WORKER};
use super::state::RunState;

/// The largest line in bytes: the state of a run with 5,000 busy workers takes half of this.
pub(crate) const MAX_LINE_BYTES: u64 = 64 << 20;

/// The reason why a journal cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be opened or read.
    #[error("{path}: {cause}; expected a run's events.jsonl, or its folder")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// A line is not an event.
    #[error("{path}, line {line}: {reason}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's 1-based number.
        line: u64,
        /// The reason, in words.
        reason: String,
    },
    /// The iteration's details are no longer in the journal.
    #[error(
        "{path} has no details of iteration {iteration} any more: those of the first {folded} iterations were replaced by what they add \
         up to (--journal full keeps them, in runs that begin with it)"
    )]
    Folded {
        /// The file.
        path: PathBuf,
        /// The iteration.
        iteration: Iteration,
        /// The last iteration without details.
        folded: Iteration,
    },
    /// The journal belongs to a different run than the one that is resumed.
    #[error(
        "{path} is the journal of run {found}, and the checkpoint is of run {expected}; name the folder of that run"
    )]
    OtherRun {
        /// The file.
        path: PathBuf,
        /// The id of the journal's run.
        found: String,
        /// The id of the run that is resumed.
        expected: String,
    },
}

/// Iterates over the lines of a journal, without blank ones.
pub(crate) struct Lines {
    file: BufReader<File>,
    line: JournalLine,
}

/// The lines of a journal that cannot be read, as after a crash or on a full disk. Their events are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The 1-based number of the first of them.
    pub line: u64,
    /// Their number.
    pub lines: u64,
    /// Whether there is only one, the last, and it was not written to its end.
    pub is_torn: bool,
}

/// A line, or [`MAX_LINE_BYTES`] of data without a newline: a file that was not completely written before a power loss may hold any
/// number of zeros.
#[derive(Default)]
pub(crate) struct JournalLine {
    pub(crate) number: u64,
    /// The line's byte range in the file, including the blank lines before it.
    pub(crate) bytes: Range<u64>,
    pub(crate) text: Vec<u8>,
}

impl JournalLine {
    /// Returns whether the file ends before the line does.
    pub(crate) fn is_torn(&self) -> bool {
        self.text.last() != Some(&b'\n') && (self.text.len() as u64) < MAX_LINE_BYTES
    }

    pub(crate) fn event(&self) -> Result<RunEvent, Unreadable> {
        parse(&self.text)
    }
}

impl Lines {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Self::open_at(path, 0)
    }

    /// Begins with the line at byte `start`, which gets the number 1.
    pub(crate) fn open_at(path: &Path, start: u64) -> io::Result<Self> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(start))?;
        let line = JournalLine { bytes: start..start, ..JournalLine::default() };
        Ok(Self { file: BufReader::new(file), line })
    }

    /// Reads the next line; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<&JournalLine>> {
        let Self { file, line } = self;
        line.bytes.start = line.bytes.end;
        loop {
            line.text.clear();
            let length = file.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line.text)?;
            if length == 0 {
                return Ok(None);
            }
            line.number += 1;
            line.bytes.end += length as u64;
            if !line.text.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

/// Reads a journal, or the one in a run's folder, event by event. Lines that cannot be read are left out and returned; if no line can be,
/// or the values of one are impossible, that is an error.
pub fn read_journal(path: &Path, mut on_event: impl FnMut(RunEvent)) -> Result<Option<Gap>, JournalError> {
    let path: PathBuf = if path.is_dir() { path.join(JOURNAL_FILE) } else { path.into() };
    let io = |cause| JournalError::Io { path: path.clone(), cause };
    let mut lines = Lines::open(&path).map_err(io)?;
    let (mut gap, mut reason, mut is_read): (Option<Gap>, _, _) = (None, String::new(), false);
    while let Some(line) = lines.next().map_err(io)? {
        match line.event() {
            Ok(event) => {
                is_read = true;
                on_event(event);
            }
            // An event is written together with its newline in one call, so a last line without one is incomplete.
            Err(Unreadable::Damaged(why)) => {
                let is_torn = gap.is_none() && line.is_torn();
                let (first, lines) = gap.map_or((line.number, 0), |gap| (gap.line, gap.lines));
                reason = if lines == 0 { why } else { reason };
                gap = Some(Gap { line: first, lines: lines + 1, is_torn });
            }
            Err(Unreadable::Refused(reason)) => return Err(JournalError::Line { path, line: line.number, reason }),
        }
    }
    match gap {
        Some(Gap { line, is_torn: false, .. }) if !is_read => Err(JournalError::Line { path, line, reason }),
        gap => Ok(gap),
    }
}

/// The reason why a line is not an event.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// It is not what any release writes.
    Damaged(String),
    /// Another release wrote it, or its values are impossible.
    Refused(String),
}

pub(crate) fn parse(text: &[u8]) -> Result<RunEvent, Unreadable> {
    if let Ok(RunLine { version, written_by, .. }) = serde_json::from_slice(text)
        && !(OLDEST_VERSION..=JOURNAL_VERSION).contains(&version)
    {
        let by = if written_by.is_empty() { "another release of ata".into() } else { format!("ata {written_by}") };
        return Err(Unreadable::Refused(format!(
            "{by} wrote this journal, in version {version}; this is ata {PROGRAM_VERSION}, which reads versions {OLDEST_VERSION} to \
             {JOURNAL_VERSION}: use the release that wrote it, or a later one"
        )));
    }
    let event = serde_json::from_slice(text).map_err(|error| Unreadable::Damaged(error.to_string()))?;
    check(&event).map_err(Unreadable::Refused)?;
    Ok(event)
}

/// The oldest version of the journal that is read.
const OLDEST_VERSION: u32 = 3;

/// The fields of a line by which a version of the journal begins, in every version.
#[derive(Deserialize)]
struct RunLine {
    #[serde(rename = "event")]
    _kind: HeaderKind,
    version: u32,
    #[serde(default)]
    written_by: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum HeaderKind {
    Run,
    Resume,
}

/// Refuses events whose values are impossible.
fn check(event: &RunEvent) -> Result<(), String> {
    event.time_s().map_or(Ok(()), |time_s| time("time_s", time_s))?;
    match event {
        RunEvent::Folded { state, .. } => RunState::restored(state.clone()).map(drop),
        RunEvent::Run { budget, .. } => count("budget", *budget, MAX_BUDGET),
        RunEvent::Join { worker: id, .. }
        | RunEvent::Loss { worker: id, .. }
        | RunEvent::Expulsion { worker: id, .. } => worker(*id),
        RunEvent::Rest { worker: id, rest_s, .. } => {
            worker(*id)?;
            time("rest_s", *rest_s)
        }
        RunEvent::Links { up_s, down_s, own_s, workers, .. } => {
            let times = [("up_s", up_s), ("down_s", down_s), ("own_s", own_s)];
            times.into_iter().try_for_each(|(name, value)| time(name, *value))?;
            workers.iter().try_for_each(|link| {
                worker(link.worker)?;
                time("up_s", link.up_s)?;
                time("bytes_per_s", link.bytes_per_s)
            })
        }
        RunEvent::Resources { workers, .. } => workers.iter().try_for_each(|of| worker(of.worker)),
        RunEvent::Refusal { worker: id, count: results, .. } => {
            worker(*id)?;
            count("count", *results, MAX_COUNT)
        }
        RunEvent::Allocation { workers, allocation, probes, .. } => {
            workers.iter().chain(probes).try_for_each(|id| worker(*id))?;
            allocation.iter().try_for_each(|tasks| count("allocation", *tasks, MAX_COUNT))
        }
        RunEvent::Task { worker: id, busy_s, censored_s, overhead_s, .. } => {
            worker(*id)?;
            let times = [("busy_s", busy_s), ("censored_s", censored_s), ("overhead_s", overhead_s)];
            times.into_iter().try_for_each(|(name, value)| value.map_or(Ok(()), |value| time(name, value)))
        }
        RunEvent::Step { runtime_s, total_worker_time_s, tasks, wasted, employments, results, .. } => {
            time("runtime_s", *runtime_s)?;
            time("total_worker_time_s", *total_worker_time_s)?;
            count("tasks", *tasks, MAX_BUDGET)?;
            let counts = [("wasted", wasted), ("employments", employments), ("results", results)];
            counts.into_iter().try_for_each(|(name, value)| count(name, *value, MAX_COUNT))
        }
        _ => Ok(()),
    }
}

fn worker(id: WorkerId) -> Result<(), String> {
    if id.number() <= MAX_WORKER { Ok(()) } else { Err(format!("worker {id}: expected at most {MAX_WORKER}")) }
}

fn time(name: &str, value: f64) -> Result<(), String> {
    let good = (0.0..=MAX_TIME_S).contains(&value);
    if good { Ok(()) } else { Err(format!("{name} is {value}: expected a time from 0 to {MAX_TIME_S:e}")) }
}

fn count(name: &str, value: u64, most: u64) -> Result<(), String> {
    if value <= most { Ok(()) } else { Err(format!("{name} is {value}: expected at most {most}")) }
}

/// Appends an event as a line of the journal.
pub(crate) fn write_line(event: &RunEvent, lines: &mut Vec<u8>) {
    serde_json::to_writer(&mut *lines, event).expect("names and numbers can be written");
    lines.push(b'\n');
}

/// Returns an event as a line of the journal.
#[cfg(test)]
pub(crate) fn line(event: &RunEvent) -> Vec<u8> {
    let mut line = Vec::new();
    write_line(event, &mut line);
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use ata_types::Iteration;

    use crate::event::RefusalKind;
    use crate::labels::Labels;

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

    #[test]
    fn events_are_read_as_they_were_written() {
        let worker = WorkerId::from_slot(1);
        let (why, reason) = ("it failed".to_owned(), "value 3 is NaN\n".to_owned());
        let evaluation = |accuracy| RunEvent::Evaluation {
            time_s: 1.0,
            iteration: Iteration(2),
            loss: 0.5,
            accuracy,
            metrics: BTreeMap::new(),
            skipped: 3,
        };
        let events = [
            RunEvent::Run {
                version: JOURNAL_VERSION,
                written_by: PROGRAM_VERSION.into(),
                run_id: "r".into(),
                policy: "uta".into(),
                budget: 3,
                iterations: 9,
                task_batch: 2,
                seed: u64::MAX,
                model: "cnn".into(),
                samples: Some(50_000),
                labels: Labels { name: Some("baseline".into()), tags: [("team".into(), "vision".into())].into() },
            },
            RunEvent::Rest { time_s: 0.1 + 0.2, worker, rest_s: 1.0, strikes: 3 },
            RunEvent::Resources {
                time_s: 1.5,
                workers: vec![crate::WorkerResources {
                    worker,
                    cpu_cores: Some(1.5),
                    memory_bytes: None,
                    bytes_per_s: 1e6,
                }],
            },
            RunEvent::Links {
                time_s: 1.25,
                up_s: 0.0,
                down_s: 0.1,
                own_s: 0.2,
                workers: vec![crate::WorkerLink { worker, up_s: 0.3, bytes_per_s: 1e6 }],
            },
            RunEvent::Refusal { time_s: 1.5, worker, kind: RefusalKind::NotFinite, reason, count: 1 },
            RunEvent::Expulsion { time_s: 2.0, worker, why },
            RunEvent::Forgive { time_s: 2.0, name: "rig".into() },
            evaluation(Some(0.25)),
            evaluation(None),
        ];
        let text: Vec<u8> = events.iter().flat_map(line).collect();
        assert_eq!(read(std::str::from_utf8(&text).unwrap()).unwrap(), (events.to_vec(), None));
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
            let starts_a_line =
                end == 0 || ITERATION.as_bytes()[end - 1] == b'\n' || ITERATION.as_bytes()[end] == b'\n';
            assert_eq!(torn.is_none(), starts_a_line, "ends at {end}");
            assert!(torn.is_none_or(|gap| gap.is_torn && gap.lines == 1), "{torn:?}");
        }
    }

    #[test]
    fn a_file_without_any_event_is_refused() {
        let error = read("not a journal\nat all\n").unwrap_err();
        assert!(error.contains("line 1: expected"), "{error}");
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
            (
                ITERATION.replace(r#""tasks":2"#, r#""tasks":4294967296"#),
                "line 5: tasks is 4294967296: expected at most",
            ),
            (
                ITERATION.replace(r#""wasted":1"#, r#""wasted":18446744073709551615"#),
                "line 5: wasted is 1844674407370955",
            ),
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
    fn a_missing_journal_is_named() {
        let error = read_journal(Path::new("nowhere"), drop).unwrap_err().to_string();
        assert!(error.contains("nowhere") && error.contains("events.jsonl"), "{error}");
    }
}
