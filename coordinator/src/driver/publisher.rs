//! Publishes events to the journal and the metrics on disk, to the run's state, and to other listeners.

use std::sync::mpsc;

use ata_record::{Listener, PastEvents, RecordError, RunEvent, RunState, Writer};
use ata_scheduler::LeaseTime;
use ata_types::{Lease, TaskOutcome, WorkerId};
use ata_wire::LeaseTimes;
use tokio::sync::watch;

use crate::config::RunConfig;

pub(crate) struct Publisher {
    writer: Writer,
    state: watch::Receiver<RunState>,
}

/// Applies events to the run's state, which can be watched.
struct StateFold(watch::Sender<RunState>);

impl Listener for StateFold {
    fn on_event(&mut self, event: &RunEvent) {
        self.0.send_if_modified(|state| {
            state.apply(event);
            // Watchers are not notified of single tasks, since the step of their iteration follows.
            !matches!(event, RunEvent::Task { .. })
        });
    }
}

impl Publisher {
    /// Creates the files in the run's folder, where none of them may exist; or appends to those of a resumed run, whose events add up to
    /// `past`. `failed` is called once if they can no longer be written.
    pub(crate) fn open(
        run: &mut RunConfig,
        past: RunState,
        is_resumed: bool,
        state: watch::Sender<RunState>,
        failed: Box<dyn FnOnce(RecordError) + Send>,
    ) -> Result<Self, RecordError> {
        let watched = state.subscribe();
        state.send_replace(past.clone());
        let mut listeners = std::mem::take(&mut run.listeners);
        listeners.push(Box::new(StateFold(state)));
        let history = PastEvents { state: past, is_full: run.keeps_all_events, is_resumed };
        Ok(Self { writer: Writer::open(&run.folder, history, listeners, failed)?, state: watched })
    }

    pub(crate) fn publish(&self, event: RunEvent) {
        self.writer.write(vec![event]);
    }

    /// Publishes the end of a lease, with the engine's view of its times, and the times that the worker reported if it computed the lease.
    /// Each task of a batch is recorded with an equal share of the batch's time.
    pub(crate) fn lease_ended(
        &self,
        now_s: f64,
        worker: WorkerId,
        lease: &Lease,
        outcome: TaskOutcome,
        time: LeaseTime,
        times: Option<&LeaseTimes>,
    ) {
        let (factor, overhead_s, elapsed_s) = match time {
            LeaseTime::Reported { factor, overhead_s } => (Some(factor), overhead_s, None),
            LeaseTime::Censored { elapsed_s } => (None, None, elapsed_s),
        };
        let busy_s = times.map_or(&[][..], |times| &times.busy_s);
        let outlasted = times.map_or(0, |times| times.outlasted.min(lease.tasks.count));
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
            // Only the first task is known to have been started by the worker.
            censored_s: elapsed_s.filter(|_| at == 0),
            overhead_s: overhead_s.filter(|_| at == last),
            outlasted: if at == last { outlasted } else { 0 },
            ahead: times.is_some_and(|times| times.ahead),
            outcome,
        };
        self.writer.write(lease.tasks.indices().enumerate().map(task).collect());
    }

    /// Returns where the state after the last published step arrives, for its checkpoint.
    pub(crate) fn state(&self) -> mpsc::Receiver<RunState> {
        self.writer.state()
    }

    /// Waits until everything is written. Returns the final state.
    pub(crate) fn finish(self) -> (RunState, Result<(), RecordError>) {
        let written = self.writer.finish();
        (self.state.borrow().clone(), written)
    }
}
