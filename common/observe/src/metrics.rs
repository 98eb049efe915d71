//! Metrics for Prometheus, in either of its text formats.
//!
//! Counters and histograms begin at 0 with the process, as Prometheus expects; what concerns single workers is read from the
//! run's view, so that no number of names makes it grow.

mod exposition;
mod reference;
mod registered;
mod snapshot;

use std::sync::Arc;

use ata_record::{Listener, RefusalKind, RunEvent};
use ata_types::TaskOutcome;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;

use crate::view::View;
pub use reference::Described;
use registered::{OfKind, OfOutcome, Registered};

/// Counts a run's events.
#[derive(Clone)]
pub struct Metrics {
    counted: Registered,
    registry: Arc<Registry>,
    version: String,
}

impl Metrics {
    /// All at 0. `version` is that of the program.
    pub fn new(version: &str) -> Self {
        let mut registry = Registry::default();
        let counted = Registered::new(&mut registry);
        Self { counted, registry: Arc::new(registry), version: version.into() }
    }

    /// All metrics in the text format that readers get who do not ask for OpenMetrics.
    pub fn encode_classic(&self, view: &View) -> String {
        exposition::classic(&self.encode(view))
    }

    /// All metrics as OpenMetrics.
    pub fn encode(&self, view: &View) -> String {
        let mut text = String::new();
        let encoded = encode_registry(&mut text, &self.registry)
            .and_then(|()| encode_registry(&mut text, &snapshot::of(view, &self.version)))
            .and_then(|()| encode_eof(&mut text));
        encoded.expect("a string takes all that is written");
        text
    }

    fn fault(&self, kind: &'static str) {
        self.counted.faults.get_or_create(&OfKind { kind: kind.into() }).inc();
    }

    fn task(&self, event: &RunEvent) {
        let RunEvent::Task { busy_s, overhead_s, outcome, .. } = event else { return };
        let name = match outcome {
            TaskOutcome::Applied => "applied",
            TaskOutcome::Ignored => "ignored",
            TaskOutcome::Cancelled => "cancelled",
            TaskOutcome::Lost => "lost",
            TaskOutcome::Failed => "failed",
            TaskOutcome::Mismatched => "mismatched",
            TaskOutcome::Disputed => "disputed",
        };
        self.counted.tasks.get_or_create(&OfOutcome { outcome: name.into() }).inc();
        if let Some(busy_s) = busy_s {
            self.counted.task_s.observe(*busy_s);
        }
        if let Some(overhead_s) = overhead_s {
            self.counted.transfer_s.observe(*overhead_s);
        }
    }

    fn refusal(&self, kind: RefusalKind, count: u64) {
        self.counted.refusals.get_or_create(&OfKind { kind: kind.name() }).inc_by(count);
    }
}

impl Listener for Metrics {
    fn hear(&mut self, event: &RunEvent) {
        let counted = &self.counted;
        match event {
            RunEvent::Task { .. } => self.task(event),
            RunEvent::Step { runtime_s, total_worker_time_s, wasted, employments, results, .. } => {
                counted.iterations.inc();
                counted.iteration_s.observe(*runtime_s);
                counted.runtime_s.inc_by(*runtime_s);
                counted.worker_time_s.inc_by(*total_worker_time_s);
                counted.wasted.inc_by(*wasted);
                counted.employments.inc_by(*employments);
                counted.results.inc_by(*results);
            }
            RunEvent::Refusal { kind, count, .. } => self.refusal(*kind, *count),
            RunEvent::Loss { .. } => self.fault("loss"),
            RunEvent::Rest { .. } => self.fault("rest"),
            RunEvent::Expulsion { .. } => self.fault("expulsion"),
            RunEvent::CheckpointFailed { .. } => self.fault("checkpoint_failed"),
            RunEvent::Checkpoint { seconds, .. } => {
                counted.checkpoints.inc();
                counted.checkpoint_s.observe(*seconds);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
