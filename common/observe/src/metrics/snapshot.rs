//! What is read from the run's view when it is asked for.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::explain::explain;
use crate::view::View;

type Number = Gauge<f64, AtomicU64>;
type Sum = Counter<f64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfWorker {
    worker: u32,
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfState {
    state: String,
}

/// The metrics of a moment.
pub(super) fn of(view: &View, version: &str) -> Registry {
    let mut registry = Registry::default();
    let build = Info::new(vec![("version", version.to_owned())]);
    registry.register("ata_build", "The program", build);
    let run = vec![("run_id", view.run_id.clone()), ("policy", view.state.policy.clone())];
    registry.register("ata_run", "The run", Info::new(run));
    run_gauges(&mut registry, view);
    spending(&mut registry, view);
    workers(&mut registry, view);
    registry
}

fn run_gauges(registry: &mut Registry, view: &View) {
    let state = &view.state;
    let mut gauge = |name: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            let gauge = Number::default();
            gauge.set(value);
            registry.register(name, help, gauge);
        }
    };
    let count = |count: u64| Some(count as f64);
    gauge("ata_iteration", "The last iteration, over all resumptions", count(state.iterations));
    gauge("ata_target_iterations", "Iterations asked for", count(view.iterations));
    gauge("ata_budget_tasks", "Tasks per iteration", count(state.budget));
    gauge("ata_training_loss", "Mean loss of the last step's tasks", state.last_loss);
    gauge("ata_learning_rate", "Learning rate of the last step", view.learning_rate);
    let norm = "Euclidean norm of the last mean gradient before it was clipped; with --clip-norm only";
    gauge("ata_gradient_norm", norm, view.gradient_norm);
    gauge("ata_test_loss", "Mean loss of the last evaluation", state.evaluation.map(|(loss, _)| loss));
    let accuracy = state.evaluation.and_then(|(_, accuracy)| accuracy);
    gauge("ata_test_accuracy", "Accuracy of the last evaluation, from 0 to 1", accuracy);
    gauge(
        "ata_checkpoint_iteration",
        "The last iteration that is saved",
        state.saved.map(|saved| saved.number() as f64),
    );
}

fn spending(registry: &mut Registry, view: &View) {
    let spent = view.spent_in_all();
    let mut counter = |name: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            let counter = Sum::default();
            counter.inc_by(value);
            registry.register(name, help, counter);
        }
    };
    counter("ata_price", "What the workers cost while present, if [workers.NAME] says price_per_hour", spent.price);
    let energy = "Energy that the workers used while busy, if [workers.NAME] says watts";
    counter("ata_energy_joules", energy, spent.energy_wh.map(|wh| wh * 3600.0));
}

fn workers(registry: &mut Registry, view: &View) {
    let (tasks, busy, overhead) = (Family::<OfWorker, Counter>::default(), family(), family());
    let (allocation, mean, bound, up) = (numbers(), numbers(), numbers(), numbers());
    let mut states = BTreeMap::from(["computing", "idle", "resting", "away", "expelled"].map(|state| (state, 0)));
    for row in explain(view, None).workers.into_iter().map(|explained| view.row(explained)) {
        *states.entry(row.state).or_insert(0) += 1;
        let label = OfWorker { worker: row.number.number(), name: row.name.clone() };
        let attendance = view.attendance.get(&row.number);
        tasks.get_or_create(&label).inc_by(row.applied);
        busy.get_or_create(&label).inc_by(attendance.map_or(0.0, |known| known.busy_s));
        overhead.get_or_create(&label).inc_by(attendance.map_or(0.0, |known| known.overhead_s));
        allocation.get_or_create(&label).set(row.tasks as f64);
        up.get_or_create(&label).set(f64::from(u8::from(!["away", "expelled"].contains(&row.state))));
        if let Some(mean_s) = row.mean_s {
            mean.get_or_create(&label).set(mean_s);
        }
        if let Some(bound_s) = row.bound_s {
            bound.get_or_create(&label).set(bound_s);
        }
    }
    let of_state = Family::<OfState, Number>::default();
    for (state, count) in states {
        of_state.get_or_create(&OfState { state: state.into() }).set(f64::from(count));
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

fn family() -> Family<OfWorker, Sum> {
    Family::default()
}

fn numbers() -> Family<OfWorker, Number> {
    Family::default()
}
