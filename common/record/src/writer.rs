//! Writes a run's journal and metrics on threads of their own.
//!
//! One thread receives the events, calls the listeners and formats the lines; another writes them. So neither a slow disk nor a
//! slow listener delays the coordinator, and a slow disk does not delay the listeners either.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;

use crate::event::RunEvent;
use crate::folder::{JOURNAL_FILE, METRICS_FILE, sync_folder};
use crate::output::{FOLD_BYTES, Folding, Output, RecordError, thin};
use crate::state::RunState;
use crate::{journal, metrics};

/// The number of batches of events that may wait for the listeners.
const QUEUED_BATCHES: usize = 1 << 14;

/// The number of blocks of lines that may wait to be written, of up to [`GATHERED_BYTES`] each. A disk that stops for seconds has no
/// effect; one that stops for longer delays the run, which does not lose workers because of it.
const QUEUED_BLOCKS: usize = 1 << 12;

/// The bytes of lines that are gathered before they are written: a write costs as much as serializing a hundred events.
const GATHERED_BYTES: usize = 1 << 16;

/// The number of events of an iteration that wait for its step before they are applied to the state that checkpoints hold. Beyond it, that
/// state is ahead of its step, by tasks that are not counted before it.
const WAITING_EVENTS: usize = 1 << 16;

/// Receives every event of a run, in order. Events wait for the call to return, so a slow listener delays the others and the journal.
pub trait Listener: Send {
    /// Handles an event.
    fn on_event(&mut self, event: &RunEvent);
}

/// The listeners of a run.
pub type Listeners = Vec<Box<dyn Listener>>;

/// What happened in a run before its record is written.
#[derive(Default)]
pub struct PastEvents {
    /// The state that the run's events add up to.
    pub state: RunState,
    /// Whether the journal keeps the details of all iterations, so that its size is not bounded.
    pub is_full: bool,
    /// Whether the files are continued, after [`crate::resume_journal`]; missing ones are created.
    pub is_resumed: bool,
}

/// Writes the events of a run to its journal and metrics, and calls its listeners.
#[derive(Debug)]
pub struct Writer {
    batches: mpsc::SyncSender<Queued>,
    events: JoinHandle<()>,
    disk: JoinHandle<Result<(), RecordError>>,
}

enum Queued {
    Events(Vec<RunEvent>),
    /// The request for the state after the last step.
    State(mpsc::Sender<RunState>),
}

/// Lines that are written in one call.
#[derive(Default)]
struct Block {
    journal: Vec<u8>,
    metrics: Vec<u8>,
    /// The state after these lines, as a line by which older ones are replaced.
    folded: Option<Vec<u8>>,
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

/// The state after the last step.
struct SteppedState {
    state: RunState,
    /// The events since then.
    waiting: Vec<RunEvent>,
}

impl SteppedState {
    /// Returns whether the event is a step.
    fn add(&mut self, event: RunEvent) -> bool {
        let is_step = matches!(event, RunEvent::Step { .. });
        self.waiting.push(event);
        if is_step || self.waiting.len() >= WAITING_EVENTS {
            self.waiting.drain(..).for_each(|event| self.state.apply(&event));
        }
        is_step
    }
}

impl Writer {
    /// Creates `events.jsonl` and `metrics.csv` in a folder that has neither, or continues those of a resumed run. `failed` is called once
    /// if they can no longer be written; listeners still receive later events.
    pub fn open(
        folder: &Path,
        history: PastEvents,
        listeners: Listeners,
        failed: impl FnOnce(RecordError) + Send + 'static,
    ) -> Result<Self, RecordError> {
        let PastEvents { state, is_full, is_resumed } = history;
        let mut options = File::options();
        options.append(true).create(is_resumed).create_new(!is_resumed);
        let mut journal = Output::open(folder, JOURNAL_FILE, &options)?;
        let mut metrics = Output::open(folder, METRICS_FILE, &options)?;
        if metrics.complete_bytes == 0 {
            metrics.write(&mut metrics::HEADER.into())?;
        }
        sync_folder(folder).map_err(|cause| RecordError { path: folder.into(), cause: cause.into() })?;
        let unfolded_bytes = journal.complete_bytes;
        let (batches, received) = mpsc::sync_channel(QUEUED_BATCHES);
        let (blocks, gathered) = mpsc::sync_channel(QUEUED_BLOCKS);
        let write = move || {
            let result = write_blocks(&gathered, &mut journal, &mut metrics, is_full);
            // A sender that waits for room in the queue then continues, and can receive the report.
            drop(gathered);
            if let Err(error) = &result {
                failed(error.clone());
            }
            result
        };
        let start = |name: &str| std::thread::Builder::new().name(name.into());
        let disk = start("journal").spawn(write).expect("a thread can be started");
        let past = SteppedState { state: state.for_checkpoints(), waiting: Vec::new() };
        let mut formatter = Formatter { listeners, past, unfolded_bytes, is_full, blocks };
        let events = start("events").spawn(move || formatter.run(&received));
        Ok(Self { batches, events: events.expect("a thread can be started"), disk })
    }

    /// Queues events, in order.
    pub fn write(&self, events: Vec<RunEvent>) {
        // The thread ends before `self` does only if a listener panicked, which `finish` reports.
        drop(self.batches.send(Queued::Events(events)));
    }

    /// Returns where the state after the last step that is queued arrives: what a resumed run needs of the events so far.
    pub fn state(&self) -> mpsc::Receiver<RunState> {
        let (reply, state) = mpsc::channel();
        drop(self.batches.send(Queued::State(reply)));
        state
    }

    /// Waits until everything is written.
    pub fn finish(self) -> Result<(), RecordError> {
        drop(self.batches);
        self.events.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.disk.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

struct Formatter {
    listeners: Listeners,
    past: SteppedState,
    /// The number of bytes of lines since the last one with a state.
    unfolded_bytes: u64,
    is_full: bool,
    blocks: mpsc::SyncSender<Block>,
}

impl Formatter {
    /// Passes all events to the listeners, even when they can no longer be written.
    fn run(&mut self, batches: &mpsc::Receiver<Queued>) {
        let mut block = Block::default();
        while let Ok(first) = batches.recv() {
            let mut next = Some(first);
            // Other batches that wait are written in the same call.
            while let Some(queued) = next {
                match queued {
                    Queued::Events(events) => events.into_iter().for_each(|event| self.add(event, &mut block)),
                    // A checkpoint that no longer waits for it has been given up.
                    Queued::State(reply) => drop(reply.send(self.past.state.clone())),
                }
                next = if block.journal.len() < GATHERED_BYTES { batches.try_recv().ok() } else { None };
            }
            self.send(&mut block);
        }
    }

    fn add(&mut self, event: RunEvent, block: &mut Block) {
        self.listeners.iter_mut().for_each(|listener| listener.on_event(&event));
        block.add(&event);
        let is_step = self.past.add(event);
        if is_step && !self.is_full && self.unfolded_bytes + block.journal.len() as u64 >= FOLD_BYTES {
            let mut line = Vec::new();
            journal::write_line(&self.past.state.folded(), &mut line);
            block.folded = Some(line);
            self.send(block);
            self.unfolded_bytes = 0;
        }
    }

    fn send(&mut self, block: &mut Block) {
        self.unfolded_bytes += block.journal.len() as u64;
        // If the other thread has ended, it has already reported the reason.
        drop(self.blocks.send(std::mem::take(block)));
    }
}

fn write_blocks(
    blocks: &mpsc::Receiver<Block>,
    journal: &mut Output,
    metrics: &mut Output,
    is_full: bool,
) -> Result<(), RecordError> {
    let mut folding = Folding::default();
    while let Ok(mut block) = blocks.recv() {
        journal.write(&mut block.journal)?;
        metrics.write(&mut block.metrics)?;
        if block.is_saved {
            journal.sync()?;
            metrics.sync()?;
        }
        if let Some(line) = block.folded {
            folding.fold(journal, line);
        }
        if !is_full {
            thin(metrics);
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
        let writer =
            Writer::open(folder.path(), PastEvents::default(), Listeners::default(), |error| panic!("{error}"))
                .unwrap();
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
        let again = Writer::open(folder.path(), PastEvents::default(), Listeners::default(), drop).unwrap_err();
        assert_eq!(again.cause.kind(), std::io::ErrorKind::AlreadyExists);
    }
}
