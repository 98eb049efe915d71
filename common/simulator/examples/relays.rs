//! Shows the limits of a single coordinator, and what a tree of relays would change. docs/explanation/scale.md has the reasons and
//! the results.
//!
//! ```text
//! cargo run --release -p ata-simulator --example relays
//! ```
//!
//! A relay is a worker to the coordinator and a coordinator to its own workers. It gets an aligned range of tasks, shares it out,
//! and returns one sum. Iterations are simulated with random task times; transfers take the quotient of bytes and bandwidth.

use std::ops::Range;

use ata_scheduler::{ras, ras_by_cost};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// Bytes per second of each machine's network card, in each direction: 10 Gbit/s.
const BANDWIDTH: f64 = 1.25e9;

/// Bytes per second that a coordinator checks, copies and sums with all its cores, measured by `ata-dev bench coordination` on two cores.
const SUMMED: f64 = 4e9;

/// The size of a chunk in bytes. A relay passes on each chunk that it has received.
const CHUNK: f64 = (1 << 20) as f64;

/// Mean seconds per task of the fastest worker; the slowest takes eight times as long.
const FASTEST_S: f64 = 0.05;

const ITERATIONS: usize = 50;

struct Cluster {
    means: Vec<f64>,
    rng: ChaCha8Rng,
}

impl Cluster {
    fn new(workers: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(workers as u64);
        let means = (0..workers).map(|_| FASTEST_S * 8_f64.powf(rng.random())).collect();
        Self { means, rng }
    }

    /// Returns the seconds until the last of some workers has done its share: half of a task's mean is fixed, half is exponential.
    fn compute_s(&mut self, workers: Range<usize>, shares: &[u64]) -> f64 {
        let Self { means, rng } = self;
        let mut time_s = |mean: f64| mean * (0.5 - 0.5 * (1.0 - rng.random::<f64>()).ln());
        let each = means[workers].iter().zip(shares).map(|(mean, share)| (0..*share).map(|_| time_s(*mean)).sum());
        each.fold(0.0, f64::max)
    }

    /// Returns the seconds of an iteration: (computing, transfers).
    fn with_one_coordinator(&mut self, budget: u64, bytes: f64) -> (f64, f64) {
        let shares = ras(&self.means, budget, &mut self.rng);
        (self.compute_s(0..self.means.len(), &shares), transfer_s(employed(&shares), bytes))
    }

    /// Returns the same for relays with equal numbers of workers.
    fn with_relays(&mut self, relays: usize, budget: u64, bytes: f64) -> (f64, f64) {
        let group = self.means.len() / relays;
        let of = |relay: usize| relay * group..(relay + 1) * group;
        // A relay does at most a few times its part of the budget.
        let most = (4 * budget / relays as u64).clamp(8, budget.max(8));
        let costs: Vec<_> = (0..relays).map(|relay| line(&staircase(&self.means[of(relay)], most))).collect();
        let shares = ras_by_cost(relays, budget, |relay, tasks| costs[relay](tasks), &mut self.rng);
        let (mut compute_s, mut below) = (0.0_f64, 0);
        for (relay, share) in shares.into_iter().enumerate().filter(|(_, share)| *share > 0) {
            let within = ras(&self.means[of(relay)], share, &mut self.rng);
            compute_s = compute_s.max(self.compute_s(of(relay), &within));
            below = below.max(employed(&within));
        }
        // Chunks are passed on as they arrive: the busier of the two levels determines the time, and the other adds one chunk.
        (compute_s, transfer_s(below.max(relays), bytes) + transfer_s(below.min(relays), bytes.min(CHUNK)))
    }
}

fn employed(shares: &[u64]) -> usize {
    shares.iter().filter(|share| **share > 0).count()
}

/// Returns the seconds to send parameters to some workers, and to receive and sum their gradients.
fn transfer_s(workers: usize, bytes: f64) -> f64 {
    workers as f64 * bytes * (2.0 / BANDWIDTH + 1.0 / SUMMED)
}

/// Returns the least times in which a group does 1, 2, … `most` tasks: the multiples of its workers' task times, in order.
fn staircase(means: &[f64], most: u64) -> Vec<f64> {
    let rate: f64 = means.iter().map(|mean| 1.0 / mean).sum();
    let horizon_s = most as f64 / rate + means.iter().copied().fold(0.0, f64::max);
    let multiples = |mean: &f64| (1..=(horizon_s / mean) as u64).map(|tasks| tasks as f64).collect::<Vec<_>>();
    let mut times: Vec<f64> =
        means.iter().flat_map(|mean| multiples(mean).into_iter().map(move |tasks| tasks * mean)).collect();
    times.sort_unstable_by(f64::total_cmp);
    times.truncate(most as usize);
    times
}

/// Returns the line o + a·s that fits a staircase best by least squares, which is what can be learned about a worker.
fn line(staircase: &[f64]) -> impl Fn(u64) -> f64 + use<> {
    let n = staircase.len() as f64;
    let (mean_a, mean_t) = (f64::midpoint(n, 1.0), staircase.iter().sum::<f64>() / n);
    let centred = (1..).zip(staircase).map(|(a, t)| (f64::from(a) - mean_a, t - mean_t));
    let (products, squares) = centred.fold((0.0, 0.0), |(p, s), (a, t)| (p + a * t, s + a * a));
    let slope = if squares > 0.0 { products / squares } else { 0.0 };
    move |tasks| (mean_t + slope * (tasks as f64 - mean_a)).max(1e-9)
}

fn mean(mut iteration: impl FnMut() -> (f64, f64)) -> (f64, f64) {
    let sums = (0..ITERATIONS).map(|_| iteration()).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (sums.0 / ITERATIONS as f64, sums.1 / ITERATIONS as f64)
}

fn main() {
    println!("B = 4 n; seconds per iteration, computing + transfers");
    println!(
        "{:>8}{:>9}{:>20}{:>9}{:>20}{:>8}",
        "workers", "model", "one coordinator", "relays", "with relays", "ratio"
    );
    for workers in [16, 64, 256, 1024, 4096] {
        for bytes in [640e3, 10e6, 100e6] {
            let mut cluster = Cluster::new(workers);
            let (budget, relays) = (4 * workers as u64, (workers as f64).sqrt() as usize);
            let one = mean(|| cluster.with_one_coordinator(budget, bytes));
            let tree = mean(|| cluster.with_relays(relays, budget, bytes));
            println!(
                "{workers:>8}{:>6.1} MB{:>11.2} + {:>6.2}{relays:>9}{:>11.2} + {:>6.2}{:>8.2}",
                bytes / 1e6,
                one.0,
                one.1,
                tree.0,
                tree.1,
                (one.0 + one.1) / (tree.0 + tree.1)
            );
        }
    }
}
