//! Tests workers that compute a lease as one batch, among others that do not, on a real cluster.

use std::collections::BTreeMap;

use ata_harness::{Ended, Settings, WorkerSettings, toy};
use ata_record::RunEvent;
use ata_sums::decode_model;
use ata_types::LeaseId;

use crate::{applied, number, run};

/// Returns settings with a budget whose equal shares are not powers of two, and a model whose sums depend on their order.
fn settings(policy: &'static str) -> Settings {
    Settings { policy, model: "toy:500", budget: 31, iterations: 30, min_workers: 3, ..Settings::default() }
}

fn batches(name: &str) -> WorkerSettings {
    WorkerSettings { fuses: true, ..WorkerSettings::new(name) }
}

/// Checks that every task entered a step once, and that the parameters are those of one
/// ordinary worker, except for rounding.
async fn check(settings: &Settings, ended: &Ended) {
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
            check(&settings, &ended).await;
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
