//! Metrics that are read from the run's snapshot on request.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use ata_record::Spending;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::Label;
use crate::snapshot::{RunDescription, Snapshot, WorkerActivity, WorkerSnapshot};

type Number = Gauge<f64, AtomicU64>;
type Sum = Counter<f64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerLabel {
    worker: u32,
    name: String,
}

pub(super) fn registry(snapshot: &Snapshot, version: &str) -> Registry {
    let mut registry = Registry::default();
    let build = Info::new(vec![("version", version.to_owned())]);
    registry.register("ata_build", "The program", build);
    let RunDescription { run_id, policy, labels, .. } = &snapshot.run;
    let name = labels.name.iter().map(|name| ("name".to_owned(), name));
    let tags = labels.tags.iter().map(|(key, value)| (format!("tag_{key}"), value));
    let run = [("run_id".to_owned(), run_id), ("policy".to_owned(), policy)].into_iter().chain(name).chain(tags);
    let run: Vec<(String, String)> = run.map(|(key, value)| (key, value.clone())).collect();
    registry.register("ata_run", "The run", Info::new(run));
    run_gauges(&mut registry, snapshot);
    spending(&mut registry, snapshot.totals.spent);
    workers(&mut registry, &snapshot.workers);
    registry
}

fn run_gauges(registry: &mut Registry, Snapshot { run, totals, .. }: &Snapshot) {
    let mut gauge = |name: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            let gauge = Number::default();
            gauge.set(value);
            registry.register(name, help, gauge);
        }
    };
    let count = |count: u64| Some(count as f64);
    gauge("ata_iteration", "The last iteration, over all resumptions", count(totals.iterations));
    gauge("ata_target_iterations", "Iterations asked for", count(run.iterations));
    gauge("ata_budget_tasks", "Tasks per iteration", count(run.budget));
    gauge("ata_training_loss", "Mean loss of the last step's tasks", totals.steps.last_loss);
    gauge("ata_learning_rate", "Learning rate of the last step", totals.steps.learning_rate);
    let norm = "Euclidean norm of the last mean gradient before it was clipped; with --clip-norm only";
    gauge("ata_gradient_norm", norm, totals.steps.gradient_norm);
    let noise = "Gradient noise scale, in tasks; with --gradient-noise only";
    gauge("ata_noise_scale", noise, totals.steps.noise_scale);
    let links = totals.steps.links;
    let up = "Time that a gradient takes on the coordinator's link; 0 if that is not the narrow part of the way";
    gauge("ata_link_up_seconds", up, links.map(|links| links.up_s));
    let down = "Time that parameters take on the coordinator's link; 0 if that is not the narrow part of the way";
    gauge("ata_link_down_seconds", down, links.map(|links| links.down_s));
    let own = "Time that the slower of the two takes on a worker's own link";
    gauge("ata_link_own_seconds", own, links.map(|links| links.own_s));
    gauge("ata_test_loss", "Mean loss of the last evaluation", totals.test_loss);
    gauge("ata_test_accuracy", "Accuracy of the last evaluation, from 0 to 1", totals.test_accuracy);
    let saved = totals.saved.map(|saved| saved.number() as f64);
    gauge("ata_checkpoint_iteration", "The last iteration that is saved", saved);
    let own = Family::<Label, Number>::default();
    for (metric, value) in totals.metrics.iter().filter_map(|(name, value)| Some((name.clone(), (*value)?))) {
        own.get_or_create(&[("metric", metric)]).set(value);
    }
    if !totals.metrics.is_empty() {
        registry.register("ata_test_metric", "A metric of the problem's own in the last evaluation", own);
    }
}

fn spending(registry: &mut Registry, spent: Spending) {
    let mut counter = |name: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            let counter = Sum::default();
            counter.inc_by(value);
            registry.register(name, help, counter);
        }
    };
    counter("ata_price", "Price of the workers' presence, if [workers.NAME] has price_per_hour", spent.price);
    let energy = "Energy that the workers used while busy, if [workers.NAME] has watts";
    counter("ata_energy_joules", energy, spent.energy_wh.map(|wh| wh * 3600.0));
}

fn workers(registry: &mut Registry, workers: &[WorkerSnapshot]) {
    let tasks = Family::<WorkerLabel, Counter>::default();
    let [busy, overhead] = [(); 2].map(|()| Family::<WorkerLabel, Sum>::default());
    let [allocation, mean, bound, up] = [(); 4].map(|()| Family::<WorkerLabel, Number>::default());
    let mut states = BTreeMap::from(WorkerActivity::ALL.map(|state| (state, 0)));
    for worker in workers {
        *states.entry(worker.state).or_insert(0) += 1;
        let label = WorkerLabel { worker: worker.share.number.number(), name: worker.share.name.clone() };
        tasks.get_or_create(&label).inc_by(worker.applied);
        busy.get_or_create(&label).inc_by(worker.total_busy_s);
        overhead.get_or_create(&label).inc_by(worker.total_overhead_s);
        allocation.get_or_create(&label).set(worker.share.tasks as f64);
        up.get_or_create(&label).set(f64::from(u8::from(worker.state.is_present())));
        if let Some(mean_s) = worker.share.mean_s {
            mean.get_or_create(&label).set(mean_s);
        }
        if let Some(bound_s) = worker.share.bound_s {
            bound.get_or_create(&label).set(bound_s);
        }
    }
    let of_state = Family::<Label, Number>::default();
    for (state, count) in states {
        of_state.get_or_create(&[("state", state.to_string())]).set(f64::from(count));
    }
    registry.register("ata_workers", "Workers, by what they are doing", of_state);
    registry.register("ata_worker_up", "Whether the worker is present", up);
    registry.register("ata_worker_tasks", "The worker's tasks that entered a step", tasks);
    registry.register("ata_worker_busy_seconds", "Time that the worker spent on tasks", busy);
    registry.register("ata_worker_overhead_seconds", "Time of its assignments that was not computation", overhead);
    registry.register("ata_worker_allocation_tasks", "The worker's tasks in the current iteration", allocation);
    registry.register("ata_worker_task_mean_seconds", "Mean time of its last 256 tasks", mean);
    let help = "The policy's bound on the worker's time for a task, or estimate";
    registry.register("ata_worker_bound_seconds", help, bound);
}
