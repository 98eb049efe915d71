//! The thread that writes a run's journal and metrics, so that a slow disk does not hold up the coordinator.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use crate::event::RunEvent;
use crate::folder::{JOURNAL_FILE, METRICS_FILE, sync_folder};
use crate::listener::Listeners;
use crate::{journal, metrics};

/// Batches of events that may wait to be written. A disk that stops for seconds goes unnoticed; one that stops for
/// longer holds up the run, which loses no worker by that.
const QUEUED_BATCHES: usize = 1 << 14;

/// Lines that are gathered before they are written, in bytes: a write costs as much as serializing a hundred events.
const GATHERED_BYTES: usize = 1 << 16;

/// A file of the run cannot be written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot write {path}: {cause}")]
pub struct RecordError {
    /// The file.
    pub path: PathBuf,
    /// What the system says.
    pub cause: Arc<std::io::Error>,
}

/// Writes the events of a run to its journal and metrics, and tells its listeners.
#[derive(Debug)]
pub struct Writer {
    batches: mpsc::SyncSender<Vec<RunEvent>>,
    thread: JoinHandle<Result<(), RecordError>>,
}

struct Output {
    path: PathBuf,
    file: File,
    /// Bytes that are whole lines.
    whole_bytes: u64,
}

impl Output {
    fn create(folder: &Path, name: &str) -> Result<Self, RecordError> {
        let path = folder.join(name);
        match File::create_new(&path) {
            Ok(file) => Ok(Self { path, file, whole_bytes: 0 }),
            Err(cause) => Err(RecordError { path, cause: cause.into() }),
        }
    }

    fn append(folder: &Path, name: &str) -> Result<Self, RecordError> {
        let path = folder.join(name);
        let opened = File::options().append(true).create(true).open(&path);
        match opened.and_then(|file| Ok((file.metadata()?.len(), file))) {
            Ok((whole_bytes, file)) => Ok(Self { path, file, whole_bytes }),
            Err(cause) => Err(RecordError { path, cause: cause.into() }),
        }
    }

    /// Writes whole lines in one call, and clears them. If that fails halfway, as on a full disk, all of them are removed.
    fn write(&mut self, lines: &mut Vec<u8>) -> Result<(), RecordError> {
        match self.file.write_all(lines) {
            Ok(()) => {
                self.whole_bytes += lines.len() as u64;
                lines.clear();
                Ok(())
            }
            Err(cause) => {
                // If even this fails, the last line is torn, which readers tolerate.
                drop(self.file.set_len(self.whole_bytes));
                Err(RecordError { path: self.path.clone(), cause: cause.into() })
            }
        }
    }

    /// Makes what was written durable.
    fn sync(&self) -> Result<(), RecordError> {
        self.file.sync_data().map_err(|cause| RecordError { path: self.path.clone(), cause: cause.into() })
    }
}

impl Writer {
    /// Creates `events.jsonl` and `metrics.csv` in a folder that holds neither. `failed` is called once if they can no
    /// longer be written.
    pub fn create(
        folder: &Path,
        listeners: Listeners,
        failed: impl FnOnce(RecordError) + Send + 'static,
    ) -> Result<Self, RecordError> {
        let journal = Output::create(folder, JOURNAL_FILE)?;
        let mut metrics = Output::create(folder, METRICS_FILE)?;
        metrics.write(&mut metrics::HEADER.into())?;
        sync_folder(folder).map_err(|cause| RecordError { path: folder.into(), cause: cause.into() })?;
        Ok(Self::start(journal, metrics, listeners, failed))
    }

    /// Continues the files of a run that is resumed, after [`crate::resume_journal`]; missing ones are created.
    pub fn append(
        folder: &Path,
        listeners: Listeners,
        failed: impl FnOnce(RecordError) + Send + 'static,
    ) -> Result<Self, RecordError> {
        let journal = Output::append(folder, JOURNAL_FILE)?;
        let mut metrics = Output::append(folder, METRICS_FILE)?;
        if metrics.whole_bytes == 0 {
            metrics.write(&mut metrics::HEADER.into())?;
        }
        Ok(Self::start(journal, metrics, listeners, failed))
    }

    fn start(
        mut journal: Output,
        mut metrics: Output,
        mut listeners: Listeners,
        failed: impl FnOnce(RecordError) + Send + 'static,
    ) -> Self {
        let (batches, received) = mpsc::sync_channel::<Vec<RunEvent>>(QUEUED_BATCHES);
        let mut write = move || -> Result<(), RecordError> {
            let (mut lines, mut rows) = (Vec::new(), Vec::new());
            while let Ok(first) = received.recv() {
                let (mut batch, mut is_saved) = (Some(first), false);
                // What else is waiting is written in the same call.
                while let Some(events) = batch {
                    for event in events {
                        listeners.hear(&event);
                        journal::write_line(&event, &mut lines);
                        rows.extend(metrics::line(&event).into_iter().flat_map(String::into_bytes));
                        is_saved |= matches!(event, RunEvent::Checkpoint { .. });
                    }
                    batch = if lines.len() < GATHERED_BYTES { received.try_recv().ok() } else { None };
                }
                journal.write(&mut lines)?;
                metrics.write(&mut rows)?;
                if is_saved {
                    journal.sync()?;
                    metrics.sync()?;
                }
            }
            journal.sync()?;
            metrics.sync()
        };
        let thread = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || {
                let result = write();
                // A sender that waits for room in the queue goes on, and can then take the report.
                drop(write);
                if let Err(error) = &result {
                    failed(error.clone());
                }
                result
            })
            .expect("a thread can be started");
        Self { batches, thread }
    }

    /// Queues events, in order.
    pub fn write(&self, events: Vec<RunEvent>) {
        // If the thread has ended, it has reported why.
        drop(self.batches.send(events));
    }

    /// Waits until everything is written.
    pub fn finish(self) -> Result<(), RecordError> {
        drop(self.batches);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::tests::step;
    use crate::journal::read_journal;
    use crate::state::RunState;

    #[test]
    fn journal_and_metrics_hold_what_was_told() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::create(folder.path(), Listeners::default(), |error| panic!("{error}")).unwrap();
        writer.write(vec![
            step(1),
            RunEvent::Loss { time_s: 1.5, worker: ata_types::WorkerId::from_slot(0), why: "it left".into() },
        ]);
        writer.write(vec![step(2)]);
        writer.finish().unwrap();
        let mut state = RunState::default();
        assert_eq!(read_journal(folder.path(), |event| state.apply(&event)).unwrap(), None);
        assert_eq!(state.iterations, 2);
        let metrics = std::fs::read_to_string(folder.path().join(METRICS_FILE)).unwrap();
        assert_eq!(
            metrics.lines().collect::<Vec<_>>()[1..],
            ["1,1,0.5,1,2,4,0,2,3,,,0.25,", "2,2,0.5,1,2,4,0,2,3,,,0.25,"]
        );
        let again = Writer::create(folder.path(), Listeners::default(), drop).unwrap_err();
        assert_eq!(again.cause.kind(), std::io::ErrorKind::AlreadyExists);
    }

    /// `/dev/full` accepts nothing.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_told() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut output = Output { path: "journal".into(), file: full, whole_bytes: 0 };
        let error = output.write(&mut b"a line\n".to_vec()).unwrap_err();
        assert_eq!(error.cause.kind(), std::io::ErrorKind::StorageFull);
        assert!(error.to_string().starts_with("cannot write journal: "));
    }
}
