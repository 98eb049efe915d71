//! The files of a run's record, which are appended to, and whose older part is replaced so that they stay small.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::event::RunEvent;
use crate::folder::{folder_of, replace, sync_folder};
use crate::journal::{MAX_LINE_BYTES, parse};
use crate::metrics;

/// The number of bytes of events after which older ones are replaced by the state that they add up to. A journal has the details of at
/// least this much and, as it is rewritten only after as much again, is at most three times as long: less than a disk lacks, and more than
/// two minutes of the fastest runs. With twice as much, `ata status` of a folder would take 2 s.
pub(crate) const FOLD_BYTES: u64 = 32 << 20;

/// The size in bytes from which the older half of `metrics.csv` becomes lines per minute: 150,000 iterations, which is what spreadsheets
/// open, or half a year of minutes.
const METRICS_BYTES: u64 = 16 << 20;

/// The error of a file of the run that cannot be written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot write {path}: {cause}")]
pub struct RecordError {
    /// The file.
    pub path: PathBuf,
    /// The system's error.
    pub cause: Arc<io::Error>,
}

/// A file of lines that is appended to.
pub(crate) struct Output {
    path: PathBuf,
    file: File,
    /// The number of bytes of complete lines.
    pub(crate) complete_bytes: u64,
}

impl Output {
    pub(crate) fn open(folder: &Path, name: &str, options: &OpenOptions) -> Result<Self, RecordError> {
        let path = folder.join(name);
        match options.open(&path).and_then(|file| Ok((file.metadata()?.len(), file))) {
            Ok((complete_bytes, file)) => Ok(Self { path, file, complete_bytes }),
            Err(cause) => Err(RecordError { path, cause: cause.into() }),
        }
    }

    /// Writes complete lines in one call, and clears them. If that fails halfway, as on a full disk, it removes all of them.
    pub(crate) fn write(&mut self, lines: &mut Vec<u8>) -> Result<(), RecordError> {
        match self.file.write_all(lines) {
            Ok(()) => {
                self.complete_bytes += lines.len() as u64;
                lines.clear();
                Ok(())
            }
            Err(cause) => {
                // If even this fails, the last line is torn, which readers tolerate.
                drop(self.file.set_len(self.complete_bytes));
                Err(RecordError { path: self.path.clone(), cause: cause.into() })
            }
        }
    }

    pub(crate) fn sync(&self) -> Result<(), RecordError> {
        self.file.sync_data().map_err(|cause| RecordError { path: self.path.clone(), cause: cause.into() })
    }

    /// Replaces everything before byte `from` by `head` or, if the disk has no room for the new file, nothing.
    fn replace_before(&mut self, from: u64, head: &[u8]) -> io::Result<()> {
        let rest_bytes = self.complete_bytes - from;
        self.file = replace(&self.path, |file| {
            let mut old = File::open(&self.path)?;
            file.write_all(head)?;
            old.seek(SeekFrom::Start(from))?;
            io::copy(&mut old.take(rest_bytes), file).map(drop)
        })?;
        self.complete_bytes = head.len() as u64 + rest_bytes;
        sync_folder(folder_of(&self.path))
    }
}

/// Replaces the older part of the journal by the state that it adds up to.
#[derive(Default)]
pub(crate) struct Folding {
    /// The line with the state at an earlier position, and the position.
    earlier: Option<(u64, Vec<u8>)>,
}

impl Folding {
    /// Takes the line with the state at the end of the journal, and replaces what is before the position of the line before it.
    pub(crate) fn fold(&mut self, journal: &mut Output, line: Vec<u8>) {
        let here = (journal.complete_bytes, line);
        // Processes that never write enough for two of them still keep the journal small.
        let is_long = journal.complete_bytes >= 2 * FOLD_BYTES;
        let earlier = self.earlier.take().or_else(|| is_long.then(|| here.clone()));
        if let Some((from, state)) = earlier {
            let head = [first_line(&journal.path), state].concat();
            // Otherwise the disk is full, and the next attempt is made after as many bytes again.
            drop(journal.replace_before(from, &head));
        }
        self.earlier = Some((journal.complete_bytes, here.1));
    }
}

/// Returns the journal's first line, which describes the run; empty if it is damaged.
fn first_line(journal: &Path) -> Vec<u8> {
    let mut line = Vec::new();
    let read =
        File::open(journal).and_then(|file| BufReader::new(file).take(MAX_LINE_BYTES).read_until(b'\n', &mut line));
    let is_run = read.is_ok() && matches!(parse(&line), Ok(RunEvent::Run { .. }));
    if is_run { line } else { Vec::new() }
}

/// Shortens `metrics.csv` if it is long.
pub(crate) fn thin(table: &mut Output) {
    if table.complete_bytes < METRICS_BYTES {
        return;
    }
    if let Ok(text) = std::fs::read(&table.path) {
        let thinned = metrics::thin(&String::from_utf8_lossy(&text));
        // As in `Folding::fold`.
        drop(table.replace_before(table.complete_bytes, thinned.as_bytes()));
    }
}

/// `/dev/full` accepts nothing.
#[cfg(all(test, target_os = "linux"))]
#[test]
fn a_full_disk_is_reported() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut output = Output { path: "journal".into(), file: full, complete_bytes: 0 };
    let error = output.write(&mut b"a line\n".to_vec()).unwrap_err();
    assert_eq!(error.cause.kind(), io::ErrorKind::StorageFull);
    assert!(error.to_string().starts_with("cannot write journal: "));
}
