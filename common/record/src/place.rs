//! Finds the step of an iteration in the journal or in `metrics.csv` without reading all of it.

use std::io;
use std::path::Path;

use ata_types::Iteration;

use crate::event::RunEvent;
use crate::journal::{Lines, parse};
use crate::metrics;

/// The number of bytes that are read line by line rather than divided: a read of this size takes less than a millisecond.
const READ_BYTES: u64 = 1 << 18;

/// The place in a file up to which it holds the events of some iterations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepPlace {
    /// The position after the last line to keep.
    pub(crate) end: u64,
    /// The last of these iterations that the file has; 0 if it has none.
    pub(crate) last: Iteration,
}

/// Returns the iteration that a line of the journal ends, if it does.
pub(crate) fn in_journal(line: &[u8]) -> Option<Iteration> {
    // The kind comes first. Most lines are of other kinds, and need not be parsed.
    let begins = |kind: &str| line.starts_with(format!(r#"{{"event":"{kind}","#).as_bytes());
    if !begins("step") && !begins("folded") {
        return None;
    }
    match parse(line).ok()? {
        RunEvent::Step { iteration, .. } | RunEvent::Folded { iteration, .. } => Some(iteration),
        _ => None,
    }
}

/// Returns the iteration that a line of `metrics.csv` ends, if it does.
pub(crate) fn in_metrics(line: &[u8]) -> Option<Iteration> {
    metrics::MetricsRow::parse(str::from_utf8(line).ok()?).filter(metrics::MetricsRow::is_step).map(|row| row.iteration)
}

impl StepPlace {
    /// Finds the end of the step of `iteration`, or of the last one before it. A file that ends before that step is kept whole, except for
    /// a torn last line. Steps are in order, so the file is divided in halves until the step is in a small part.
    pub(crate) fn find(path: &Path, iteration: Iteration, of: fn(&[u8]) -> Option<Iteration>) -> io::Result<Self> {
        let bytes = path.metadata()?.len();
        let (mut low, mut high) = (Self::default(), bytes);
        while high - low.end > READ_BYTES {
            let middle = low.end + (high - low.end) / 2;
            match next_mark(path, middle, of)? {
                Some(mark) if mark.last < iteration => low = mark,
                _ => high = middle,
            }
        }
        let mut lines = Lines::open_at(path, low.end)?;
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
    let mut lines = Lines::open_at(path, start)?;
    lines.next()?;
    while let Some(line) = lines.next()? {
        if let Some(last) = of(&line.text).filter(|_| !line.is_torn()) {
            return Ok(Some(StepPlace { end: line.bytes.end, last }));
        }
    }
    Ok(None)
}
