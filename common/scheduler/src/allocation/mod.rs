//! Allocations: how many tasks each worker gets.
//!
//! An allocation has one number per worker that it was made for; the numbers add up to the budget.

mod by_score;
mod per_worker;
mod ras;
mod ras_by_cost;
mod uniform;

pub use by_score::{Rule, allocate_by_score};
pub use per_worker::PerWorker;
pub use ras::ras;
pub use ras_by_cost::ras_by_cost;
pub use uniform::uniform;

use rand::Rng;
use rand::seq::SliceRandom;

/// Adds one task to each of `amount` workers drawn uniformly at random from `candidates`.
fn add_one_to_random(allocation: &mut [u64], candidates: &mut [usize], amount: usize, rng: &mut impl Rng) {
    let (chosen, _) = candidates.partial_shuffle(rng, amount);
    for &mut worker in chosen {
        allocation[worker] += 1;
    }
}

#[cfg(test)]
mod tests {
    /// Returns all allocations of `budget` tasks to `workers` workers.
    pub(crate) fn allocations(workers: usize, budget: u64) -> Vec<Vec<u64>> {
        if workers == 1 {
            return vec![vec![budget]];
        }
        let mut all = Vec::new();
        for first in 0..=budget {
            for mut rest in allocations(workers - 1, budget - first) {
                rest.insert(0, first);
                all.push(rest);
            }
        }
        all
    }

    /// Returns the allocations with the least maximal cost and, among those, the fewest workers attaining it.
    pub(crate) fn optimal(workers: usize, budget: u64, cost: impl Fn(usize, u64) -> f64) -> Vec<Vec<u64>> {
        let key = |allocation: &Vec<u64>| {
            let costs: Vec<f64> =
                allocation.iter().enumerate().map(|(i, &a)| if a == 0 { 0.0 } else { cost(i, a) }).collect();
            let max = costs.iter().copied().fold(0.0, f64::max);
            (max, costs.iter().filter(|&&c| c == max).count())
        };
        let all = allocations(workers, budget);
        let best = all.iter().map(key).min_by(|a, b| a.partial_cmp(b).expect("no NaN")).expect("some allocation");
        all.into_iter().filter(|allocation| key(allocation) == best).collect()
    }
}
