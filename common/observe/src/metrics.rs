//! Metrics for Prometheus, in either of its text formats.
//!
//! Counters and histograms begin at 0 with the process, as Prometheus expects. Figures of single workers come from the
//! run's snapshot, so that many worker names do not make the registry grow.

mod moment;

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ata_record::{Listener, RefusalKind, RunEvent};
use ata_types::TaskOutcome;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

use crate::snapshot::Snapshot;

type Seconds = Counter<f64, AtomicU64>;

type Label = [(&'static str, String); 1];

/// Counts a run's events; clones share the counts.
#[derive(Clone)]
pub struct Metrics {
    iterations: Counter,
    runtime_s: Seconds,
    worker_time_s: Seconds,
    tasks: Family<Label, Counter>,
    wasted: Counter,
    employments: Counter,
    results: Counter,
    saturated: Counter,
    vanished: Counter,
    sharded_steps: Counter,
    refusals: Family<Label, Counter>,
    faults: Family<Label, Counter>,
    checkpoints: Counter,
    iteration_s: Histogram,
    task_s: Histogram,
    transfer_s: Histogram,
    checkpoint_s: Histogram,
    registry: Arc<Registry>,
    version: String,
}

impl Metrics {
    /// Creates metrics that are all 0. `version` is the version of the program.
    pub fn new(version: &str) -> Self {
        let mut registry = Registry::default();
        let r = &mut registry;
        let metrics = Self {
            iterations: add(r, "ata_iterations", "Optimizer steps taken"),
            runtime_s: add(r, "ata_runtime_seconds", "Time of all iterations"),
            worker_time_s: add(r, "ata_worker_time_seconds", "Time that workers spent on all iterations"),
            tasks: add(r, "ata_tasks", "Tasks that ended, by outcome"),
            wasted: add(r, "ata_wasted_tasks", "Tasks that were begun and entered no step"),
            employments: add(r, "ata_employments", "Workers that got a task, summed over iterations"),
            results: add(r, "ata_results", "Results that workers sent, each of one task or several"),
            saturated: add(
                r,
                "ata_saturated_values",
                "Values of gradients that were too large for their unit, and were clamped",
            ),
            vanished: add(
                r,
                "ata_vanished_values",
                "Values of gradients that were not 0, and that the wire format compact rounded to 0",
            ),
            sharded_steps: add(r, "ata_sharded_steps", "Steps whose vectors workers exchanged in shards"),
            refusals: add(r, "ata_refusals", "Results that were refused, by reason"),
            faults: add(r, "ata_faults", "Workers lost, rests, expulsions and failed checkpoints"),
            checkpoints: add(r, "ata_checkpoints", "Checkpoints saved"),
            iteration_s: durations(
                r,
                "ata_iteration_duration_seconds",
                "From the assignment of an iteration to the last result that its step needed",
            ),
            task_s: durations(r, "ata_task_duration_seconds", "Time that a worker computed a task"),
            transfer_s: durations(
                r,
                "ata_transfer_duration_seconds",
                "Part of an assignment that was not computation: transfers and waiting",
            ),
            checkpoint_s: durations(r, "ata_checkpoint_duration_seconds", "Time to write a checkpoint"),
            registry: Arc::new(registry),
            version: version.into(),
        };
        // Prometheus sees no increase in a series that is new.
        for kind in ["loss", "rest", "expulsion", "checkpoint_failed"] {
            drop(metrics.faults.get_or_create(&[("kind", kind.into())]));
        }
        for kind in RefusalKind::ALL {
            drop(metrics.refusals.get_or_create(&[("kind", kind.name())]));
        }
        for outcome in TaskOutcome::ALL {
            drop(metrics.tasks.get_or_create(&[("outcome", outcome.name().into())]));
        }
        metrics
    }

    /// Returns all metrics in the older text format, for readers that do not ask for OpenMetrics.
    pub fn encode_classic(&self, snapshot: &Snapshot) -> String {
        classic(&self.encode(snapshot))
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
        self.faults.get_or_create(&[("kind", kind.into())]).inc();
    }
}

impl Listener for Metrics {
    fn on_event(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Task { busy_s, overhead_s, outcome, .. } => {
                self.tasks.get_or_create(&[("outcome", outcome.name().into())]).inc();
                for (histogram, seconds) in [(&self.task_s, busy_s), (&self.transfer_s, overhead_s)] {
                    if let Some(seconds) = seconds {
                        histogram.observe(*seconds);
                    }
                }
            }
            RunEvent::Step(step) => {
                self.iterations.inc();
                self.iteration_s.observe(step.runtime_s);
                self.runtime_s.inc_by(step.runtime_s);
                self.worker_time_s.inc_by(step.total_worker_time_s);
                self.wasted.inc_by(step.wasted);
                self.employments.inc_by(step.employments);
                self.results.inc_by(step.results);
                self.saturated.inc_by(step.saturated);
                self.vanished.inc_by(step.vanished);
                self.sharded_steps.inc_by(u64::from(step.shards > 0));
            }
            RunEvent::Refusal { kind, count, .. } => {
                self.refusals.get_or_create(&[("kind", kind.name())]).inc_by(*count);
            }
            RunEvent::Loss { .. } => self.fault("loss"),
            RunEvent::Rest { .. } => self.fault("rest"),
            RunEvent::Expulsion { .. } => self.fault("expulsion"),
            RunEvent::CheckpointFailed { .. } => self.fault("checkpoint_failed"),
            RunEvent::Checkpoint { seconds, .. } => {
                self.checkpoints.inc();
                self.checkpoint_s.observe(*seconds);
            }
            _ => {}
        }
    }
}

fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// Adds a histogram with buckets from 0.1 ms, a task of a small model on a GPU, to 28 minutes, a large one on a telephone.
fn durations(registry: &mut Registry, name: &str, help: &str) -> Histogram {
    let histogram = Histogram::new(exponential_buckets(1e-4, 2.0, 24));
    registry.register(name, help, histogram.clone());
    histogram
}

/// Converts OpenMetrics text to the older format of Prometheus. A counter `NAME` with the sample `NAME_total` becomes `NAME_total`, and an info becomes a gauge.
fn classic(openmetrics: &str) -> String {
    let mut text = String::new();
    let mut lines = openmetrics.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" {
            break;
        }
        let Some(help) = line.strip_prefix("# HELP ") else {
            text += line;
            text.push('\n');
            continue;
        };
        let (name, help) = help.split_once(' ').unwrap_or((help, ""));
        // The type follows the help text.
        let kind = lines.next().and_then(|line| line.rsplit(' ').next()).unwrap_or("untyped");
        let (suffix, kind) = match kind {
            "counter" => ("_total", "counter"),
            "info" => ("_info", "gauge"),
            kind => ("", kind),
        };
        let written = write!(text, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n");
        written.expect("a string takes all that is written");
    }
    text
}

#[cfg(test)]
mod tests;
