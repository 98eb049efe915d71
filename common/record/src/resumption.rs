//! Taking up a run's journal where its checkpoint ends.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use crate::event::RunEvent;
use crate::folder::{JOURNAL_FILE, METRICS_FILE, write_atomically};
use crate::journal::{JournalError, parse};
use crate::metrics;
use crate::state::RunState;

/// Where the events of iterations go that are computed again.
pub const DISCARDED_FILE: &str = "events-discarded.jsonl";

/// A journal that ends with the iteration of a checkpoint.
#[derive(Debug)]
pub struct Resumed {
    /// The state that its events add up to.
    pub state: RunState,
    /// Steps after the checkpoint, which were moved to [`DISCARDED_FILE`] and are computed again.
    pub computed_again: u64,
}

/// Cuts the journal in a run's folder after the step of `iteration`, and rewrites `metrics.csv` to match. What comes after
/// is kept in [`DISCARDED_FILE`]; a torn last line is dropped. A journal that ends earlier is kept as it is, and an absent
/// one is no error: then the state is empty.
pub fn resume_journal(folder: &Path, iteration: u64) -> Result<Resumed, JournalError> {
    let path = folder.join(JOURNAL_FILE);
    let io = |cause| JournalError::Io { path: path.clone(), cause };
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Resumed { state: RunState::default(), computed_again: 0 });
        }
        file => file.map_err(io)?,
    };
    let mut state = RunState::default();
    let mut table = metrics::HEADER.to_owned();
    let (mut computed_again, mut kept_bytes, mut tail) = (0, 0, Vec::new());
    let mut is_past = iteration == 0;
    let mut lines = BufReader::new(file);
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        if lines.read_until(b'\n', &mut text).map_err(io)? == 0 || text.last() != Some(&b'\n') {
            break;
        }
        let event = parse(&text).map_err(|reason| JournalError::Line { path: path.clone(), line, reason })?;
        if is_past {
            computed_again += u64::from(matches!(event, RunEvent::Step { .. }));
            tail.extend_from_slice(&text);
            continue;
        }
        is_past = matches!(event, RunEvent::Step { iteration: at, .. } if at >= iteration);
        state.apply(&event);
        table.extend(metrics::line(&event));
        kept_bytes += text.len() as u64;
    }
    keep_aside(folder, &tail).map_err(io)?;
    let journal = OpenOptions::new().write(true).open(&path).map_err(io)?;
    journal.set_len(kept_bytes).and_then(|()| journal.sync_all()).map_err(io)?;
    write_atomically(&folder.join(METRICS_FILE), table.as_bytes()).map_err(io)?;
    Ok(Resumed { state, computed_again })
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
    use crate::journal::{line, read_journal};

    fn step(iteration: u64) -> RunEvent {
        RunEvent::Step {
            iteration,
            time_s: iteration as f64,
            loss: 0.5,
            runtime_s: 1.0,
            total_worker_time_s: 2.0,
            tasks: 4,
            wasted: 0,
            employments: 2,
        }
    }

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
        let resumed = resume_journal(folder.path(), 2).unwrap();
        assert_eq!((resumed.state.iterations, resumed.computed_again), (2, 2));
        let mut events = Vec::new();
        assert_eq!(read_journal(folder.path(), |event| events.push(event)).unwrap(), None);
        assert_eq!(events, [step(1), step(2)]);
        let metrics = std::fs::read_to_string(folder.path().join(METRICS_FILE)).unwrap();
        assert_eq!(metrics.lines().count(), 3);
        let aside = std::fs::read_to_string(folder.path().join(DISCARDED_FILE)).unwrap();
        assert_eq!(aside.lines().count(), 3);
        let again = resume_journal(folder.path(), 2).unwrap();
        assert_eq!((again.state.iterations, again.computed_again), (2, 0), "nothing is left to cut");
    }

    /// A machine that crashed may have a checkpoint newer than its journal.
    #[test]
    fn a_journal_that_ends_before_the_checkpoint_is_kept() {
        let folder = folder(b"");
        let resumed = resume_journal(folder.path(), 9).unwrap();
        assert_eq!((resumed.state.iterations, resumed.computed_again), (4, 0));
        assert!(!folder.path().join(DISCARDED_FILE).exists());
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(resume_journal(empty.path(), 9).unwrap().state.iterations, 0);
    }

    #[test]
    fn a_damaged_journal_is_named_with_its_line() {
        let folder = folder(b"nonsense\n");
        let error = resume_journal(folder.path(), 2).unwrap_err().to_string();
        assert!(error.contains("events.jsonl, line 6"), "{error}");
    }
}
