//! Publishes events: to the journal and the metrics on disk, and to watchers of the run's state.

use std::path::Path;

use ata_record::{Listeners, RecordError, RunEvent, RunState, Writer};
use ata_scheduler::LeaseTime;
use ata_types::{Lease, TaskOutcome, WorkerId};
use ata_wire::LeaseTimes;
use tokio::sync::watch;

pub(crate) struct Publisher {
    writer: Writer,
    state: watch::Sender<RunState>,
}

impl Publisher {
    /// Creates the files in a folder that has none of them. `failed` is called once if they can no longer be written.
    pub(crate) fn create(
        folder: &Path,
        state: watch::Sender<RunState>,
        listeners: Listeners,
        failed: impl FnOnce(RecordError) + Send + 'static,
    ) -> Result<Self, RecordError> {
        Ok(Self { writer: Writer::create(folder, listeners, failed)?, state })
    }

    /// Continues the files of a run that is resumed, whose events so far add up to `past`.
    pub(crate) fn append(
        folder: &Path,
        past: RunState,
        state: watch::Sender<RunState>,
        listeners: Listeners,
        failed: impl FnOnce(RecordError) + Send + 'static,
    ) -> Result<Self, RecordError> {
        let writer = Writer::append(folder, listeners, failed)?;
        state.send_replace(past);
        Ok(Self { writer, state })
    }

    pub(crate) fn publish(&self, event: RunEvent) {
        self.publish_all(vec![event]);
    }

    fn publish_all(&self, events: Vec<RunEvent>) {
        self.state.send_if_modified(|state| {
            for event in &events {
                state.apply(event);
            }
            // Watchers are not notified of single tasks: their iteration's step follows.
            events.iter().any(|event| !matches!(event, RunEvent::Task { .. }))
        });
        self.writer.write(events);
    }

    /// Publishes how a lease ended; `times` is what its worker reported, if it was computed. Of a batch, each task is recorded
    /// with an equal share.
    pub(crate) fn lease_ended(
        &self,
        now_s: f64,
        worker: WorkerId,
        lease: &Lease,
        (outcome, time): (TaskOutcome, LeaseTime),
        times: &LeaseTimes,
    ) {
        let LeaseTimes { busy_s, outlasted } = times;
        let (factor, overhead_s, elapsed_s) = match time {
            LeaseTime::Reported { factor, overhead_s } => (Some(factor), overhead_s, None),
            LeaseTime::Censored { elapsed_s } => (None, None, elapsed_s),
        };
        let count = lease.tasks.count as usize;
        let share = if busy_s.len() == 1 { 1.0 / count as f64 } else { 1.0 };
        let busy_of = |at: usize| busy_s.get(if busy_s.len() == 1 { 0 } else { at });
        let last = count - 1;
        let task = |(at, task): (usize, u64)| RunEvent::Task {
            iteration: lease.iteration,
            task,
            worker,
            lease: lease.id,
            time_s: now_s,
            busy_s: factor.zip(busy_of(at)).map(|(factor, busy_s)| factor * share * busy_s),
            // It is not known how many of the tasks the worker had begun, but it had begun the first.
            censored_s: elapsed_s.filter(|_| at == 0),
            overhead_s: overhead_s.filter(|_| at == last),
            outlasted: if at == last { (*outlasted).min(lease.tasks.count) } else { 0 },
            outcome,
        };
        self.publish_all(lease.tasks.indices().enumerate().map(task).collect());
    }

    /// Waits until everything is written.
    pub(crate) fn finish(self) -> (RunState, Result<(), RecordError>) {
        let written = self.writer.finish();
        (self.state.borrow().clone(), written)
    }
}
