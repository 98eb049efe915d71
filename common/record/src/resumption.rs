//! Truncates a run's journal to a checkpoint.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use ata_types::Iteration;

use crate::event::RunEvent;
use crate::folder::{JOURNAL_FILE, METRICS_FILE, sync_folder, write_atomically};
use crate::journal::{JournalError, Lines, parse};
use crate::metrics;
use crate::state::RunState;

/// The file that receives the events of iterations that are computed again.
pub const DISCARDED_FILE: &str = "events-discarded.jsonl";

/// The file that receives a copy of a journal with unreadable lines.
pub const DAMAGED_FILE: &str = "events-damaged.jsonl";

/// The number of bytes at a journal's end that are read to find the steps after a checkpoint: about a minute of a large run. If
/// they do not reach back to the checkpoint, the whole journal is read, which takes a second per 100 MB.
const TAIL_BYTES: u64 = 16 << 20;

/// Counts the steps after `iteration` in the journal of a run's folder. A run that is resumed there computes them again.
/// Unreadable lines do not count.
pub fn steps_after(folder: &Path, iteration: Iteration) -> Result<u64, JournalError> {
    let path = folder.join(JOURNAL_FILE);
    if !path.exists() {
        return Ok(0);
    }
    let io = |cause| JournalError::Io { path: path.clone(), cause };
    if let Some(steps) = steps_in_tail(&path, iteration, TAIL_BYTES).map_err(io)? {
        return Ok(steps);
    }
    let (mut steps, mut lines) = (0, Lines::open(&path).map_err(io)?);
    while let Some(line) = lines.next().map_err(io)? {
        steps += u64::from(matches!(line.event(), Ok(RunEvent::Step { iteration: at, .. }) if at > iteration));
    }
    Ok(steps)
}

/// Counts the same steps in the last `bytes` of the journal; `None` if these do not reach back to the step of `iteration`.
fn steps_in_tail(path: &Path, iteration: Iteration, bytes: u64) -> io::Result<Option<u64>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    // The first line may be incomplete, and the last one torn: neither counts as a step.
    let steps = tail.split(|byte| *byte == b'\n').filter_map(|line| match parse(line) {
        Ok(RunEvent::Step { iteration, .. }) => Some(iteration),
        _ => None,
    });
    let (later, earlier): (Vec<Iteration>, Vec<Iteration>) = steps.partition(|at| *at > iteration);
    Ok((!earlier.is_empty()).then_some(later.len() as u64))
}

/// The journal of a resumed run, up to its checkpoint.
#[derive(Debug)]
pub struct ResumedJournal {
    /// The state that its events add up to.
    pub state: RunState,
    /// Whether it contains the run's first event.
    pub has_begun: bool,
    /// The number of unreadable lines up to the checkpoint. Their events are missing.
    pub unreadable: u64,
}

/// Checks that the journal in a run's folder, if there is one, belongs to run `run_id`.
pub fn check_run(folder: &Path, run_id: &str) -> Result<(), JournalError> {
    let path = folder.join(JOURNAL_FILE);
    let io = |cause| JournalError::Io { path: path.clone(), cause };
    let mut lines = match Lines::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        lines => lines.map_err(io)?,
    };
    // The run's first event is on the first line, unless that line was lost.
    while let Some(line) = lines.next().map_err(io)? {
        if let Ok(RunEvent::Run { run_id: found, .. }) = line.event() {
            let expected = run_id.to_owned();
            return if found == expected { Ok(()) } else { Err(JournalError::OtherRun { path, found, expected }) };
        }
    }
    Ok(())
}

/// Truncates the journal of run `run_id` in its folder after the step of `iteration`, and rewrites `metrics.csv` to match.
///
/// Later events are moved to [`DISCARDED_FILE`]; a torn last line is dropped. Unreadable lines are left out, and the journal as it
/// was is copied to [`DAMAGED_FILE`]. A journal that ends earlier is left unchanged, and an absent one is not an error. The events
/// that remain are applied to `state`.
pub fn resume_journal(
    folder: &Path,
    run_id: &str,
    iteration: Iteration,
    state: RunState,
) -> Result<ResumedJournal, JournalError> {
    check_run(folder, run_id)?;
    let path = folder.join(JOURNAL_FILE);
    let io = |cause| JournalError::Io { path: path.clone(), cause };
    let mut resumed = ResumedJournal { state, has_begun: false, unreadable: 0 };
    let mut lines = match Lines::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(resumed),
        lines => lines.map_err(io)?,
    };
    let mut table = metrics::HEADER.to_owned();
    let mut kept = KeptRanges::default();
    let mut later: Option<Range<u64>> = (iteration == Iteration::default()).then_some(0..0);
    while let Some(line) = lines.next().map_err(io)? {
        if line.is_torn() {
            break;
        }
        if let Some(later) = &mut later {
            later.end = line.bytes.end;
            continue;
        }
        let Ok(event) = line.event() else {
            resumed.unreadable += 1;
            continue;
        };
        resumed.has_begun |= matches!(event, RunEvent::Run { .. });
        let step = event.iteration();
        if step.is_some_and(|at| at > iteration) {
            // The line with the step of `iteration` itself is unreadable.
            later = Some(line.bytes.clone());
            continue;
        }
        if step == Some(iteration) && matches!(event, RunEvent::Step { .. }) {
            later = Some(line.bytes.end..line.bytes.end);
        }
        resumed.state.apply(&event);
        table.extend(metrics::line(&event));
        kept.add(line.bytes.clone());
    }
    if resumed.unreadable > 0 {
        copy_whole(folder).map_err(io)?;
    }
    later.map_or(Ok(()), |later| move_aside(folder, later)).map_err(io)?;
    kept.truncate(folder).map_err(io)?;
    write_atomically(&folder.join(METRICS_FILE), table.as_bytes()).map_err(io)?;
    Ok(resumed)
}

/// Moves the whole journal in a run's folder to [`DISCARDED_FILE`], because the run starts over.
pub fn discard_journal(folder: &Path) -> io::Result<()> {
    let path = folder.join(JOURNAL_FILE);
    let length = match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata?.len(),
    };
    move_aside(folder, 0..length)?;
    std::fs::remove_file(path)
}

/// The byte ranges of a journal that are kept.
#[derive(Default)]
struct KeptRanges(Vec<Range<u64>>);

impl KeptRanges {
    fn add(&mut self, bytes: Range<u64>) {
        match self.0.last_mut() {
            Some(last) if last.end == bytes.start => last.end = bytes.end,
            _ => self.0.push(bytes),
        }
    }

    /// Reduces the journal to these ranges.
    fn truncate(&self, folder: &Path) -> io::Result<()> {
        let path = folder.join(JOURNAL_FILE);
        let end = match &self.0[..] {
            [] => 0,
            [only] if only.start == 0 => only.end,
            parts => {
                let whole = folder.join(format!(".{JOURNAL_FILE}.partial"));
                let mut file = File::create(&whole)?;
                parts.iter().try_for_each(|part| copy(&path, part.clone(), &mut file))?;
                file.sync_all()?;
                std::fs::rename(whole, &path)?;
                return sync_folder(folder);
            }
        };
        let journal = OpenOptions::new().write(true).open(path)?;
        journal.set_len(end)?;
        journal.sync_all()
    }
}

/// Copies the journal to [`DAMAGED_FILE`].
fn copy_whole(folder: &Path) -> io::Result<()> {
    let partial = folder.join(format!(".{DAMAGED_FILE}.partial"));
    std::fs::copy(folder.join(JOURNAL_FILE), &partial)?;
    File::open(&partial)?.sync_all()?;
    std::fs::rename(partial, folder.join(DAMAGED_FILE))?;
    sync_folder(folder)
}

/// Appends a part of the journal to [`DISCARDED_FILE`].
fn move_aside(folder: &Path, part: Range<u64>) -> io::Result<()> {
    if part.is_empty() {
        return Ok(());
    }
    let mut file = OpenOptions::new().create(true).append(true).open(folder.join(DISCARDED_FILE))?;
    copy(&folder.join(JOURNAL_FILE), part, &mut file)?;
    file.sync_all()
}

fn copy(path: &Path, part: Range<u64>, into: &mut impl Write) -> io::Result<()> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(part.start))?;
    io::copy(&mut file.take(part.end - part.start), into).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::tests::step;
    use crate::journal::{line, read_journal};

    fn resumed(folder: &Path, iteration: u64) -> ResumedJournal {
        resume_journal(folder, "run", Iteration(iteration), RunState::default()).unwrap()
    }

    /// Returns a folder with this journal.
    fn folder(lines: &[&[u8]]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(JOURNAL_FILE), lines.concat()).unwrap();
        folder
    }

    /// Returns the lines of four steps, with another event after the second one.
    fn four_steps() -> Vec<u8> {
        let late = RunEvent::Loss { time_s: 2.5, worker: ata_types::WorkerId::from_slot(0), why: "it left".into() };
        [step(1), step(2), late, step(3), step(4)].iter().flat_map(line).collect()
    }

    /// Returns the content of a file; empty if it is missing.
    fn content(folder: &tempfile::TempDir, file: &str) -> Vec<u8> {
        std::fs::read(folder.path().join(file)).unwrap_or_default()
    }

    fn events(folder: &tempfile::TempDir) -> Vec<RunEvent> {
        let mut events = Vec::new();
        assert_eq!(read_journal(folder.path(), |event| events.push(event)).unwrap(), None);
        events
    }

    #[test]
    fn later_events_are_moved_aside() {
        let folder = folder(&[&four_steps(), b"{\"event\":\"st"]);
        assert_eq!(steps_after(folder.path(), Iteration(2)).unwrap(), 2);
        let line_bytes = line(&step(4)).len() as u64 + 20;
        let path = folder.path().join(JOURNAL_FILE);
        let tail = |lines: u64, after| steps_in_tail(&path, Iteration(after), lines * line_bytes).unwrap();
        assert_eq!((tail(2, 3), tail(2, 2), tail(9, 2)), (Some(1), None, Some(2)), "a tail may be too short");
        assert_eq!(resumed(folder.path(), 2).state.iterations, 2);
        assert_eq!(events(&folder), [step(1), step(2)]);
        let lines = |file| String::from_utf8(content(&folder, file)).unwrap().lines().count();
        assert_eq!((lines(METRICS_FILE), lines(DISCARDED_FILE)), (3, 3));
        assert_eq!(steps_after(folder.path(), Iteration(2)).unwrap(), 0, "nothing is left to truncate");
        assert_eq!(resumed(folder.path(), 2).state.iterations, 2);
    }

    /// After a machine crashed, a checkpoint may be newer than the journal.
    #[test]
    fn a_journal_that_ends_before_the_checkpoint_is_kept() {
        let folder = folder(&[&four_steps()]);
        assert_eq!(steps_after(folder.path(), Iteration(9)).unwrap(), 0);
        assert_eq!(resumed(folder.path(), 9).state.iterations, 4);
        assert!(!folder.path().join(DISCARDED_FILE).exists());
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(steps_after(empty.path(), Iteration(0)).unwrap(), 0);
        assert_eq!(resumed(empty.path(), 9).state.iterations, 0);
    }

    /// After a power loss, parts of the journal hold zeros or garbage. The readable lines are kept, and then form the whole journal.
    #[test]
    fn unreadable_lines_are_left_out() {
        for (damage, unreadable) in [
            (&b"nonsense\n"[..], 1),
            (&[b"\n\n", &[0; 3000][..], b"\n"].concat(), 1),
            (&[&vec![0; 20 << 20][..], b"\n{}\n"].concat(), 3),
        ] {
            let folder = folder(&[&line(&step(1)), damage, &line(&step(2)), &line(&step(3))]);
            let text = content(&folder, JOURNAL_FILE);
            assert_eq!(steps_after(folder.path(), Iteration(0)).unwrap(), 3);
            let found = resumed(folder.path(), 2);
            assert_eq!((found.state.iterations, found.unreadable), (2, unreadable));
            assert_eq!(events(&folder), [step(1), step(2)]);
            assert!(content(&folder, DAMAGED_FILE) == text);
            assert_eq!(content(&folder, DISCARDED_FILE), line(&step(3)));
            assert_eq!(resumed(folder.path(), 2).unreadable, 0);
        }
    }

    /// If the checkpoint's own step is lost, the journal is truncated at the beginning of the next iteration. A journal may also be lost
    /// wholly; if it has no newline, it is torn.
    #[test]
    fn the_step_itself_or_all_may_be_lost() {
        let step_lost = [&line(&step(1))[..], b"nonsense\n", &line(&step(3)), &line(&step(4))].concat();
        let all_lost = [&[0; 3000][..], b"\nnonsense\n"].concat();
        for (text, kept, unreadable) in [(step_lost, line(&step(1)), 1), (all_lost, Vec::new(), 2)] {
            let folder = folder(&[&text]);
            let found = resumed(folder.path(), 2);
            assert_eq!((found.state.iterations, found.unreadable), (u64::from(!kept.is_empty()), unreadable));
            assert_eq!((content(&folder, DAMAGED_FILE), content(&folder, JOURNAL_FILE)), (text, kept));
        }
        assert_eq!(resumed(folder(&[&[0; 3000]]).path(), 2).unreadable, 0);
    }

    #[test]
    fn the_journal_of_another_run_is_left_alone() {
        let run = br#"{"event":"run","version":3,"run_id":"another","policy":"uta","budget":4,"iterations":9,"task_batch":1,"seed":1,"model":"cnn"}"#;
        let folder = folder(&[run, b"\n", &four_steps()]);
        let text = content(&folder, JOURNAL_FILE);
        let error = resume_journal(folder.path(), "run", Iteration(2), RunState::default()).unwrap_err();
        assert!(matches!(&error, JournalError::OtherRun { found, .. } if found == "another"), "{error}");
        assert_eq!(content(&folder, JOURNAL_FILE), text);
        let resumed = resume_journal(folder.path(), "another", Iteration(2), RunState::default()).unwrap();
        assert_eq!((resumed.state.iterations, resumed.has_begun), (2, true));
    }

    #[test]
    fn a_run_that_begins_again_keeps_its_events_aside() {
        let folder = folder(&[&four_steps(), b"{\"event\":\"st"]);
        discard_journal(folder.path()).unwrap();
        discard_journal(folder.path()).unwrap();
        assert!(!folder.path().join(JOURNAL_FILE).exists());
        assert_eq!(content(&folder, DISCARDED_FILE), [&four_steps()[..], b"{\"event\":\"st"].concat());
    }
}
