//! Truncates a run's journal and `metrics.csv` to a checkpoint, whose step it finds in them without reading all of it.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use ata_types::Iteration;

use crate::event::{RunEvent, RunStart, StepEvent};
use crate::folder::{JOURNAL_FILE, METRICS_FILE, replacement, sync_folder, write_atomically};
use crate::journal::{JournalError, Lines, Unreadable, parse, write_line};
use crate::metrics;
use crate::output::FOLD_BYTES;
use crate::state::RunState;

/// The file that receives the events of iterations that are computed again.
pub const DISCARDED_FILE: &str = "events-discarded.jsonl";

/// The size in bytes from which the file of discarded events begins again: the largest part that one resumption discards by default.
const DISCARDED_BYTES: u64 = 3 * FOLD_BYTES;

/// Counts the steps after `iteration` in the journal of a run's folder. A run that is resumed there computes them again.
pub fn steps_after(folder: &Path, iteration: Iteration) -> Result<u64, JournalError> {
    let path = folder.join(JOURNAL_FILE);
    match StepPlace::find(&path, Iteration(u64::MAX), in_journal) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(cause) => Err(JournalError::Io(path, cause)),
        Ok(StepPlace { last, .. }) => Ok(last.number().saturating_sub(iteration.number())),
    }
}

/// Checks that the journal in a run's folder, if there is one, belongs to run `run_id`, and that this release reads it.
pub fn check_run(folder: &Path, run_id: &str) -> Result<(), JournalError> {
    let path = folder.join(JOURNAL_FILE);
    let io = |cause| JournalError::Io(path.clone(), cause);
    let mut lines = match Lines::open(&path, 0) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        lines => lines.map_err(io)?,
    };
    // The run's first event is on the first line, unless that line was lost.
    match lines.next().map_err(io)?.map(|line| (line.number, parse(&line.text))) {
        Some((_, Ok(RunEvent::Run(found)))) if found.run_id != run_id => {
            Err(JournalError::OtherRun { path, found: found.run_id, expected: run_id.into() })
        }
        Some((line, Err(Unreadable::Refused(reason)))) => Err(JournalError::Line(path, line, reason)),
        _ => Ok(()),
    }
}

/// Truncates the journal in a run's folder after the step of `iteration`, and `metrics.csv` likewise. Only the part after that step is
/// read. Later events are moved to [`DISCARDED_FILE`]; a torn last line is dropped.
///
/// `state` is the state after that step. If the journal lacks the step, because the details of its iteration are gone or a crash took them,
/// [`RunEvent::Folded`] takes their place. A journal that is lost begins with `run`, the run's first event.
pub fn resume_journal(
    folder: &Path,
    run: &RunEvent,
    iteration: Iteration,
    state: &RunState,
) -> Result<(), JournalError> {
    let RunEvent::Run(RunStart { run_id, .. }) = run else { unreachable!("a run begins with its description") };
    check_run(folder, run_id)?;
    let path = folder.join(JOURNAL_FILE);
    let io = |cause| JournalError::Io(path.clone(), cause);
    drop(std::fs::remove_file(replacement(&path)));
    // A file that is missing is created.
    OpenOptions::new().append(true).create(true).open(&path).map_err(io)?;
    let place = StepPlace::find(&path, iteration, in_journal).map_err(io)?;
    let mut lines = Vec::new();
    if place.end == 0 {
        write_line(run, &mut lines);
    }
    if place.last != iteration {
        write_line(&state.clone().for_checkpoints().folded(), &mut lines);
    }
    move_aside(folder, place.end).map_err(io)?;
    truncate(&path, place.end, &lines).map_err(io)?;
    cut_metrics(folder, iteration)
}

/// Truncates `metrics.csv` after the step of `iteration`. If it is missing, it is made from the journal.
fn cut_metrics(folder: &Path, iteration: Iteration) -> Result<(), JournalError> {
    let path = folder.join(METRICS_FILE);
    let io = |cause| JournalError::Io(path.clone(), cause);
    drop(std::fs::remove_file(replacement(&path)));
    if path.exists() {
        let place = StepPlace::find(&path, iteration, in_metrics).map_err(io)?;
        return truncate(&path, place.end, &[]).map_err(io);
    }
    let mut table = metrics::HEADER.to_owned();
    let mut lines = Lines::open(&folder.join(JOURNAL_FILE), 0).map_err(io)?;
    while let Some(line) = lines.next().map_err(io)? {
        table.extend(parse(&line.text).ok().and_then(|event| metrics::line(&event)));
    }
    write_atomically(&path, table.as_bytes()).map_err(io)
}

/// Truncates a file, and appends lines.
fn truncate(path: &Path, end: u64, lines: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end))?;
    file.write_all(lines)?;
    file.sync_all()
}

/// Moves the whole journal in a run's folder to [`DISCARDED_FILE`], because the run starts over.
pub fn discard_journal(folder: &Path) -> io::Result<()> {
    match move_aside(folder, 0) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        moved => moved.and_then(|()| std::fs::remove_file(folder.join(JOURNAL_FILE))),
    }
}

/// Copies the journal from byte `start` on to the end of [`DISCARDED_FILE`], which begins again when it is long.
fn move_aside(folder: &Path, start: u64) -> io::Result<()> {
    let mut journal = File::open(folder.join(JOURNAL_FILE))?;
    if journal.seek(SeekFrom::End(0))? <= start {
        return Ok(());
    }
    journal.seek(SeekFrom::Start(start))?;
    let mut discarded = OpenOptions::new().create(true).append(true).open(folder.join(DISCARDED_FILE))?;
    if discarded.metadata()?.len() >= DISCARDED_BYTES {
        discarded.set_len(0)?;
    }
    io::copy(&mut journal, &mut discarded)?;
    discarded.sync_all()?;
    sync_folder(folder)
}

/// The number of bytes that are read line by line rather than divided: a read of this size takes less than a millisecond.
const READ_BYTES: u64 = 1 << 18;

/// The place in a file up to which it holds the events of some iterations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StepPlace {
    /// The position after the last line to keep.
    end: u64,
    /// The last of these iterations that the file has; 0 if it has none.
    last: Iteration,
}

/// Returns the iteration that a line of the journal ends, if it does.
fn in_journal(line: &[u8]) -> Option<Iteration> {
    // The kind comes first. Most lines are of other kinds, and need not be parsed.
    let begins = |kind: &str| line.starts_with(format!(r#"{{"event":"{kind}","#).as_bytes());
    if !begins("step") && !begins("folded") {
        return None;
    }
    match parse(line).ok()? {
        RunEvent::Step(StepEvent { iteration, .. }) | RunEvent::Folded { iteration, .. } => Some(iteration),
        _ => None,
    }
}

fn in_metrics(line: &[u8]) -> Option<Iteration> {
    metrics::MetricsRow::parse(str::from_utf8(line).ok()?).filter(metrics::MetricsRow::is_step).map(|row| row.iteration)
}

impl StepPlace {
    /// Finds the end of the step of `iteration`, or of the last one before it. A file that ends before that step is kept whole, except for
    /// a torn last line. Steps are in order, so the file is divided in halves until the step is in a small part.
    fn find(path: &Path, iteration: Iteration, of: fn(&[u8]) -> Option<Iteration>) -> io::Result<Self> {
        let bytes = path.metadata()?.len();
        let (mut low, mut high) = (Self::default(), bytes);
        while high - low.end > READ_BYTES {
            let middle = low.end + (high - low.end) / 2;
            match next_mark(path, middle, of)? {
                Some(mark) if mark.last < iteration => low = mark,
                _ => high = middle,
            }
        }
        let mut lines = Lines::open(path, low.end)?;
        let mut whole = low.end;
        while let Some(line) = lines.next()? {
            if line.is_torn() {
                break;
            }
            let (end, is_first) = (line.bytes.end, line.bytes.start == 0);
            match of(&line.text) {
                Some(found) if found > iteration => return Ok(low),
                Some(found) if found == iteration => return Ok(Self { end, last: found }),
                Some(found) => low = Self { end, last: found },
                // The first line, which describes the run or the columns, is kept in any case.
                None if is_first => low.end = end,
                None => {}
            }
            whole = end;
        }
        Ok(Self { end: whole, last: low.last })
    }
}

/// Returns the first line that ends an iteration after the line at `start`, which may begin before.
fn next_mark(path: &Path, start: u64, of: fn(&[u8]) -> Option<Iteration>) -> io::Result<Option<StepPlace>> {
    let mut lines = Lines::open(path, start)?;
    lines.next()?;
    while let Some(line) = lines.next()? {
        if let Some(last) = of(&line.text).filter(|_| !line.is_torn()) {
            return Ok(Some(StepPlace { end: line.bytes.end, last }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
