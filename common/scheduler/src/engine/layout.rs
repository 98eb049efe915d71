//! Which task indices each share of an allocation gets.

use std::collections::BinaryHeap;

use crate::ids::{MAX_LEASE_TASKS, TaskRange};

/// Splits each share into powers of two and lays them out over the indices 0..B, largest first.
///
/// Each piece then starts at a multiple of its size, so it is one subtree of the reduction tree, and worker i returns
/// as many summed gradients as a_i has ones in binary (more if a piece would exceed [`MAX_LEASE_TASKS`]). Returns
/// (worker, tasks), each worker's largest piece first.
pub(super) fn lay_out(allocation: &[u64]) -> Vec<(usize, TaskRange)> {
    let employed: Vec<usize> = (0..allocation.len()).filter(|&worker| allocation[worker] > 0).collect();
    let largest = employed.iter().map(|&worker| allocation[worker]).max().unwrap_or(0);
    let mut pieces = Vec::with_capacity(employed.len() * 2);
    let mut first = 0;
    for exponent in (0..u64::BITS - largest.leading_zeros()).rev() {
        let share: u64 = 1 << exponent;
        let count = share.min(MAX_LEASE_TASKS);
        for &worker in employed.iter().filter(|&&worker| allocation[worker] & share != 0) {
            for _ in 0..share / count {
                pieces.push((worker, TaskRange { first, count }));
                first += count;
            }
        }
    }
    pieces
}

/// Gives out `tasks` (subtrees) so that each worker gets exactly its share of `allocation`, which sums to their number,
/// splitting a subtree in halves only if no share is large enough.
pub(super) fn share_out(tasks: Vec<TaskRange>, mut allocation: Vec<u64>) -> Vec<(usize, TaskRange)> {
    let mut by_size: BinaryHeap<(u64, TaskRange)> = tasks.into_iter().map(|range| (range.count, range)).collect();
    let mut pieces = Vec::new();
    while let Some((count, range)) = by_size.pop() {
        let (worker, share) =
            allocation.iter_mut().enumerate().max_by_key(|(_, share)| **share).expect("an allocation has workers");
        if *share >= count {
            *share -= count;
            pieces.push((worker, range));
        } else {
            by_size.extend(range.halves().map(|half| (half.count, half)));
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(pieces: &[(usize, TaskRange)], allocation: &[u64]) {
        let mut got = vec![0; allocation.len()];
        for &(worker, range) in pieces {
            assert!(range.is_subtree(), "{range:?}");
            got[worker] += range.count;
        }
        assert_eq!(got, allocation);
    }

    fn indices(pieces: &[(usize, TaskRange)]) -> Vec<u64> {
        let mut indices: Vec<u64> = pieces.iter().flat_map(|(_, range)| range.indices()).collect();
        indices.sort_unstable();
        indices
    }

    proptest! {
        #[test]
        fn pieces_are_subtrees_that_cover_the_budget_once(allocation in prop::collection::vec(0u64..40, 1..8)) {
            let pieces = lay_out(&allocation);
            check(&pieces, &allocation);
            prop_assert_eq!(indices(&pieces), (0..allocation.iter().sum()).collect::<Vec<u64>>());
            prop_assert_eq!(pieces.len() as u32, allocation.iter().map(|a| a.count_ones()).sum::<u32>());
        }

        #[test]
        fn sharing_out_keeps_shares_and_indices(
            lost in prop::collection::vec(0u64..40, 1..4),
            weights in prop::collection::vec(1u64..100, 1..5),
        ) {
            let tasks: Vec<TaskRange> = lay_out(&lost).into_iter().map(|(_, range)| range).collect();
            let total: u64 = lost.iter().sum();
            let sum: u64 = weights.iter().sum();
            let mut allocation: Vec<u64> = weights.iter().map(|weight| total * weight / sum).collect();
            allocation[0] += total - allocation.iter().sum::<u64>();
            let pieces = share_out(tasks, allocation.clone());
            check(&pieces, &allocation);
            prop_assert_eq!(indices(&pieces), (0..total).collect::<Vec<u64>>());
        }
    }

    #[test]
    fn no_piece_is_larger_than_a_lease_may_be() {
        let allocation = [5 * MAX_LEASE_TASKS + 3, 1];
        let pieces = lay_out(&allocation);
        check(&pieces, &allocation);
        assert_eq!(pieces.iter().map(|(_, range)| range.count).max(), Some(MAX_LEASE_TASKS));
        assert_eq!(pieces.len(), 5 + 2 + 1);
    }

    #[test]
    fn a_share_is_split_by_its_binary_digits() {
        let pieces = lay_out(&[9, 4, 2, 1]);
        let expected = [(0, 0, 8), (1, 8, 4), (2, 12, 2), (0, 14, 1), (3, 15, 1)];
        assert_eq!(pieces, expected.map(|(worker, first, count)| (worker, TaskRange { first, count })));
    }
}
