//! A limit on how fast a worker's share may grow.
//!
//! A step waits for every share to be complete, and no worker can take over a part of another share. So a worker that only looks fast
//! delays all others. It is given a little more at first, and much more only if it still looks fast then.

/// The largest factor by which a worker's share may grow from one step to the next. After one step in which this kept the share
/// below the planned one, the factor is 2, after two in a row it is 4, and so on.
const FIRST: f64 = 1.25;

/// Limits shares, based on those of the previous step.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Each worker's share in the previous step, and the number of steps in a row in which it was smaller than planned.
    workers: Vec<(u64, i32)>,
}

impl Growth {
    /// Returns shares to use instead of the planned ones, with the same sum: the excess of a worker goes to the others in proportion to
    /// their shares. Workers without a previous step get their planned share.
    pub(super) fn limit(&mut self, meant: &[u64]) -> Vec<u64> {
        let most_after = |(share, limited): (u64, i32)| (share as f64 * FIRST.max(2.0_f64.powi(limited))) as u64 + 1;
        let before = |slot: usize| self.workers.get(slot).copied();
        let most: Vec<u64> = (0..meant.len()).map(|slot| before(slot).map_or(u64::MAX, most_after)).collect();
        let mut shares: Vec<u64> = meant.iter().zip(&most).map(|(meant, most)| *meant.min(most)).collect();
        let count = |slot: usize| before(slot).map_or(0, |(_, limited)| limited) + 1;
        let limited: Vec<i32> =
            (0..meant.len()).map(|slot| if shares[slot] < meant[slot] { count(slot) } else { 0 }).collect();
        for _ in shares.iter().sum::<u64>()..meant.iter().sum() {
            let fullness = |slot: &usize| (shares[*slot] + 1) as f64 / meant[*slot].max(1) as f64;
            let open = (0..meant.len()).filter(|slot| shares[*slot] < most[*slot]);
            // If no worker may have more, all share the rest.
            let open = open.min_by(|a, b| fullness(a).total_cmp(&fullness(b)));
            let next = open.or_else(|| (0..meant.len()).min_by(|a, b| fullness(a).total_cmp(&fullness(b))));
            shares[next.expect("tasks are meant for somebody")] += 1;
        }
        self.workers = shares.iter().copied().zip(limited).collect();
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEARNED: [u64; 4] = [195, 105, 50, 18];

    /// Returns the shares of several steps that have the same plan.
    fn steps(meant: &[u64], first: &[u64], count: usize) -> Vec<Vec<u64>> {
        let mut growth = Growth::default();
        assert_eq!(growth.limit(first), first, "nothing is known of the step before");
        let found: Vec<Vec<u64>> = (0..count).map(|_| growth.limit(meant)).collect();
        let sum = |shares: &[u64]| shares.iter().sum::<u64>();
        assert!(found.iter().all(|shares| sum(shares) == sum(meant)));
        found
    }

    fn shares_of(worker: usize, steps: &[Vec<u64>]) -> Vec<u64> {
        steps.iter().map(|shares| shares[worker]).collect()
    }

    #[test]
    fn small_changes_are_made_at_once() {
        assert_eq!(steps(&[190, 106, 50, 22], &LEARNED, 1), [[190, 106, 50, 22]]);
    }

    #[test]
    fn a_worker_that_looks_fast_gets_a_little_more_and_soon_all() {
        assert_eq!(shares_of(3, &steps(&[150, 80, 38, 100], &LEARNED, 4)), [23, 47, 100, 100]);
    }

    #[test]
    fn a_swap_of_speeds_is_followed_within_a_few_steps() {
        let found = steps(&[18, 105, 50, 195], &LEARNED, 6);
        assert_eq!(found[5], [18, 105, 50, 195]);
        assert!(shares_of(0, &found).is_sorted_by(|a, b| a >= b), "{found:?}");
    }

    #[test]
    fn a_worker_without_tasks_gets_some() {
        assert_eq!(shares_of(1, &steps(&[4, 4], &[8, 0], 4)), [1, 3, 4, 4]);
    }

    #[test]
    fn what_nobody_may_have_yet_is_computed_all_the_same() {
        assert_eq!(steps(&[0, 100], &[100, 0], 1), [[99, 1]]);
        assert_eq!(steps(&[50, 50], &[1, 1], 1), [[50, 50]]);
        assert_eq!(steps(&[0, 0, 100], &[0, 0, 100], 1), [[0, 0, 100]]);
    }

    #[test]
    fn a_worker_that_joins_is_not_limited() {
        assert_eq!(steps(&[40, 60], &[100], 1), [[40, 60]]);
    }
}
