//! RAS for costs that are proportional to the number of tasks.

use rand::Rng;

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
            let heap = crate::ras_by_cost(scores.len(), budget, |i, a| multiple(a, scores[i]), &mut rng);
            prop_assert_eq!(fast.iter().sum::<u64>(), budget);
            prop_assert_eq!(max(&fast), max(&heap));
        }
    }
}
