//! Writes a run's journal and metrics on threads of their own.
//!
//! One thread receives the events, calls the listeners and formats the lines; another writes them. So neither a slow disk nor a
//! slow listener delays the coordinator, and a slow disk does not delay the listeners either.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use crate::event::RunEvent;
use crate::folder::{JOURNAL_FILE, METRICS_FILE, sync_folder};
use crate::listener::Listeners;
use crate::{journal, metrics};

/// The number of batches of events that may wait for the listeners.
const QUEUED_BATCHES: usize = 1 << 14;

/// The number of blocks of lines that may wait to be written, of up to [`GATHERED_BYTES`] each. A disk that stops for seconds has no
/// effect; one that stops for longer delays the run, which does not lose workers because of it.
const QUEUED_BLOCKS: usize = 1 << 12;

/// The bytes of lines that are gathered before they are written: a write costs as much as serializing a hundred events.
const GATHERED_BYTES: usize = 1 << 16;

/// The error of a file of the run that cannot be written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot write {path}: {cause}")]
pub struct RecordError {
    /// The file.
    pub path: PathBuf,
    /// The system's error.
    pub cause: Arc<std::io::Error>,
}

/// Writes the events of a run to its journal and metrics, and calls its listeners.
#[derive(Debug)]
pub struct Writer {
    batches: mpsc::SyncSender<Vec<RunEvent>>,
    events: JoinHandle<()>,
    disk: JoinHandle<Result<(), RecordError>>,
}

/// Lines that are written in one call.
#[derive(Default)]
struct Block {
    journal: Vec<u8>,
    metrics: Vec<u8>,
    /// Whether a checkpoint is among the events: then the lines must be durable, too.
    is_saved: bool,
}

impl Block {
    fn add(&mut self, event: &RunEvent) {
        journal::write_line(event, &mut self.journal);
        self.metrics.extend(metrics::line(event).into_iter().flat_map(String::into_bytes));
        self.is_saved |= matches!(event, RunEvent::Checkpoint { .. });
    }
}

struct JournalOutput {
    path: PathBuf,
    file: File,
    /// The number of bytes of complete lines.
    complete_bytes: u64,
}

impl JournalOutput {
    fn open(folder: &Path, name: &str, options: &OpenOptions) -> Result<Self, RecordError> {
        let path = folder.join(name);
        match options.open(&path).and_then(|file| Ok((file.metadata()?.len(), file))) {
            Ok((complete_bytes, file)) => Ok(Self { path, file, complete_bytes }),
            Err(cause) => Err(RecordError { path, cause: cause.into() }),
        }
    }

    /// Writes complete lines in one call, and clears them. If that fails halfway, as on a full disk, it removes all of them.
    fn write(&mut self, lines: &mut Vec<u8>) -> Result<(), RecordError> {
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

    /// Makes what was written durable.
    fn sync(&self) -> Result<(), RecordError> {
        self.file.sync_data().map_err(|cause| RecordError { path: self.path.clone(), cause: cause.into() })
    }
}

impl Writer {
    /// Creates `events.jsonl` and `metrics.csv` in a folder that has neither. `failed` is called once if they can no
    /// longer be written; listeners still receive later events.
    pub fn create(
        folder: &Path,
        listeners: Listeners,
        failed: impl FnOnce(RecordError) + Send + 'static,
    ) -> Result<Self, RecordError> {
        Self::open(folder, File::options().write(true).create_new(true), listeners, failed)
    }

    /// Continues the files of a run after [`crate::resume_journal`]; missing files are created.
    pub fn append(
        folder: &Path,
        listeners: Listeners,
        failed: impl FnOnce(RecordError) + Send + 'static,
    ) -> Result<Self, RecordError> {
        Self::open(folder, File::options().append(true).create(true), listeners, failed)
    }

    fn open(
        folder: &Path,
        options: &OpenOptions,
        listeners: Listeners,
        failed: impl FnOnce(RecordError) + Send + 'static,
    ) -> Result<Self, RecordError> {
        let mut journal = JournalOutput::open(folder, JOURNAL_FILE, options)?;
        let mut metrics = JournalOutput::open(folder, METRICS_FILE, options)?;
        if metrics.complete_bytes == 0 {
            metrics.write(&mut metrics::HEADER.into())?;
        }
        sync_folder(folder).map_err(|cause| RecordError { path: folder.into(), cause: cause.into() })?;
        let (batches, received) = mpsc::sync_channel::<Vec<RunEvent>>(QUEUED_BATCHES);
        let (blocks, gathered) = mpsc::sync_channel::<Block>(QUEUED_BLOCKS);
        let write = move || {
            let result = write_blocks(&gathered, &mut journal, &mut metrics);
            // A sender that waits for room in the queue then continues, and can receive the report.
            drop(gathered);
            if let Err(error) = &result {
                failed(error.clone());
            }
            result
        };
        let start = |name: &str| std::thread::Builder::new().name(name.into());
        let disk = start("journal").spawn(write).expect("a thread can be started");
        let events = start("events").spawn(move || format_events(&received, listeners, &blocks));
        Ok(Self { batches, events: events.expect("a thread can be started"), disk })
    }

    /// Queues events, in order.
    pub fn write(&self, events: Vec<RunEvent>) {
        // The thread ends before `self` does only if a listener panicked, which `finish` reports.
        drop(self.batches.send(events));
    }

    /// Waits until everything is written.
    pub fn finish(self) -> Result<(), RecordError> {
        drop(self.batches);
        self.events.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.disk.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Passes all events to the listeners, even when they can no longer be written.
fn format_events(batches: &mpsc::Receiver<Vec<RunEvent>>, mut listeners: Listeners, blocks: &mpsc::SyncSender<Block>) {
    while let Ok(first) = batches.recv() {
        let (mut batch, mut block) = (Some(first), Block::default());
        // Other batches that wait are written in the same call.
        while let Some(events) = batch {
            for event in events {
                listeners.on_event(&event);
                block.add(&event);
            }
            batch = if block.journal.len() < GATHERED_BYTES { batches.try_recv().ok() } else { None };
        }
        // If the other thread has ended, it has already reported the reason.
        drop(blocks.send(block));
    }
}

fn write_blocks(
    blocks: &mpsc::Receiver<Block>,
    journal: &mut JournalOutput,
    metrics: &mut JournalOutput,
) -> Result<(), RecordError> {
    while let Ok(mut block) = blocks.recv() {
        journal.write(&mut block.journal)?;
        metrics.write(&mut block.metrics)?;
        if block.is_saved {
            journal.sync()?;
            metrics.sync()?;
        }
    }
    journal.sync()?;
    metrics.sync()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::tests::step;
    use crate::journal::read_journal;
    use crate::state::RunState;

    #[test]
    fn journal_and_metrics_hold_the_events() {
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
    fn a_full_disk_is_reported() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut output = JournalOutput { path: "journal".into(), file: full, complete_bytes: 0 };
        let error = output.write(&mut b"a line\n".to_vec()).unwrap_err();
        assert_eq!(error.cause.kind(), std::io::ErrorKind::StorageFull);
        assert!(error.to_string().starts_with("cannot write journal: "));
    }
}
