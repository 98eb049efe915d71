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

    /// Checks the shares of several steps that have the same plan, after a first one.
    fn check(first: &[u64], meant: &[u64], expected: &[&[u64]]) {
        let mut growth = Growth::default();
        assert_eq!(growth.limit(first), first, "nothing is known of the step before");
        for (step, expected) in expected.iter().enumerate() {
            assert_eq!(growth.limit(meant), *expected, "{first:?} {meant:?} {step}");
        }
    }

    #[test]
    fn shares_grow_slowly_at_first() {
        // Small changes are made at once.
        check(&[195, 105, 50, 18], &[190, 106, 50, 22], &[&[190, 106, 50, 22]]);
        check(&[8, 0], &[4, 4], &[&[7, 1], &[5, 3], &[4, 4], &[4, 4]]);
        // What no worker may have yet is computed all the same.
        check(&[100, 0], &[0, 100], &[&[99, 1]]);
        check(&[1, 1], &[50, 50], &[&[50, 50]]);
        check(&[0, 0, 100], &[0, 0, 100], &[&[0, 0, 100]]);
        // A worker that joins is not limited.
        check(&[100], &[40, 60], &[&[40, 60]]);
        let mut growth = Growth::default();
        growth.limit(&[195, 105, 50, 18]);
        let shares: Vec<u64> = (0..4).map(|_| growth.limit(&[150, 80, 38, 100])[3]).collect();
        assert_eq!(shares, [23, 47, 100, 100]);
    }
}
