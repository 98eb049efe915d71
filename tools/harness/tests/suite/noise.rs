//! Tests the gradient noise scale of runs.

use std::sync::Arc;

use ata_harness::{Settings, WorkerSettings, toy};
use ata_learn::{Model, ModelError, with_squares};
use ata_record::RunEvent;
use ata_types::WireFormat;

use crate::{Ended, run};

fn measured_toy(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    toy(specification).map(with_squares)
}

fn workers(count: usize) -> impl Iterator<Item = WorkerSettings> {
    ["one", "two", "three"].into_iter().take(count).map(WorkerSettings::new)
}

/// Returns the noise scale after each step.
fn scales(ended: &Ended) -> Vec<Option<f64>> {
    let scale = |event: &RunEvent| match event {
        RunEvent::Step { noise_scale, .. } => Some(*noise_scale),
        _ => None,
    };
    ended.events.iter().filter_map(scale).collect()
}

/// Who computes does not matter, and measuring changes no bit. In the compact format, it changes how the last values are rounded: they are in a
/// block with the tally.
#[tokio::test(flavor = "multi_thread")]
async fn the_noise_scale_is_the_same_for_all_workers_and_changes_no_step() {
    for format in [WireFormat::F32Exact, WireFormat::Compact] {
        let plain = Settings { format, iterations: 40, min_workers: 3, model: "toy:300", ..Settings::default() };
        let measured = Settings { models: measured_toy, ..plain.clone() };
        let three = run(&measured, workers(3)).await;
        let one = run(&Settings { min_workers: 1, ..measured.clone() }, workers(1)).await;
        let unmeasured = run(&plain, workers(3)).await;
        assert!(three.report.ended.is_ok(), "{:?}", three.report.ended);
        assert_eq!(one.report.parameters_sha256, three.report.parameters_sha256, "{format}");
        assert_eq!(scales(&one), scales(&three), "{format}");
        if format == WireFormat::F32Exact {
            assert_eq!(losses(&three), losses(&unmeasured));
        }
        // It is known after a few steps, and no longer once θ is the mean of the samples, whose distances are the gradients.
        let known: Vec<f64> = scales(&three).into_iter().flatten().collect();
        assert!(scales(&three)[0].is_none() && known.first() < known.last(), "{format}: {known:?}");
        assert!(scales(&unmeasured).iter().all(Option::is_none));
    }
}

fn losses(ended: &Ended) -> Vec<u64> {
    let loss = |event: &RunEvent| match event {
        RunEvent::Step { loss, .. } => Some(loss.to_bits()),
        _ => None,
    };
    ended.events.iter().filter_map(loss).collect()
}
