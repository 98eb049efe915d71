//! Tests evaluations by workers. The figures do not depend on which worker measures which batch, nor on workers that fail.

use std::sync::Arc;

use ata_coordinator::RunError;
use ata_harness::{Cluster, Ended, Settings, WorkerSettings, toy};
use ata_learn::{Model, ModelError, ModelResolver};
use ata_record::{RunEvent, RunPhase};
use ata_worker::WorkerEnd;

use crate::{check, each};

/// Returns iteration, loss and accuracy of each evaluation, as bits.
fn evaluations(ended: &Ended) -> Vec<(u64, u64, Option<u64>)> {
    each(ended, |event| match event {
        RunEvent::Evaluation { iteration, loss, accuracy, .. } => {
            Some((iteration.number(), loss.to_bits(), accuracy.map(f64::to_bits)))
        }
        _ => None,
    })
}

async fn run(settings: &Settings, workers: usize) -> Ended {
    let workers_settings = (1..=workers).map(|number| WorkerSettings::new(format!("worker-{number}")));
    crate::run(&Settings { min_workers: workers, ..settings.clone() }, workers_settings).await
}

/// Starts a coordinator that evaluates nothing itself, and a worker with these models.
async fn start(models: ModelResolver) -> (Cluster, tokio::task::AbortHandle) {
    let mut cluster = Cluster::start(&Settings { evaluates: false, ..Settings::default() }).await;
    let worker = cluster.worker(WorkerSettings { models, ..WorkerSettings::new("a-ill") });
    (cluster, worker)
}

/// An evaluation that is due while another one is in progress is skipped, so only the last one is guaranteed.
#[tokio::test(flavor = "multi_thread")]
async fn the_figures_do_not_depend_on_who_evaluates() {
    let head = Settings { workers_evaluate: false, ..Settings::default() };
    let expected = evaluations(&run(&head, 1).await);
    assert_eq!(expected.len(), 1);
    for (evaluates, workers) in [(false, 1), (false, 4), (true, 2)] {
        let every = Settings { evaluates, evaluate_every: Some(1), ..Settings::default() };
        let found = evaluations(&run(&every, workers).await);
        assert_eq!(found.last(), expected.last(), "{workers} workers, and the head: {evaluates}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_needs_the_names_and_values_of_the_parameters_alone() {
    /// Resolves the description of the toy model, as `ata init` writes it.
    fn described(_: &str) -> Result<Arc<dyn Model>, ModelError> {
        let model = toy("toy:64")?;
        let parameters = model.initial_parameters(1).expect("parameters");
        let file = ata_sums::encode_model(&model.table(), &parameters, &model.metadata());
        Ok(Arc::new(ata_learn::DescribedModel::read(&file).expect("a model file")))
    }
    let without = run(&Settings { models: described, evaluates: false, ..Settings::default() }, 2).await;
    check(&Settings::default(), &without).await;
    assert_eq!(evaluations(&without), evaluations(&run(&Settings::default(), 1).await));
}

fn stuck(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    toy(&format!("{specification}/stuck"))
}

/// Resolves the toy model on a worker that cannot read its test data. Its gradients are correct.
fn unreadable(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    toy(&format!("{specification}/ill"))
}

/// The run cannot end before the second worker joins. It ends although the first one still holds a batch, or is killed while it does.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_evaluation_hangs_is_helped_or_replaced() {
    let expected = evaluations(&run(&Settings::default(), 1).await);
    for is_killed in [false, true] {
        let (mut cluster, worker) = start(stuck).await;
        cluster.wait_for("the last evaluation", |state| state.phase == RunPhase::Evaluating).await;
        if is_killed {
            worker.abort();
        }
        cluster.worker(WorkerSettings::new("helps"));
        let ended = cluster.end().await;
        assert_eq!(evaluations(&ended), expected);
        assert_eq!(ended.workers["helps"].as_ref().unwrap(), &WorkerEnd::Finished);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_can_evaluate() {
    let ended = start(unreadable).await.0.end_or_fail().await;
    let Err(RunError::Evaluation(reason)) = &ended.report.ended else { panic!("{:?}", ended.report.ended) };
    assert!(reason.contains("the disk is gone"), "{reason}");
    assert_eq!(ended.report.state.iterations, 20, "the training succeeded");
    assert_eq!(ended.workers["a-ill"].as_ref().unwrap(), &WorkerEnd::Finished);
}
