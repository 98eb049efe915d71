//! Metrics that are counted event by event.

use std::sync::atomic::AtomicU64;

use ata_record::RefusalKind;
use ata_types::TaskOutcome;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

type Seconds = Counter<f64, AtomicU64>;

/// The name and the value of a label.
pub(super) type Label = [(&'static str, String); 1];

/// Counters and histograms; clones share them.
#[derive(Clone)]
pub(super) struct Registered {
    pub(super) iterations: Counter,
    pub(super) runtime_s: Seconds,
    pub(super) worker_time_s: Seconds,
    pub(super) tasks: Family<Label, Counter>,
    pub(super) wasted: Counter,
    pub(super) employments: Counter,
    pub(super) results: Counter,
    pub(super) saturated: Counter,
    pub(super) vanished: Counter,
    pub(super) sharded_steps: Counter,
    pub(super) refusals: Family<Label, Counter>,
    pub(super) faults: Family<Label, Counter>,
    pub(super) checkpoints: Counter,
    pub(super) iteration_s: Histogram,
    pub(super) task_s: Histogram,
    pub(super) transfer_s: Histogram,
    pub(super) checkpoint_s: Histogram,
}

impl Registered {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let r = registry;
        let all = Self {
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
        };
        // Prometheus sees no increase in a series that is new.
        for kind in ["loss", "rest", "expulsion", "checkpoint_failed"] {
            drop(all.faults.get_or_create(&[("kind", kind.into())]));
        }
        for kind in RefusalKind::ALL {
            drop(all.refusals.get_or_create(&[("kind", kind.name())]));
        }
        for outcome in TaskOutcome::ALL {
            drop(all.tasks.get_or_create(&[("outcome", outcome.name().into())]));
        }
        all
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
