//! Taking up a run's journal where its checkpoint ends.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::event::RunEvent;
use crate::folder::{JOURNAL_FILE, METRICS_FILE, write_atomically};
use crate::journal::{JournalError, parse, read_journal};
use crate::metrics;
use crate::state::RunState;

/// Where the events of iterations go that are computed again.
pub const DISCARDED_FILE: &str = "events-discarded.jsonl";

/// How much of a journal is read to find the steps after a checkpoint: those of a minute, in a large run. Beyond this, all of
/// it is read, which takes a second for each 100 MB.
const TAIL_BYTES: u64 = 16 << 20;

/// How many steps after `iteration` the journal in a run's folder holds: a run that is resumed there computes them again.
pub fn steps_after(folder: &Path, iteration: u64) -> Result<u64, JournalError> {
    if !folder.join(JOURNAL_FILE).exists() {
        return Ok(0);
    }
    if let Some(steps) = steps_in_tail(folder, iteration, TAIL_BYTES)? {
        return Ok(steps);
    }
    let mut steps = 0;
    read_journal(folder, |event| {
        steps += u64::from(matches!(event, RunEvent::Step { iteration: at, .. } if at > iteration));
    })?;
    Ok(steps)
}

/// The same from the journal's last bytes only; `None` if they do not reach back to the step of `iteration`.
fn steps_in_tail(folder: &Path, iteration: u64, bytes: u64) -> Result<Option<u64>, JournalError> {
    let path = folder.join(JOURNAL_FILE);
    let tail = || -> io::Result<Vec<u8>> {
        let mut file = File::open(&path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        Ok(tail)
    };
    let tail = tail().map_err(|cause| JournalError::Io { path: path.clone(), cause })?;
    // The first line may be half of one, and the last one torn: neither is a step that counts.
    let steps = tail.split(|byte| *byte == b'\n').filter_map(|line| match parse(line) {
        Ok(RunEvent::Step { iteration, .. }) => Some(iteration),
        _ => None,
    });
    let (later, earlier): (Vec<u64>, Vec<u64>) = steps.partition(|at| *at > iteration);
    Ok((!earlier.is_empty()).then_some(later.len() as u64))
}

/// Cuts the journal in a run's folder after the step of `iteration`, and rewrites `metrics.csv` to match. What comes after
/// is kept in [`DISCARDED_FILE`]; a torn last line is dropped. A journal that ends earlier is kept as it is, and an absent
/// one is no error. Returns the state that the events left add up to; `hear` is called with each of them.
pub fn resume_journal(
    folder: &Path,
    iteration: u64,
    mut hear: impl FnMut(&RunEvent),
) -> Result<RunState, JournalError> {
    let path = folder.join(JOURNAL_FILE);
    let io = |cause| JournalError::Io { path: path.clone(), cause };
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(RunState::default());
        }
        file => file.map_err(io)?,
    };
    let mut state = RunState::default();
    let mut table = metrics::HEADER.to_owned();
    let (mut kept_bytes, mut tail) = (0, Vec::new());
    let mut is_past = iteration == 0;
    let mut lines = BufReader::new(file);
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        if lines.read_until(b'\n', &mut text).map_err(io)? == 0 || text.last() != Some(&b'\n') {
            break;
        }
        if text.trim_ascii().is_empty() {
            kept_bytes += text.len() as u64;
            continue;
        }
        let event = parse(&text).map_err(|reason| JournalError::Line { path: path.clone(), line, reason })?;
        if is_past {
            tail.extend_from_slice(&text);
            continue;
        }
        is_past = matches!(event, RunEvent::Step { iteration: at, .. } if at >= iteration);
        state.apply(&event);
        hear(&event);
        table.extend(metrics::line(&event));
        kept_bytes += text.len() as u64;
    }
    keep_aside(folder, &tail).map_err(io)?;
    let journal = OpenOptions::new().write(true).open(&path).map_err(io)?;
    journal.set_len(kept_bytes).and_then(|()| journal.sync_all()).map_err(io)?;
    write_atomically(&folder.join(METRICS_FILE), table.as_bytes()).map_err(io)?;
    Ok(state)
}

fn keep_aside(folder: &Path, tail: &[u8]) -> io::Result<()> {
    if tail.is_empty() {
        return Ok(());
    }
    let mut file = OpenOptions::new().create(true).append(true).open(folder.join(DISCARDED_FILE))?;
    file.write_all(tail)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::tests::step;
    use crate::journal::line;

    fn folder(torn: &[u8]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let late = RunEvent::Loss { time_s: 2.5, worker: 1, why: "it left".into() };
        let events = [step(1), step(2), late, step(3), step(4)];
        let mut text: Vec<u8> = events.iter().flat_map(line).collect();
        text.extend_from_slice(torn);
        std::fs::write(folder.path().join(JOURNAL_FILE), text).unwrap();
        folder
    }

    #[test]
    fn what_comes_after_the_checkpoint_is_kept_aside() {
        let folder = folder(b"{\"event\":\"st");
        assert_eq!(steps_after(folder.path(), 2).unwrap(), 2);
        let line_bytes = line(&step(4)).len() as u64 + 20;
        let tail = |lines: u64, after| steps_in_tail(folder.path(), after, lines * line_bytes).unwrap();
        assert_eq!((tail(2, 3), tail(2, 2), tail(9, 2)), (Some(1), None, Some(2)), "a tail may be too short");
        assert_eq!(resume_journal(folder.path(), 2, |_| ()).unwrap().iterations, 2);
        let mut events = Vec::new();
        assert_eq!(read_journal(folder.path(), |event| events.push(event)).unwrap(), None);
        assert_eq!(events, [step(1), step(2)]);
        let metrics = std::fs::read_to_string(folder.path().join(METRICS_FILE)).unwrap();
        assert_eq!(metrics.lines().count(), 3);
        let aside = std::fs::read_to_string(folder.path().join(DISCARDED_FILE)).unwrap();
        assert_eq!(aside.lines().count(), 3);
        assert_eq!(steps_after(folder.path(), 2).unwrap(), 0, "nothing is left to cut");
        assert_eq!(resume_journal(folder.path(), 2, |_| ()).unwrap().iterations, 2);
    }

    /// A machine that crashed may have a checkpoint newer than its journal.
    #[test]
    fn a_journal_that_ends_before_the_checkpoint_is_kept() {
        let folder = folder(b"");
        assert_eq!(steps_after(folder.path(), 9).unwrap(), 0);
        assert_eq!(resume_journal(folder.path(), 9, |_| ()).unwrap().iterations, 4);
        assert!(!folder.path().join(DISCARDED_FILE).exists());
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(steps_after(empty.path(), 0).unwrap(), 0);
        assert_eq!(resume_journal(empty.path(), 9, |_| ()).unwrap().iterations, 0);
    }

    #[test]
    fn a_damaged_journal_is_named_with_its_line() {
        let folder = folder(b"nonsense\n");
        let error = resume_journal(folder.path(), 2, |_| ()).unwrap_err().to_string();
        assert!(error.contains("events.jsonl, line 6"), "{error}");
    }
}
