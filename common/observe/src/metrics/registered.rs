//! Metrics that are counted event by event.

use std::sync::atomic::AtomicU64;

use ata_record::RefusalKind;
use ata_types::TaskOutcome;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

type Seconds = Counter<f64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct KindLabel {
    pub(super) kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OutcomeLabel {
    pub(super) outcome: String,
}

/// Counters and histograms; clones share them.
#[derive(Clone)]
pub(super) struct Registered {
    pub(super) iterations: Counter,
    pub(super) runtime_s: Seconds,
    pub(super) worker_time_s: Seconds,
    pub(super) tasks: Family<OutcomeLabel, Counter>,
    pub(super) wasted: Counter,
    pub(super) employments: Counter,
    pub(super) results: Counter,
    pub(super) saturated: Counter,
    pub(super) vanished: Counter,
    pub(super) sharded_steps: Counter,
    pub(super) refusals: Family<KindLabel, Counter>,
    pub(super) faults: Family<KindLabel, Counter>,
    pub(super) checkpoints: Counter,
    pub(super) iteration_s: Histogram,
    pub(super) task_s: Histogram,
    pub(super) transfer_s: Histogram,
    pub(super) checkpoint_s: Histogram,
}

/// Creates a histogram with buckets from 0.1 ms, a task of a small model on a GPU, to 28 minutes, a large one on a telephone.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(1e-4, 2.0, 24))
}

impl Registered {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let all = Self {
            iterations: Counter::default(),
            runtime_s: Counter::default(),
            worker_time_s: Counter::default(),
            tasks: Family::default(),
            wasted: Counter::default(),
            employments: Counter::default(),
            results: Counter::default(),
            saturated: Counter::default(),
            vanished: Counter::default(),
            sharded_steps: Counter::default(),
            refusals: Family::default(),
            faults: Family::default(),
            checkpoints: Counter::default(),
            iteration_s: durations(),
            task_s: durations(),
            transfer_s: durations(),
            checkpoint_s: durations(),
        };
        // Prometheus sees no increase in a series that is new.
        all.faults_at_zero();
        let r = registry;
        r.register("ata_iterations", "Optimizer steps taken", all.iterations.clone());
        r.register("ata_runtime_seconds", "Time of all iterations", all.runtime_s.clone());
        r.register("ata_worker_time_seconds", "Time that workers spent on all iterations", all.worker_time_s.clone());
        r.register("ata_tasks", "Tasks that ended, by outcome", all.tasks.clone());
        r.register("ata_wasted_tasks", "Tasks that were begun and entered no step", all.wasted.clone());
        r.register("ata_employments", "Workers that got a task, summed over iterations", all.employments.clone());
        r.register("ata_results", "Results that workers sent, each of one task or several", all.results.clone());
        let saturated = "Values of gradients that were too large for their unit, and were clamped";
        r.register("ata_saturated_values", saturated, all.saturated.clone());
        let vanished = "Values of gradients that were not 0, and that the wire format compact rounded to 0";
        r.register("ata_vanished_values", vanished, all.vanished.clone());
        let sharded = "Steps whose vectors workers exchanged in shards";
        r.register("ata_sharded_steps", sharded, all.sharded_steps.clone());
        r.register("ata_refusals", "Results that were refused, by reason", all.refusals.clone());
        r.register("ata_faults", "Workers lost, rests, expulsions and failed checkpoints", all.faults.clone());
        r.register("ata_checkpoints", "Checkpoints saved", all.checkpoints.clone());
        let iteration = "From the assignment of an iteration to the last result that its step needed";
        r.register("ata_iteration_duration_seconds", iteration, all.iteration_s.clone());
        r.register("ata_task_duration_seconds", "Time that a worker computed a task", all.task_s.clone());
        let transfer = "Part of an assignment that was not computation: transfers and waiting";
        r.register("ata_transfer_duration_seconds", transfer, all.transfer_s.clone());
        r.register("ata_checkpoint_duration_seconds", "Time to write a checkpoint", all.checkpoint_s.clone());
        all
    }

    fn faults_at_zero(&self) {
        for kind in ["loss", "rest", "expulsion", "checkpoint_failed"] {
            drop(self.faults.get_or_create(&KindLabel { kind: kind.into() }));
        }
        for kind in RefusalKind::ALL {
            drop(self.refusals.get_or_create(&KindLabel { kind: kind.name() }));
        }
        for outcome in TaskOutcome::ALL {
            drop(self.tasks.get_or_create(&OutcomeLabel { outcome: outcome.name().into() }));
        }
    }
}
