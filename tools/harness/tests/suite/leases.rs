//! Tests leases that are computed as one batch, are cancelled late, or are very many.

use std::collections::BTreeMap;
use std::time::Duration;

use ata_harness::{Ended, Settings, WorkerSettings, toy};
use ata_record::{RefusalKind, RunEvent};
use ata_sums::decode_model;
use ata_types::LeaseId;

use crate::{applied, check, losses, number, run};

/// Returns settings with a budget whose equal shares are not powers of two, and a model whose sums depend on their order.
fn settings(policy: &'static str) -> Settings {
    Settings { policy, model: "toy:500", budget: 31, iterations: 30, min_workers: 3, ..Settings::default() }
}

fn batches(name: &str) -> WorkerSettings {
    WorkerSettings { fuses: true, ..WorkerSettings::new(name) }
}

/// Checks that every task entered a step once, and that the parameters are those of one
/// ordinary worker, except for rounding.
async fn check_but_for_rounding(settings: &Settings, ended: &Ended) {
    assert_eq!(applied(ended), settings.budget * settings.iterations);
    let alone = run(&Settings { min_workers: 1, ..settings.clone() }, [WorkerSettings::new("alone")]).await;
    let parameters = |ended: &Ended| decode_model(&toy(settings.model).unwrap().table(), &ended.model).unwrap().0;
    let (found, expected) = (parameters(ended), parameters(&alone));
    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|value| f64::from(value).powi(2)).sum::<f64>();
    let error = square(&mut found.iter().zip(&expected).map(|(a, b)| a - b)).sqrt();
    let norm = square(&mut expected.iter().copied()).sqrt();
    assert!(error < 1e-5 * norm, "relative error {}", error / norm);
}

fn leases(ended: &Ended, name: &str) -> BTreeMap<LeaseId, Vec<f64>> {
    let number = number(ended, name);
    let mut leases: BTreeMap<LeaseId, Vec<f64>> = BTreeMap::new();
    for event in &ended.events {
        if let RunEvent::Task { worker, lease, busy_s: Some(busy_s), .. } = event
            && *worker == number
        {
            leases.entry(*lease).or_default().push(*busy_s);
        }
    }
    leases
}

/// With equal shares, a device's share is one lease, whose tasks have one time.
#[tokio::test(flavor = "multi_thread")]
async fn every_policy_goes_with_batches() {
    for policy in ["uta", "ata-auto", "ata", "gta", "ringmaster:R=2"] {
        let settings = settings(policy);
        let ended = run(&settings, [batches("device"), batches("other"), WorkerSettings::new("one")]).await;
        if ["uta", "ata-auto", "ata"].contains(&policy) {
            check_but_for_rounding(&settings, &ended).await;
        }
        if policy == "uta" {
            let leases = leases(&ended, "device");
            assert_eq!(leases.len() as u64, settings.iterations);
            for times_s in leases.values() {
                assert!((10..=11).contains(&times_s.len()), "{times_s:?}");
                assert!(times_s.iter().all(|time_s| *time_s == times_s[0]), "{times_s:?}");
            }
        }
    }
}

/// The losers of copied tasks are cancelled before, during and after their computation. No worker is blamed for that.
#[tokio::test(flavor = "multi_thread")]
async fn leases_that_are_cancelled_late_are_in_no_vector_and_no_failure() {
    for policy in ["pull", "ata-auto"] {
        let settings = Settings { policy, min_workers: 3, iterations: 150, budget: 7, ..Settings::default() };
        let workers = [("one", 1500), ("two", 2000), ("three", 2600)].map(|(name, task_us)| WorkerSettings {
            task_time: Duration::from_micros(task_us),
            ..WorkerSettings::new(name)
        });
        let ended = run(&settings, workers).await;
        // A vector that was withdrawn while it was announced arrives late, which is not a failure.
        let is_blamed = |event: &&RunEvent| match event {
            RunEvent::Refusal { kind, .. } => *kind != RefusalKind::Stale,
            event => matches!(event, RunEvent::Rest { .. }),
        };
        assert_eq!(ended.events.iter().find(is_blamed), None, "{policy}");
        check(&settings, &ended).await;
    }
}

/// There are more leases than a message may report. A request names only their tasks, which form one range.
#[tokio::test(flavor = "multi_thread")]
async fn a_vector_may_be_the_sum_of_any_number_of_leases() {
    for (policy, overcommit, budget) in [("ata-auto", 0.0, 8193), ("pull", 0.0, 8193), ("uta", 0.1, 20_000)] {
        let settings = Settings { policy, overcommit, budget, iterations: 2, ..Settings::default() };
        let ended = run(&settings, [WorkerSettings::new("one")]).await;
        assert_eq!((ended.report.state.totals.tasks_applied, losses(&ended)), (2 * budget, vec![]), "{policy}");
    }
}
