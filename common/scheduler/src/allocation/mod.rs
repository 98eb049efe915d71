//! Allocations: how many tasks each worker gets.
//!
//! An allocation has one number per worker that it was made for; the numbers add up to the budget.

mod by_score;
mod per_worker;
mod ras;
mod ras_by_cost;

pub use by_score::{Rule, allocate_by_score};
pub use per_worker::PerWorker;
pub use ras::ras;
pub use ras_by_cost::ras_by_cost;

use rand::Rng;
use rand::seq::SliceRandom;

/// Allocates equal shares: ⌊B/n⌋ tasks for each of `workers` workers, and one more for each worker of a random subset.
///
/// # Panics
/// If there is no worker.
pub fn uniform(workers: usize, budget: u64, rng: &mut impl Rng) -> Vec<u64> {
    assert!(workers > 0, "an allocation needs a worker");
    let mut allocation = vec![0; workers];
    share_equally(&mut allocation, &mut (0..workers).collect::<Vec<_>>(), budget, rng);
    allocation
}

/// Adds `budget` tasks to the workers in `among` in equal shares, the remainder to a random subset of them.
fn share_equally(allocation: &mut [u64], among: &mut [usize], budget: u64, rng: &mut impl Rng) {
    let share = budget / among.len() as u64;
    for &mut worker in &mut *among {
        allocation[worker] += share;
    }
    add_one_to_random(allocation, among, (budget % among.len() as u64) as usize, rng);
}

fn add_one_to_random(allocation: &mut [u64], candidates: &mut [usize], amount: usize, rng: &mut impl Rng) {
    let (chosen, _) = candidates.partial_shuffle(rng, amount);
    for &mut worker in chosen {
        allocation[worker] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::ChaCha8Rng;

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

    /// UTA (arXiv 2502.00775, section 6): ⌊B/n⌋ each, the remainder to a random subset that is drawn anew each time.
    #[test]
    fn shares_differ_by_one_and_the_remainder_moves() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut extra = [0_u64; 5];
        for _ in 0..1000 {
            let allocation = uniform(5, 23, &mut rng);
            assert_eq!(allocation.iter().sum::<u64>(), 23);
            for (count, a) in extra.iter_mut().zip(&allocation) {
                assert!(*a == 4 || *a == 5);
                *count += a - 4;
            }
        }
        assert!(extra.iter().all(|&count| (530..670).contains(&count)), "{extra:?}");
    }
}
