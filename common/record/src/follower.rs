//! Reads a journal while the coordinator writes it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ata_types::Iteration;

use crate::event::RunEvent;
use crate::folder::JOURNAL_FILE;
use crate::journal::{JournalError, parse};

/// The number of bytes read at a time: more than the longest line, and little compared with the memory that a long run's events take.
const CHUNK_BYTES: u64 = 32 << 20;

/// The result of [`Follower::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollStatus {
    /// Everything that was written so far has been read.
    UpToDate,
    /// There is more to read.
    More,
    /// The journal is shorter than what has been read of it, because it was truncated or replaced.
    Truncated,
}

/// Reads each event of a run once, as it is written, even if the coordinator restarts meanwhile.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    /// The position of the next event.
    next: JournalPlace,
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
            steps: BTreeMap::new(),
            untruncated_bytes: None,
        }
    }

    /// Expects a new coordinator to truncate the journal after the step of `iteration`, or to start over after iteration 0. The
    /// journal had `bytes` bytes when the coordinator was started.
    pub fn resume_after(&mut self, iteration: Iteration, bytes: u64) {
        self.steps.split_off(&iteration.next());
        self.next = self.steps.get(&iteration).copied().unwrap_or_default();
        self.untruncated_bytes = (bytes > self.next.bytes).then_some(bytes);
    }

    /// Reads what was written since the last call, up to the most that is read at a time.
    pub fn poll(&mut self, mut on_event: impl FnMut(RunEvent)) -> Result<PollStatus, JournalError> {
        let text = match self.read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(PollStatus::UpToDate),
            text => text.map_err(|cause| JournalError::Io { path: self.path.clone(), cause })?,
        };
        let Some(text) = text else { return Ok(PollStatus::Truncated) };
        for line in text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            let number = self.next.lines + 1;
            let event =
                parse(line).map_err(|reason| JournalError::Line { path: self.path.clone(), line: number, reason })?;
            self.next = JournalPlace { bytes: self.next.bytes + line.len() as u64, lines: number };
            if let RunEvent::Step { iteration, .. } = event {
                self.steps.insert(iteration, self.next);
            }
            on_event(event);
        }
        Ok(if text.len() as u64 == CHUNK_BYTES { PollStatus::More } else { PollStatus::UpToDate })
    }

    /// Reads the next bytes; `None` if the journal is shorter than what has been read of it.
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
        file.seek(SeekFrom::Start(self.next.bytes))?;
        let mut text = Vec::new();
        file.take(CHUNK_BYTES).read_to_end(&mut text)?;
        Ok(Some(text))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::event::JOURNAL_VERSION;
    use crate::event::tests::step;
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
        let (time_s, version, policy) = (2.0, JOURNAL_VERSION, "uta".to_owned());
        let resume = RunEvent::Resume { time_s, version, epoch: 1, iteration: Iteration(2), policy, iterations: 9 };
        // The second process takes the same step again, because the first one ended before it saved it.
        for _ in 0..2 {
            assert_eq!(poll(Some(2)), [], "what is about to be truncated is not new");
            resume_journal(folder.path(), "run", Iteration(2), RunState::default()).unwrap();
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
}
