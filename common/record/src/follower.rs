//! Reads a journal while the coordinator writes it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ata_types::Iteration;

use crate::event::RunEvent;
use crate::folder::JOURNAL_FILE;
use crate::journal::{JournalError, MAX_LINE_BYTES, Unreadable, parse};

/// The number of bytes read at a time: no line is longer.
const CHUNK_BYTES: u64 = MAX_LINE_BYTES;

/// The result of [`Follower::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollStatus {
    /// Everything that was written so far has been read.
    UpToDate,
    /// There is more to read.
    More,
    /// The journal no longer holds what has been read of it, because it was truncated or replaced.
    Truncated,
}

/// Reads each event of a run once, as it is written, even if the coordinator restarts meanwhile.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    /// The position of the next event.
    next: JournalPlace,
    /// The line before that position, by which a journal is recognised that was replaced by a shorter one and has grown since.
    last: Vec<u8>,
    /// The positions at which the steps end, by iteration.
    steps: BTreeMap<Iteration, JournalPlace>,
    /// The length of the journal that a coordinator is about to truncate.
    untruncated_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct JournalPlace {
    bytes: u64,
    lines: u64,
}

impl Follower {
    /// Creates a reader for the journal in a run's folder, which need not exist yet.
    pub fn new(folder: &Path) -> Self {
        Self {
            path: folder.join(JOURNAL_FILE),
            next: JournalPlace::default(),
            last: Vec::new(),
            steps: BTreeMap::new(),
            untruncated_bytes: None,
        }
    }

    /// Expects a new coordinator to truncate the journal after the step of `iteration`, or to start over after iteration 0. The
    /// journal had `bytes` bytes when the coordinator was started.
    pub fn resume_after(&mut self, iteration: Iteration, bytes: u64) {
        self.steps.split_off(&iteration.next());
        self.next = self.steps.get(&iteration).copied().unwrap_or_default();
        self.last.clear();
        self.untruncated_bytes = (bytes > self.next.bytes).then_some(bytes);
    }

    /// Reads what was written since the last call, up to the most that is read at a time.
    pub fn poll(&mut self, mut on_event: impl FnMut(RunEvent)) -> Result<PollStatus, JournalError> {
        let text = match self.read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(PollStatus::UpToDate),
            text => text.map_err(|cause| JournalError::Io(self.path.clone(), cause))?,
        };
        let Some(text) = text else { return Ok(PollStatus::Truncated) };
        let start = self.next.bytes;
        for line in text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            let number = self.next.lines + 1;
            let event = match parse(line) {
                Err(Unreadable::Refused(reason)) => {
                    return Err(JournalError::Line(self.path.clone(), number, reason));
                }
                event => event.ok(),
            };
            self.next = JournalPlace { bytes: self.next.bytes + line.len() as u64, lines: number };
            line.clone_into(&mut self.last);
            let Some(event) = event else { continue };
            if let RunEvent::Step { iteration, .. } = event {
                self.steps.insert(iteration, self.next);
            }
            on_event(event);
        }
        let is_full = text.len() as u64 == CHUNK_BYTES;
        Ok(if is_full && self.next.bytes > start { PollStatus::More } else { PollStatus::UpToDate })
    }

    /// Reads the next bytes; `None` if the journal no longer holds what has been read of it.
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut file = File::open(&self.path)?;
        let bytes = file.metadata()?.len();
        if self.untruncated_bytes == Some(bytes) {
            // No process appends to it before it is truncated.
            return Ok(Some(Vec::new()));
        }
        self.untruncated_bytes = None;
        if bytes < self.next.bytes {
            return Ok(None);
        }
        let mut last = vec![0; self.last.len()];
        file.seek(SeekFrom::Start(self.next.bytes - last.len() as u64))?;
        file.read_exact(&mut last)?;
        if last != self.last {
            return Ok(None);
        }
        let mut text = Vec::new();
        file.take(CHUNK_BYTES).read_to_end(&mut text)?;
        Ok(Some(text))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use serde_json::json;

    use super::*;
    use crate::event::JOURNAL_VERSION;
    use crate::event::tests::{run, step};
    use crate::journal::line;
    use crate::resumption::resume_journal;
    use crate::state::RunState;

    #[test]
    fn events_are_read_once_over_resumptions() {
        let folder = tempfile::tempdir().unwrap();
        let append = |bytes: &[u8]| {
            let mut file = File::options().append(true).create(true).open(folder.path().join(JOURNAL_FILE)).unwrap();
            file.write_all(bytes).unwrap();
        };
        let bytes = || folder.path().join(JOURNAL_FILE).metadata().unwrap().len();
        let mut follower = Follower::new(folder.path());
        let mut poll = |resumed: Option<u64>| {
            if let Some(iteration) = resumed {
                follower.resume_after(Iteration(iteration), bytes());
            }
            let mut events = Vec::new();
            follower.poll(|event| events.push(event)).unwrap();
            events
        };
        assert_eq!(poll(None), [], "there is no journal yet");
        append(&[line(&step(1)), line(&step(2)), line(&step(3))].concat());
        append(&line(&step(4))[..10]);
        assert_eq!(poll(None), [step(1), step(2), step(3)], "a line is read when it is complete");
        let resume = json!({"event": "resume", "time_s": 2.0, "version": JOURNAL_VERSION, "epoch": 1, "iteration": 2,
                            "policy": "uta", "iterations": 9});
        let resume: RunEvent = serde_json::from_value(resume).unwrap();
        // The second process takes the same step again, because the first one ended before it saved it.
        for _ in 0..2 {
            assert_eq!(poll(Some(2)), [], "what is about to be truncated is not new");
            resume_journal(folder.path(), &run("run"), Iteration(2), &RunState::default()).unwrap();
            assert_eq!(poll(None), []);
            append(&[line(&resume), line(&step(3))].concat());
            assert_eq!(poll(None), [resume.clone(), step(3)]);
        }
        append(&line(&step(4)));
        assert_eq!(poll(None), [step(4)]);
        assert_eq!(poll(Some(4)), []);
        append(&line(&resume));
        assert_eq!(poll(None), [resume], "nothing had to be truncated");
    }

    /// A journal whose older part was folded is another file, which may be longer than what was read of the former one.
    #[test]
    fn a_journal_that_was_replaced_is_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(JOURNAL_FILE);
        let mut follower = Follower::new(folder.path());
        let mut poll = |steps: &[u64]| {
            std::fs::write(&path, steps.iter().flat_map(|at| line(&step(*at))).collect::<Vec<u8>>()).unwrap();
            follower.poll(drop).unwrap()
        };
        assert_eq!(poll(&[1, 2]), PollStatus::UpToDate);
        assert_eq!(poll(&[1, 2, 3]), PollStatus::UpToDate);
        assert_eq!(poll(&[10, 20, 30, 40]), PollStatus::Truncated);
    }
}
