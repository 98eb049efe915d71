//! Tests evaluations by workers. The figures do not depend on which worker measures which batch, nor on workers that fail.

use std::sync::Arc;

use ata_coordinator::RunError;
use ata_harness::{Cluster, Ended, Settings, WorkerSettings, toy};
use ata_learn::{Model, ModelError};
use ata_record::{RunEvent, RunPhase, RunState};
use ata_worker::WorkerEnd;

/// Returns iteration, loss and accuracy of each evaluation, as bits.
fn evaluations(ended: &Ended) -> Vec<(u64, u64, Option<u64>)> {
    assert!(ended.report.ended.is_ok(), "{:?}", ended.report.ended);
    let of = |event: &RunEvent| match event {
        RunEvent::Evaluation { iteration, loss, accuracy, .. } => {
            Some((iteration.number(), loss.to_bits(), accuracy.map(f64::to_bits)))
        }
        _ => None,
    };
    ended.events.iter().filter_map(of).collect()
}

fn is_evaluating(state: &RunState) -> bool {
    state.phase == RunPhase::Evaluating
}

async fn run(settings: &Settings, workers: usize) -> Ended {
    let mut cluster = Cluster::start(&Settings { min_workers: workers, ..settings.clone() }).await;
    for number in 1..=workers {
        cluster.worker(WorkerSettings::new(format!("worker-{number}")));
    }
    cluster.end().await
}

/// An evaluation that is due while another one is in progress is skipped, so only the last one is guaranteed.
#[tokio::test(flavor = "multi_thread")]
async fn the_figures_do_not_depend_on_who_evaluates() {
    let head = Settings { workers_evaluate: false, ..Settings::default() };
    let expected = evaluations(&run(&head, 1).await);
    assert_eq!(expected.len(), 1);
    let every = Settings { evaluate_every: Some(1), ..Settings::default() };
    for evaluates in [false, true] {
        for workers in [1, 2, 4] {
            let found = evaluations(&run(&Settings { evaluates, ..every.clone() }, workers).await);
            assert_eq!(found.last(), expected.last(), "{workers} workers, and the head: {evaluates}");
        }
    }
}

/// A coordinator that cannot run the model still trains the same parameters.
#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_needs_the_names_and_values_of_the_parameters_alone() {
    /// Resolves the description of the toy model, as `ata init` writes it.
    fn described(_: &str) -> Result<Arc<dyn Model>, ModelError> {
        let model = toy("toy:64")?;
        let parameters = model.initial_parameters(1).expect("parameters");
        let file = ata_sums::encode_model(&model.table(), &parameters, &model.metadata());
        Ok(Arc::new(ata_learn::DescribedModel::read(&file).expect("a model file")))
    }
    let with_model = run(&Settings::default(), 2).await;
    let without = run(&Settings { models: described, evaluates: false, ..Settings::default() }, 2).await;
    assert_eq!(evaluations(&without), evaluations(&with_model));
    assert_eq!(without.report.parameters_sha256, with_model.report.parameters_sha256);
}

/// Resolves the toy model on a worker whose evaluation never ends.
fn stuck(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    toy(&format!("{specification}/stuck"))
}

/// Resolves the toy model on a worker that cannot read its test data.
fn unreadable(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    toy(&format!("{specification}/ill"))
}

/// The run cannot end before the second worker joins, and it ends although the first one still holds a batch.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_evaluation_hangs_is_helped() {
    let expected = evaluations(&run(&Settings::default(), 1).await);
    let mut cluster = Cluster::start(&Settings { evaluates: false, ..Settings::default() }).await;
    cluster.worker(WorkerSettings { models: stuck, ..WorkerSettings::new("stuck") });
    cluster.wait_for("the last evaluation", is_evaluating).await;
    cluster.worker(WorkerSettings::new("helps"));
    let ended = cluster.end().await;
    assert_eq!(evaluations(&ended), expected);
    assert_eq!(ended.workers["helps"].as_ref().unwrap(), &WorkerEnd::Finished);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_cannot_evaluate_is_replaced() {
    let settings = Settings { evaluates: false, min_workers: 2, ..Settings::default() };
    let expected = evaluations(&run(&Settings::default(), 1).await);
    let mut cluster = Cluster::start(&settings).await;
    // The first worker fails only evaluations: its gradients are correct.
    cluster.worker(WorkerSettings { models: unreadable, ..WorkerSettings::new("a-ill") });
    cluster.worker(WorkerSettings::new("well"));
    assert_eq!(evaluations(&cluster.end().await), expected);
}

/// The worker is killed while it holds batches of the final parameters, and another one joins.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_lost_while_it_evaluates_is_replaced() {
    let expected = evaluations(&run(&Settings::default(), 1).await);
    let mut cluster = Cluster::start(&Settings { evaluates: false, ..Settings::default() }).await;
    let lost = cluster.worker(WorkerSettings { models: stuck, ..WorkerSettings::new("lost") });
    cluster.wait_for("the last evaluation", is_evaluating).await;
    lost.abort();
    cluster.worker(WorkerSettings::new("comes"));
    assert_eq!(evaluations(&cluster.end().await), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_can_evaluate() {
    let mut cluster = Cluster::start(&Settings { evaluates: false, ..Settings::default() }).await;
    cluster.worker(WorkerSettings { models: unreadable, ..WorkerSettings::new("ill") });
    let ended = cluster.end().await;
    let Err(RunError::Evaluation(reason)) = &ended.report.ended else { panic!("{:?}", ended.report.ended) };
    assert!(reason.contains("the disk is gone"), "{reason}");
    assert_eq!(ended.report.state.iterations, 20, "the training succeeded");
    assert_eq!(ended.workers["ill"].as_ref().unwrap(), &WorkerEnd::Finished);
}
