//! What happened, told to everybody: the journal and the metrics on disk, and the state of the run to those who watch it.

use std::path::Path;

use ata_record::{Fate, RecordError, RunEvent, RunState, Writer};
use ata_scheduler::{Lease, Outcome, WorkerId};
use tokio::sync::watch;

pub(crate) struct Publisher {
    writer: Writer,
    state: watch::Sender<RunState>,
}

impl Publisher {
    /// Starts the files in a folder that holds none of them. `failed` is called once if they cannot be written any more.
    pub(crate) fn create(
        folder: &Path,
        state: watch::Sender<RunState>,
        failed: impl FnOnce(RecordError) + Send + 'static,
    ) -> Result<Self, RecordError> {
        Ok(Self { writer: Writer::create(folder, failed)?, state })
    }

    pub(crate) fn publish(&self, event: RunEvent) {
        self.publish_all(vec![event]);
    }

    fn publish_all(&self, events: Vec<RunEvent>) {
        self.state.send_if_modified(|state| {
            for event in &events {
                state.apply(event);
            }
            // Single tasks are no news: their iteration's step follows.
            events.iter().any(|event| !matches!(event, RunEvent::Task { .. }))
        });
        self.writer.write(events);
    }

    /// How a lease ended; `busy_s` holds the reported seconds of each task, if it was computed.
    pub(crate) fn lease_ended(&self, now_s: f64, worker: WorkerId, lease: &Lease, outcome: Outcome, busy_s: &[f64]) {
        let (fate, timing, cut_s) = match outcome {
            Outcome::Applied(timing) => (Fate::Applied, Some(timing), None),
            Outcome::Ignored(timing) => (Fate::Ignored, Some(timing), None),
            Outcome::Cancelled(cut_s) => (Fate::Cancelled, None, cut_s),
            Outcome::Lost(cut_s) => (Fate::Lost, None, cut_s),
            Outcome::Failed(cut_s) => (Fate::Failed, None, cut_s),
        };
        let last = lease.tasks.count as usize - 1;
        let task = |(at, task): (usize, u64)| RunEvent::Task {
            iteration: lease.iteration,
            task,
            worker: worker.number(),
            lease: Some(lease.id.0),
            time_s: Some(now_s),
            busy_s: timing.zip(busy_s.get(at)).map(|(timing, busy_s)| timing.factor * busy_s),
            // Which of its tasks its worker was at is not known; it began with the first.
            cut_s: cut_s.filter(|_| at == 0),
            overhead_s: timing.filter(|_| at == last).and_then(|timing| timing.overhead_s),
            outcome: fate,
        };
        self.publish_all(lease.tasks.indices().enumerate().map(task).collect());
    }

    /// Waits until everything is written.
    pub(crate) fn finish(self) -> (RunState, Result<(), RecordError>) {
        let written = self.writer.finish();
        (self.state.borrow().clone(), written)
    }
}
