//! RAS: allocations with which the last worker finishes as early as possible, for costs that are proportional to the number of tasks, and for
//! any non-decreasing ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::Rng;
use rand::seq::SliceRandom;

use super::add_one_to_random;

/// Allocates `budget` tasks so that the last worker finishes as early as possible: RAS(s; B), an allocation a that
/// minimizes max_i a_i·s_i (ATA paper, section 3).
///
/// `scores` are seconds per task, one per worker, all positive and finite. Of several minimizers it returns one with
/// the fewest workers attaining the maximum, uniformly at random.
///
/// The tasks' finishing times are the multiples 1·s_i, 2·s_i, … of all workers, and a minimizer takes the B smallest of them. Let R
/// = Σ 1/s_i. At time B/R at most B multiples have passed, at (B + n)/R at least B, and at most about 2n of them lie in between. So
/// the B-th smallest is found by one selection among those, in O(n) time for any budget.
///
/// # Panics
/// If there is no worker, or a score is not positive and finite.
pub fn ras(scores: &[f64], budget: u64, rng: &mut impl Rng) -> Vec<u64> {
    assert!(!scores.is_empty(), "RAS needs a worker");
    assert!(scores.iter().all(|s| s.is_finite() && *s > 0.0), "RAS needs positive, finite scores");
    // Rates are relative to the fastest worker, so that no score overflows its reciprocal.
    let fastest = scores.iter().copied().fold(f64::INFINITY, f64::min);
    let rate: f64 = scores.iter().map(|s| fastest / s).sum();
    let time_of = |multiples: f64| fastest * (multiples / rate);

    let (mut allocation, taken) = allocate_until(scores, budget, time_of(budget as f64));
    let mut missing = budget - taken;
    if missing == 0 {
        return allocation;
    }

    let enough = (budget as f64 + scores.len() as f64 + 1.0) * (1.0 + 1e-9);
    let time = time_of(enough);
    let mut next = Vec::with_capacity(scores.len() + scores.len() / 2);
    for (&score, &a) in scores.iter().zip(&allocation) {
        next.extend((a + 1..=a + missing).map(|count| multiple(count, score)).take_while(|&end| end <= time));
    }
    let (_, &mut last, _) = next.select_nth_unstable_by(missing as usize - 1, f64::total_cmp);

    // All multiples below `last` are taken; of those equal to it, a random choice fills the remaining places.
    let mut tied = Vec::new();
    for (worker, (a, &score)) in allocation.iter_mut().zip(scores).enumerate() {
        while multiple(*a + 1, score) < last {
            *a += 1;
            missing -= 1;
        }
        if multiple(*a + 1, score) == last {
            tied.push(worker);
        }
    }
    add_one_to_random(&mut allocation, &mut tied, missing as usize, rng);
    allocation
}

/// Returns the time of the `count`-th task. Rounded products are non-decreasing in `count`, so comparing them is exact.
fn multiple(count: u64, score: f64) -> f64 {
    count as f64 * score
}

/// Returns how many multiples of each score are at most `time`, and their total. If rounding made `time` late enough for more than
/// `budget`, it uses a slightly earlier time.
fn allocate_until(scores: &[f64], budget: u64, mut time: f64) -> (Vec<u64>, u64) {
    let mut back_off = 1e-12;
    loop {
        let mut total = 0_u64;
        let allocation = scores
            .iter()
            .map(|&score| {
                let mut count = ((time / score) as u64).min(budget);
                while count > 0 && multiple(count, score) > time {
                    count -= 1;
                }
                while count < budget && multiple(count + 1, score) <= time {
                    count += 1;
                }
                total = total.saturating_add(count);
                count
            })
            .collect();
        if total <= budget {
            return (allocation, total);
        }
        time *= 1.0 - back_off;
        back_off *= 2.0;
    }
}

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

/// Allocates the tasks greedily, at least one; returns the cost of the last one, which is the least possible maximum.
pub(crate) fn cost_of_last_task(allocation: &mut [u64], budget: u64, cost: &impl Fn(usize, u64) -> f64) -> f64 {
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
    use std::collections::HashMap;

    fn rng() -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(7)
    }

    /// The optimal allocation of the ATA paper's experiment (arXiv 2502.00775, section 6): means 2·29i, n = 51, B = 23.
    #[test]
    fn published_allocation() {
        let scores: Vec<f64> = (1..=51).map(|i| f64::from(58 * i)).collect();
        let allocation = ras(&scores, 23, &mut rng());
        assert_eq!(allocation[..9], [9, 4, 3, 2, 1, 1, 1, 1, 1]);
        assert!(allocation[9..].iter().all(|&a| a == 0));
        let budget_far_beyond_memory = 1_000_000_000_000;
        let allocation = ras(&[1.0, 3.0, 0.3], budget_far_beyond_memory, &mut rng());
        assert_eq!(allocation.iter().sum::<u64>(), budget_far_beyond_memory);
    }

    /// Every minimizer with the fewest maxima must occur, and all about equally often (3 sigma of 6000 draws is 0.02).
    #[test]
    fn ties_are_broken_uniformly() {
        let scores = [2.0, 2.0, 1.0, 2.0];
        let expected = optimal(4, 3, |i, a| multiple(a, scores[i]));
        let mut rng = rng();
        let mut seen: HashMap<Vec<u64>, u32> = HashMap::new();
        for _ in 0..6000 {
            *seen.entry(ras(&scores, 3, &mut rng)).or_default() += 1;
        }
        assert_eq!(seen.len(), expected.len());
        for allocation in &expected {
            let share = f64::from(seen[allocation]) / 6000.0;
            assert!((share - 1.0 / expected.len() as f64).abs() < 0.02, "{allocation:?}: {share}");
        }
    }

    proptest! {
        #[test]
        fn is_a_minimizer_of_fewest_maxima(
            scores in prop::collection::vec(prop_oneof![1u32..6, 1u32..1000], 1..5),
            unit in prop_oneof![Just(1.0), Just(0.1), Just(1e-300), Just(1e300)],
            budget in 0u64..8,
            seed: u64,
        ) {
            let scores: Vec<f64> = scores.into_iter().map(|s| f64::from(s) * unit).collect();
            let allocation = ras(&scores, budget, &mut ChaCha8Rng::seed_from_u64(seed));
            let expected = optimal(scores.len(), budget, |i, a| multiple(a, scores[i]));
            prop_assert!(expected.contains(&allocation), "{:?} is not among {:?}", allocation, expected);
        }

        #[test]
        fn large_instances_agree_with_the_heap(
            scores in prop::collection::vec(prop_oneof![(1u32..20).prop_map(f64::from), 1e-6f64..1e3], 1..200),
            budget in 0u64..5000,
            seed: u64,
        ) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let max = |allocation: &[u64]| {
                allocation.iter().zip(&scores).map(|(&a, &s)| multiple(a, s)).fold(0.0, f64::max)
            };
            let fast = ras(&scores, budget, &mut rng);
            let heap = ras_by_cost(scores.len(), budget, |i, a| multiple(a, scores[i]), &mut rng);
            prop_assert_eq!(fast.iter().sum::<u64>(), budget);
            prop_assert_eq!(max(&fast), max(&heap));
        }

        /// Costs are running sums of small steps, some of which are zero and make flat stretches.
        #[test]
        fn is_a_minimizer_for_any_costs(
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
