//! Metrics for Prometheus, in either of its text formats.
//!
//! Counters and histograms begin at 0 with the process, as Prometheus expects. Figures of single workers come from the
//! run's snapshot, so that many worker names do not make the registry grow.

mod exposition;
mod moment;
mod reference;
mod registered;

use std::sync::Arc;

use ata_record::{Listener, RunEvent};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;

use crate::snapshot::Snapshot;
pub use reference::MetricDescription;
use registered::Registered;

/// Counts a run's events.
#[derive(Clone)]
pub struct Metrics {
    registered: Registered,
    registry: Arc<Registry>,
    version: String,
}

impl Metrics {
    /// Creates metrics that are all 0. `version` is the version of the program.
    pub fn new(version: &str) -> Self {
        let mut registry = Registry::default();
        let registered = Registered::new(&mut registry);
        Self { registered, registry: Arc::new(registry), version: version.into() }
    }

    /// Returns all metrics in the older text format, for readers that do not ask for OpenMetrics.
    pub fn encode_classic(&self, snapshot: &Snapshot) -> String {
        exposition::classic(&self.encode(snapshot))
    }

    /// Returns all metrics as OpenMetrics.
    pub fn encode(&self, snapshot: &Snapshot) -> String {
        let mut text = String::new();
        let encoded = encode_registry(&mut text, &self.registry)
            .and_then(|()| encode_registry(&mut text, &moment::registry(snapshot, &self.version)))
            .and_then(|()| encode_eof(&mut text));
        encoded.expect("writing to a string succeeds");
        text
    }

    fn fault(&self, kind: &'static str) {
        self.registered.faults.get_or_create(&[("kind", kind.into())]).inc();
    }
}

impl Listener for Metrics {
    fn on_event(&mut self, event: &RunEvent) {
        let registered = &self.registered;
        match event {
            RunEvent::Task { busy_s, overhead_s, outcome, .. } => {
                registered.tasks.get_or_create(&[("outcome", outcome.name().into())]).inc();
                for (histogram, seconds) in [(&registered.task_s, busy_s), (&registered.transfer_s, overhead_s)] {
                    if let Some(seconds) = seconds {
                        histogram.observe(*seconds);
                    }
                }
            }
            RunEvent::Step {
                runtime_s,
                total_worker_time_s,
                wasted,
                employments,
                results,
                saturated,
                vanished,
                shards,
                ..
            } => {
                registered.iterations.inc();
                registered.iteration_s.observe(*runtime_s);
                registered.runtime_s.inc_by(*runtime_s);
                registered.worker_time_s.inc_by(*total_worker_time_s);
                registered.wasted.inc_by(*wasted);
                registered.employments.inc_by(*employments);
                registered.results.inc_by(*results);
                registered.saturated.inc_by(*saturated);
                registered.vanished.inc_by(*vanished);
                registered.sharded_steps.inc_by(u64::from(*shards > 0));
            }
            RunEvent::Refusal { kind, count, .. } => {
                registered.refusals.get_or_create(&[("kind", kind.name())]).inc_by(*count);
            }
            RunEvent::Loss { .. } => self.fault("loss"),
            RunEvent::Rest { .. } => self.fault("rest"),
            RunEvent::Expulsion { .. } => self.fault("expulsion"),
            RunEvent::CheckpointFailed { .. } => self.fault("checkpoint_failed"),
            RunEvent::Checkpoint { seconds, .. } => {
                registered.checkpoints.inc();
                registered.checkpoint_s.observe(*seconds);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
