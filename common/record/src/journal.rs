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
    #[error("{0}: {1}; expected a run's events.jsonl, or its folder")]
    Io(PathBuf, io::Error),
    /// The line with this 1-based number is not an event.
    #[error("{0}, line {1}: {2}")]
    Line(PathBuf, u64, String),
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
}

impl Lines {
    /// Begins with the line at byte `start`, which gets the number 1.
    pub(crate) fn open(path: &Path, start: u64) -> io::Result<Self> {
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
    let io = |cause| JournalError::Io(path.clone(), cause);
    let mut lines = Lines::open(&path, 0).map_err(io)?;
    let (mut gap, mut reason, mut is_read): (Option<Gap>, _, _) = (None, String::new(), false);
    while let Some(line) = lines.next().map_err(io)? {
        match parse(&line.text) {
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
            Err(Unreadable::Refused(reason)) => return Err(JournalError::Line(path, line.number, reason)),
        }
    }
    match gap {
        Some(Gap { line, is_torn: false, .. }) if !is_read => Err(JournalError::Line(path, line, reason)),
        gap => Ok(gap),
    }
}

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
        RunEvent::Run(run) => {
            count("budget", run.budget, MAX_BUDGET)?;
            count("most_tasks", run.most_tasks.unwrap_or(1), MAX_BUDGET)
        }
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
        RunEvent::Step(step) => {
            time("runtime_s", step.runtime_s)?;
            time("total_worker_time_s", step.total_worker_time_s)?;
            count("tasks", step.tasks, MAX_BUDGET)?;
            let counts = [("wasted", step.wasted), ("employments", step.employments), ("results", step.results)];
            counts.into_iter().try_for_each(|(name, value)| count(name, value, MAX_COUNT))
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

pub(crate) fn write_line(event: &RunEvent, lines: &mut Vec<u8>) {
    serde_json::to_writer(&mut *lines, event).expect("names and numbers can be written");
    lines.push(b'\n');
}

#[cfg(test)]
pub(crate) fn line(event: &RunEvent) -> Vec<u8> {
    let mut line = Vec::new();
    write_line(event, &mut line);
    line
}

#[cfg(test)]
mod tests;
