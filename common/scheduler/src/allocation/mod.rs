//! Allocations: how many tasks each worker gets.
//!
//! An allocation has one number per worker that it was made for; the numbers add up to the budget.

mod per_worker;
mod ras;

pub use per_worker::PerWorker;
pub(crate) use ras::cost_of_last_task;
pub use ras::{ras, ras_by_cost};

use std::fmt;

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

/// The rule that made an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Every score is positive, and the allocation is that of RAS.
    Ras,
    /// Some score is not positive, and those workers are tried first.
    WarmUp {
        /// The number of workers without an observation.
        never_observed: usize,
        /// The number of observed workers whose score is still zero.
        zero_score: usize,
    },
    /// All workers get equal shares, whatever their speeds.
    Uniform,
    /// Every worker computes until enough gradients have arrived.
    Racing,
    /// The workers with the smallest scores get one task each.
    Fastest {
        /// The number of these workers.
        workers: u64,
    },
    /// Every worker computes all the time, and each gradient makes a step.
    Asynchronous,
    /// The rule of a policy from outside this crate.
    Named(&'static str),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ras => f.write_str("ras"),
            Self::WarmUp { never_observed, zero_score } => {
                write!(f, "warm-up ({never_observed} never observed, {zero_score} with score 0)")
            }
            Self::Uniform => f.write_str("uniform"),
            Self::Racing => f.write_str("racing"),
            Self::Fastest { workers } => write!(f, "the {workers} of smallest score"),
            Self::Asynchronous => f.write_str("asynchronous"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

/// Allocates `budget` tasks by the workers' scores (lower confidence bounds, seconds per task).
///
/// `never_observed(i)` returns whether worker i has no observation; its score is then 0.
///
/// If all scores are positive, this is [`ras`](fn@crate::ras). Otherwise the workers never observed get exactly one task each (if
/// there are more than `budget`, a random `budget` of them do), and the rest goes in equal shares, the remainder at random, to the
/// observed workers with scores ≤ 0: RAS would also give them everything, since their tasks cost nothing by their scores. If there
/// is no such worker, the rest goes by RAS to the workers with positive scores or, if every worker is new, in equal shares to all.
///
/// # Panics
/// If there is no worker, or a score is not finite.
pub fn allocate_by_score(
    scores: &[f64],
    never_observed: impl Fn(usize) -> bool,
    budget: u64,
    rng: &mut impl Rng,
) -> (Vec<u64>, Rule) {
    if scores.iter().all(|&score| score > 0.0) {
        return (ras(scores, budget, rng), Rule::Ras);
    }
    let (mut new, mut rest) = (Vec::new(), Vec::new());
    for (i, _) in scores.iter().enumerate().filter(|(_, score)| **score <= 0.0) {
        if never_observed(i) { &mut new } else { &mut rest }.push(i);
    }
    let rule = Rule::WarmUp { never_observed: new.len(), zero_score: rest.len() };

    let mut allocation = vec![0; scores.len()];
    let tried = budget.min(new.len() as u64);
    add_one_to_random(&mut allocation, &mut new, tried as usize, rng);
    let left = budget - tried;
    if !rest.is_empty() {
        share_equally(&mut allocation, &mut rest, left, rng);
    } else if new.len() == scores.len() {
        share_equally(&mut allocation, &mut new, left, rng);
    } else if left > 0 {
        let (known, scores): (Vec<usize>, Vec<f64>) =
            scores.iter().enumerate().filter(|(_, score)| **score > 0.0).unzip();
        for (i, tasks) in known.into_iter().zip(ras(&scores, left, rng)) {
            allocation[i] += tasks;
        }
    }
    (allocation, rule)
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

    fn allocate(scores: &[f64], new: &[usize], budget: u64, seed: u64) -> (Vec<u64>, Rule) {
        allocate_by_score(scores, |i| new.contains(&i), budget, &mut ChaCha8Rng::seed_from_u64(seed))
    }

    /// The warm-up rule: workers never observed get one task each, or a random `budget` of them do; if every worker is new, all get equal
    /// shares. A newcomer to a warmed-up cluster is tried with one task, and positive scores are left to RAS.
    #[test]
    fn new_workers_are_tried_first() {
        let few = allocate(&[0.0; 6], &[0, 1, 2, 3, 4, 5], 4, 1).0;
        assert!(few.iter().sum::<u64>() == 4 && few.iter().all(|&tasks| tasks <= 1), "{few:?}");
        let all = allocate(&[0.0; 3], &[0, 1, 2], 8, 1).0;
        assert!(all.iter().sum::<u64>() == 8 && all.iter().all(|tasks| [2, 3].contains(tasks)), "{all:?}");
        assert_eq!(allocate(&[1.0, 2.0, 0.0], &[2], 7, 1).0, [4, 2, 1]);
        assert_eq!(allocate(&[1.0, 2.0], &[], 3, 1), (vec![2, 1], Rule::Ras));
    }

    /// The warm-up rule: "the rest of the budget goes only to the m workers with score ≤ 0, ⌊B/m⌋ each and the remainder to a random
    /// subset drawn afresh; workers with positive scores get none".
    #[test]
    fn zero_scores_share_the_rest() {
        let scores = [3.0, 0.0, 0.0, 0.0];
        let mut largest = [0; 4];
        for seed in 0..20 {
            let (allocation, rule) = allocate(&scores, &[3], 8, seed);
            assert_eq!(rule, Rule::WarmUp { never_observed: 1, zero_score: 2 });
            assert_eq!((allocation[0], allocation[3]), (0, 1));
            assert_eq!(allocation[1] + allocation[2], 7);
            assert!(allocation[1].abs_diff(allocation[2]) == 1);
            for (max, a) in largest.iter_mut().zip(allocation) {
                *max = a.max(*max);
            }
        }
        assert_eq!(largest, [0, 4, 4, 1], "either worker must get the remainder at times");
    }
}
