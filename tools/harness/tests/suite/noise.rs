//! Tests the gradient noise scale of runs.

use std::sync::Arc;
use std::time::Duration;

use ata_harness::{Cluster, Settings, WorkerSettings, toy};
use ata_learn::{Model, ModelError, ModelResolver, with_squares};
use ata_record::{RunEvent, RunState};
use ata_scheduler::{RateScaling, TaskChoice, TaskRule};
use ata_types::WireFormat;

use crate::{Ended, each, run, start};

fn measured_toy(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    toy(specification).map(with_squares)
}

fn workers(count: usize) -> impl Iterator<Item = WorkerSettings> {
    ["one", "two", "three"].into_iter().take(count).map(WorkerSettings::new)
}

fn scales(ended: &Ended) -> Vec<Option<f64>> {
    each(ended, |event| if let RunEvent::Step(step) = event { Some(step.noise_scale) } else { None })
}

/// Who computes does not matter, and measuring changes no bit.
#[tokio::test(flavor = "multi_thread")]
async fn the_noise_scale_is_the_same_for_all_workers_and_changes_no_step() {
    let plain = Settings { iterations: 40, min_workers: 3, model: "toy:300", ..Settings::default() };
    let measured = Settings { models: measured_toy, ..plain.clone() };
    let three = run(&measured, workers(3)).await;
    let one = run(&Settings { min_workers: 1, ..measured }, workers(1)).await;
    let unmeasured = run(&plain, workers(3)).await;
    assert_eq!(one.report.parameters_sha256, three.report.parameters_sha256);
    assert_eq!(scales(&one), scales(&three));
    assert_eq!(losses(&three), losses(&unmeasured));
    // It is known after a few steps, and no longer once θ is the mean of the samples, whose distances are the gradients.
    let known: Vec<f64> = scales(&three).into_iter().flatten().collect();
    assert!(scales(&three)[0].is_none() && known.first() < known.last(), "{known:?}");
    assert!(scales(&unmeasured).iter().all(Option::is_none));
}

fn losses(ended: &Ended) -> Vec<u64> {
    each(ended, |event| if let RunEvent::Step(step) = event { Some(step.loss.to_bits()) } else { None })
}

/// A run whose iterations begin with 12 tasks and follow the noise.
fn following(policy: &'static str, format: WireFormat) -> Settings {
    let rate = RateScaling::Adaptive;
    let choice = TaskChoice { rule: TaskRule::Noise, least: 2, most: 96, rate, rate_tasks: 1.0 };
    let (model, models) = ("toy:300", measured_toy as ModelResolver);
    Settings { policy, format, iterations: 40, choice: Some(choice), models, model, ..Settings::default() }
}

/// Returns the iteration and the number of tasks of each step.
fn tasks(ended: &Ended) -> Vec<(u64, u64)> {
    each(ended, |event| match event {
        RunEvent::Step(step) => Some((step.iteration.number(), step.tasks)),
        _ => None,
    })
}

/// The number of tasks changes, and with it the learning rate, but who computes does not matter, nor that a worker is lost and that
/// iterations are repeated after a crash.
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_follows_the_noise_depends_on_gradients_alone() {
    for format in [WireFormat::F32Exact, WireFormat::Compact] {
        let one = run(&following("uta", format), workers(1)).await;
        let path = tasks(&one);
        assert_eq!(path.iter().map(|(_, tasks)| tasks).sum::<u64>(), 12 * 40);
        // At first there is little noise in the gradients, and close to the minimum there is hardly anything else.
        assert!(path[0].1 == 12 && path[20].1 < 6 && path.iter().skip(20).any(|(_, tasks)| *tasks > 9), "{path:?}");

        let settings = Settings { min_workers: 3, checkpoint_every: Some(3), ..following("ata-auto", format) };
        let mut cluster = Cluster::start(&settings).await;
        let slow = |worker| WorkerSettings { task_time: Duration::from_millis(2), ..worker };
        let killed = workers(3).map(|worker| cluster.worker(slow(worker))).last().expect("three");
        cluster.wait_for("progress", |state| state.iterations >= 4).await;
        killed.abort();
        cluster.wait_for("progress without it", |state| state.iterations >= 8).await;
        cluster.crash(&Settings { min_workers: 1, ..settings }).await;
        cluster.worker(slow(WorkerSettings::new("four")));
        let ended = cluster.end().await;
        assert_eq!(ended.report.parameters_sha256, one.report.parameters_sha256, "{format}");
        assert!(tasks(&ended).iter().all(|step| path.contains(step)), "{path:?} {:?}", tasks(&ended));
    }
}

/// Returns the number of tasks of each iteration.
fn one_by_one(budgets: &[(u64, u64)]) -> Vec<u64> {
    budgets.iter().flat_map(|&(tasks, iterations)| std::iter::repeat_n(tasks, iterations as usize)).collect()
}

/// Times choose the number of tasks. No iteration that is repeated after a crash has another number, and one worker repeats the run.
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_follows_the_goodput_can_be_repeated() {
    let plain = following("ata-auto", WireFormat::Compact);
    let by = |rule| plain.choice.clone().map(|choice| TaskChoice { rule, ..choice });
    // The exchange takes far longer than such tasks, so more of them are better. Only the change is saved.
    let (iterations, checkpoint_every) = (400, Some(100_000));
    let plain = Settings { iterations, checkpoint_every, ..plain.clone() };
    let settings = Settings { min_workers: 3, choice: by(TaskRule::Goodput), ..plain.clone() };
    let mut cluster = start(&settings, workers(3)).await;
    let mut seen = Vec::new();
    let has_changed = |state: &RunState| {
        seen.clone_from(&state.budgets);
        state.budgets.get(1).is_some_and(|(_, iterations)| *iterations > 5)
    };
    cluster.wait_for("another number of tasks", has_changed).await;
    cluster.crash(&settings).await;
    workers(3)
        .for_each(|worker| drop(cluster.worker(WorkerSettings { name: worker.name.clone() + "-again", ..worker })));
    let ended = cluster.end().await;
    let path = ended.report.state.budgets;
    assert!(one_by_one(&path).starts_with(&one_by_one(&seen)), "{seen:?} {path:?}");

    let one = run(&Settings { choice: by(TaskRule::Path(path.as_slice().into())), ..plain }, workers(1)).await;
    assert_eq!(one.report.state.budgets, path);
    assert_eq!(one.report.parameters_sha256, ended.report.parameters_sha256);
}
