//! Benchmarks RAS against a heap that hands out one task at a time.

use std::hint::black_box;
use std::time::Duration;

use ata_scheduler::{ras, ras_by_cost};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use crate::bench::{Figure, pair};

pub(crate) fn measure() -> Vec<Figure> {
    // Small allocations are timed a thousand at a time because a single one is too short for the clock.
    vec![
        figure("allocation, n = 51, B = 23", 51, 23, 1000),
        figure("allocation, n = B = 10^6", 1_000_000, 1_000_000, 1),
    ]
}

fn figure(name: &str, workers: usize, budget: u64, repeat: u32) -> Figure {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let scores: Vec<f64> = (1..=workers).map(|i| i as f64 * rng.random_range(0.5..1.5)).collect();
    let mut other = ChaCha8Rng::seed_from_u64(1);
    let (fast, heap) = pair(
        11,
        || (0..repeat).for_each(|_| drop(black_box(ras(black_box(&scores), budget, &mut rng)))),
        || {
            let cost = |worker: usize, tasks: u64| scores[worker] * tasks as f64;
            (0..repeat).for_each(|_| drop(black_box(ras_by_cost(workers, budget, cost, &mut other))));
        },
    );
    let each = |total: Duration| total / repeat;
    Figure::new(name, each(fast), "greedy, with a heap", each(heap))
}
