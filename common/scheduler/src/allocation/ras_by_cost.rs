//! RAS for any non-decreasing costs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::Rng;
use rand::seq::SliceRandom;

/// Returns an allocation of `budget` tasks to `workers` workers that minimizes the largest `cost(worker, tasks)`, where `cost` is
/// positive, finite and non-decreasing in `tasks` ≥ 1; for example an overhead per assignment and a time per task,
/// o_i + a·s_i. An idle worker costs nothing.
///
/// A minimizer takes the B smallest of all cost(i, 1), cost(i, 2), …, found with a heap in O(n + B log min(n, B)). Of
/// several minimizers it returns one with the fewest workers attaining the maximum, ties broken at random (uniformly,
/// unless a cost is flat over several tasks).
///
/// # Panics
/// If there are tasks but no worker.
pub fn ras_by_cost(workers: usize, budget: u64, cost: impl Fn(usize, u64) -> f64, rng: &mut impl Rng) -> Vec<u64> {
    let mut allocation = vec![0; workers];
    if budget == 0 {
        return allocation;
    }
    assert!(workers > 0, "RAS needs a worker");

    let last = cost_of_last_task(&mut allocation, budget, &cost);

    // Tasks that end exactly at `last` are interchangeable, so they are taken back and handed out again.
    for (worker, a) in allocation.iter_mut().enumerate() {
        while *a > 0 && cost(worker, *a) >= last {
            *a -= 1;
        }
    }
    let mut missing = budget - allocation.iter().sum::<u64>();
    let mut tied: Vec<(usize, u64)> = allocation
        .iter()
        .enumerate()
        .map(|(worker, &a)| (worker, (1..=missing).take_while(|&extra| cost(worker, a + extra) <= last).count() as u64))
        .filter(|&(_, flat)| flat > 0)
        .collect();
    tied.shuffle(rng);
    // A worker that can take several at the same cost comes first, so that few workers attain the maximum.
    tied.sort_by_key(|&(_, flat)| Reverse(flat));
    for (worker, flat) in tied {
        let take = flat.min(missing);
        allocation[worker] += take;
        missing -= take;
    }
    debug_assert_eq!(missing, 0);
    allocation
}

/// Allocates the tasks greedily; returns the cost of the last one, which is the least possible maximum.
fn cost_of_last_task(allocation: &mut [u64], budget: u64, cost: &impl Fn(usize, u64) -> f64) -> f64 {
    // The bits of non-negative numbers have the order of the numbers.
    let mut first: Vec<(u64, usize)> =
        (0..allocation.len()).map(|worker| (cost(worker, 1).to_bits(), worker)).collect();
    if budget < first.len() as u64 {
        // A worker that is not among the `budget` cheapest gets nothing.
        first.select_nth_unstable(budget as usize - 1);
        first.truncate(budget as usize);
    }
    let mut offers: BinaryHeap<Reverse<(u64, usize)>> = first.into_iter().map(Reverse).collect();
    let mut last = 0.0;
    for _ in 0..budget {
        let mut best = offers.peek_mut().expect("each worker always offers its next task");
        let Reverse((bits, worker)) = *best;
        last = f64::from_bits(bits);
        allocation[worker] += 1;
        best.0.0 = cost(worker, allocation[worker] + 1).to_bits();
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::tests::optimal;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::ChaCha8Rng;

    proptest! {
        /// Costs are running sums of small steps, some of which are zero and make flat stretches.
        #[test]
        fn is_a_minimizer_of_fewest_maxima(
            steps in prop::collection::vec(prop::collection::vec(0u32..3, 7), 1..5),
            budget in 0u64..7,
            seed: u64,
        ) {
            let cost = |worker: usize, tasks: u64| {
                1.0 + f64::from(steps[worker][..tasks.min(7) as usize].iter().sum::<u32>()) + tasks.saturating_sub(7) as f64
            };
            let allocation = ras_by_cost(steps.len(), budget, cost, &mut ChaCha8Rng::seed_from_u64(seed));
            let expected = optimal(steps.len(), budget, cost);
            prop_assert!(expected.contains(&allocation), "{:?} is not among {:?}", allocation, expected);
        }
    }

    #[test]
    fn overhead_per_assignment_concentrates_work() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let allocation = ras_by_cost(2, 4, |i, a| [0.0, 10.0][i] + a as f64, &mut rng);
        assert_eq!(allocation, [4, 0]);
    }
}
