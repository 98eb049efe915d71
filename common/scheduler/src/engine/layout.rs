//! The task indices of each share of an allocation.

use std::collections::BinaryHeap;

use ata_types::{MAX_LEASE_TASKS, TaskRange};

/// Lays the shares of an allocation out over the indices 0..B. Those of workers that compute a lease as one batch come
/// last, each of them whole; the others are split.
pub(super) fn lay_out(allocation: &[u64], fuses: &dyn Fn(usize) -> bool) -> Vec<(usize, TaskRange)> {
    let share_of = |of_fusing: bool| {
        let share = move |(worker, &tasks): (usize, &u64)| if fuses(worker) == of_fusing { tasks } else { 0 };
        allocation.iter().enumerate().map(share)
    };
    let split: Vec<u64> = share_of(false).collect();
    let mut pieces = lay_out_split(&split);
    let mut first = split.iter().sum();
    for (worker, mut tasks) in share_of(true).enumerate() {
        while tasks > 0 {
            let count = tasks.min(MAX_LEASE_TASKS);
            pieces.push((worker, TaskRange { first, count }));
            first += count;
            tasks -= count;
        }
    }
    pieces
}

/// Splits each share into powers of two and lays them out over the indices 0..B, largest first.
///
/// Each piece then starts at a multiple of its size, so it is one subtree of the reduction tree, and worker i returns
/// as many summed gradients as a_i has ones in binary (more if a piece would exceed [`MAX_LEASE_TASKS`]). Returns
/// (worker, tasks), each worker's largest piece first.
fn lay_out_split(allocation: &[u64]) -> Vec<(usize, TaskRange)> {
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

/// Joins neighbouring pieces of a worker that computes a lease as one batch.
pub(super) fn join(pieces: &mut Vec<(usize, TaskRange)>, fuses: impl Fn(usize) -> bool) {
    let mut batches: Vec<(usize, TaskRange)> = pieces.extract_if(.., |(worker, _)| fuses(*worker)).collect();
    batches.sort_unstable_by_key(|&(worker, range)| (worker, range.first));
    batches.dedup_by(|&mut (next_worker, next), (worker, range)| {
        let fits = range.count + next.count <= MAX_LEASE_TASKS;
        let is_one = *worker == next_worker && range.end() == next.first && fits;
        if is_one {
            range.count += next.count;
        }
        is_one
    });
    pieces.extend(batches);
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
            let pieces = lay_out_split(&allocation);
            check(&pieces, &allocation);
            prop_assert_eq!(indices(&pieces), (0..allocation.iter().sum()).collect::<Vec<u64>>());
            prop_assert_eq!(pieces.len() as u32, allocation.iter().map(|a| a.count_ones()).sum::<u32>());
        }

        #[test]
        fn sharing_out_keeps_shares_and_indices(
            lost in prop::collection::vec(0u64..40, 1..4),
            weights in prop::collection::vec(1u64..100, 1..5),
        ) {
            let tasks: Vec<TaskRange> = lay_out_split(&lost).into_iter().map(|(_, range)| range).collect();
            let total: u64 = lost.iter().sum();
            let sum: u64 = weights.iter().sum();
            let mut allocation: Vec<u64> = weights.iter().map(|weight| total * weight / sum).collect();
            allocation[0] += total - allocation.iter().sum::<u64>();
            let pieces = share_out(tasks, allocation.clone());
            check(&pieces, &allocation);
            prop_assert_eq!(indices(&pieces), (0..total).collect::<Vec<u64>>());
        }
    }

    proptest! {
        #[test]
        fn whoever_computes_a_batch_gets_its_share_whole(
            shares in prop::collection::vec((0u64..40, any::<bool>()), 1..8),
        ) {
            let (allocation, fuses): (Vec<u64>, Vec<bool>) = shares.into_iter().unzip();
            let pieces = lay_out(&allocation, &|worker| fuses[worker]);
            prop_assert_eq!(indices(&pieces), (0..allocation.iter().sum()).collect::<Vec<u64>>());
            let (batches, split): (Vec<_>, Vec<_>) = pieces.into_iter().partition(|&(worker, _)| fuses[worker]);
            prop_assert!(split.iter().all(|(_, range)| range.is_subtree()));
            let shares: Vec<(usize, u64)> = batches.iter().map(|&(worker, range)| (worker, range.count)).collect();
            let whole = allocation.iter().copied().enumerate().filter(|&(worker, tasks)| fuses[worker] && tasks > 0);
            prop_assert_eq!(shares, whole.collect::<Vec<_>>());
        }

        #[test]
        fn a_range_is_its_subtrees(first in 0u64..300, count in 0u64..300) {
            let pieces: Vec<TaskRange> = TaskRange { first, count }.subtrees().collect();
            let mut next = first;
            for piece in &pieces {
                prop_assert!(piece.is_subtree() && piece.first == next);
                next = piece.end();
            }
            prop_assert_eq!(next, first + count);
            let bits = u64::BITS - count.leading_zeros();
            prop_assert!(pieces.len() as u32 <= 2 * bits, "{:?}", pieces);
            // Joined again, they are one batch.
            let mut joined: Vec<_> = pieces.into_iter().map(|piece| (3, piece)).rev().collect();
            join(&mut joined, |_| true);
            prop_assert_eq!(joined.len() as u64, count.min(1));
        }
    }

    #[test]
    fn only_neighbours_of_one_worker_are_joined() {
        let range = |first, count| TaskRange { first, count };
        let mut pieces = vec![(1, range(4, 1)), (0, range(8, 2)), (1, range(0, 4)), (0, range(6, 2)), (1, range(6, 1))];
        join(&mut pieces, |worker| worker == 1);
        assert_eq!(pieces, [(0, range(8, 2)), (0, range(6, 2)), (1, range(0, 5)), (1, range(6, 1))]);
    }

    #[test]
    fn no_piece_is_larger_than_a_lease_may_be() {
        let allocation = [5 * MAX_LEASE_TASKS + 3, 1];
        let pieces = lay_out_split(&allocation);
        check(&pieces, &allocation);
        assert_eq!(pieces.iter().map(|(_, range)| range.count).max(), Some(MAX_LEASE_TASKS));
        assert_eq!(pieces.len(), 5 + 2 + 1);
    }

    #[test]
    fn a_share_is_split_by_its_binary_digits() {
        let pieces = lay_out_split(&[9, 4, 2, 1]);
        let expected = [(0, 0, 8), (1, 8, 4), (2, 12, 2), (0, 14, 1), (3, 15, 1)];
        assert_eq!(pieces, expected.map(|(worker, first, count)| (worker, TaskRange { first, count })));
    }
}
