//! Reads a journal while the coordinator writes it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

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

/// Reads each event of a run once, as it is written.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    /// The position of the next event.
    position: u64,
    /// The number of lines before it.
    lines: u64,
    /// The line before that position, by which a journal is recognised that was replaced by a shorter one and has grown since.
    last: Vec<u8>,
}

impl Follower {
    /// Creates a reader for the journal in a run's folder, which need not exist yet.
    pub fn new(folder: &Path) -> Self {
        Self { path: folder.join(JOURNAL_FILE), position: 0, lines: 0, last: Vec::new() }
    }

    /// Reads what was written since the last call, up to the most that is read at a time.
    pub fn poll(&mut self, mut on_event: impl FnMut(RunEvent)) -> Result<PollStatus, JournalError> {
        let text = match self.read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(PollStatus::UpToDate),
            text => text.map_err(|cause| JournalError::Io(self.path.clone(), cause))?,
        };
        let Some(text) = text else { return Ok(PollStatus::Truncated) };
        let start = self.position;
        for line in text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            self.lines += 1;
            match parse(line) {
                Err(Unreadable::Refused(reason)) => {
                    return Err(JournalError::Line(self.path.clone(), self.lines, reason));
                }
                event => event.into_iter().for_each(&mut on_event),
            }
            self.position += line.len() as u64;
            line.clone_into(&mut self.last);
        }
        let is_full = text.len() as u64 == CHUNK_BYTES;
        Ok(if is_full && self.position > start { PollStatus::More } else { PollStatus::UpToDate })
    }

    /// Reads the next bytes; `None` if the journal no longer holds what has been read of it.
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        let mut file = File::open(&self.path)?;
        if file.metadata()?.len() < self.position {
            return Ok(None);
        }
        let mut last = vec![0; self.last.len()];
        file.seek(SeekFrom::Start(self.position - last.len() as u64))?;
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

    use super::*;
    use crate::event::tests::step;
    use crate::journal::line;

    #[test]
    fn a_line_is_read_once_and_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let append = |bytes: &[u8]| {
            let mut file = File::options().append(true).create(true).open(folder.path().join(JOURNAL_FILE)).unwrap();
            file.write_all(bytes).unwrap();
        };
        let mut follower = Follower::new(folder.path());
        let mut poll = || {
            let mut events = Vec::new();
            assert_eq!(follower.poll(|event| events.push(event)).unwrap(), PollStatus::UpToDate);
            events
        };
        assert_eq!(poll(), [], "there is no journal yet");
        append(&[line(&step(1)), line(&step(2)), line(&step(3))[..10].to_vec()].concat());
        assert_eq!(poll(), [step(1), step(2)]);
        append(&line(&step(3))[10..]);
        assert_eq!(poll(), [step(3)]);
        assert_eq!(poll(), []);
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
