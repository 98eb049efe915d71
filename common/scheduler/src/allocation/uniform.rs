//! Equal shares.

use rand::Rng;

use super::add_one_to_random;

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
pub(super) fn share_equally(allocation: &mut [u64], among: &mut [usize], budget: u64, rng: &mut impl Rng) {
    let share = budget / among.len() as u64;
    for &mut worker in &mut *among {
        allocation[worker] += share;
    }
    add_one_to_random(allocation, among, (budget % among.len() as u64) as usize, rng);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::ChaCha8Rng;

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
