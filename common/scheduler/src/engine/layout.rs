//! Assigns task indices to the shares of an allocation.

use ata_types::{MAX_LEASE_TASKS, TaskRange};

/// Lays out the shares of an allocation over the indices 0..B, one after the other. Returns (worker, tasks); a share of more
/// than [`MAX_LEASE_TASKS`] becomes several ranges.
pub(super) fn lay_out(allocation: &[u64]) -> Vec<(usize, TaskRange)> {
    let budget = allocation.iter().sum();
    share_out(vec![TaskRange { first: 0, count: budget }], allocation)
}

/// Gives out `tasks`, in order, so that each worker gets exactly its share of `allocation`, which adds up to their number.
pub(super) fn share_out(tasks: Vec<TaskRange>, allocation: &[u64]) -> Vec<(usize, TaskRange)> {
    let mut ranges = tasks.into_iter();
    let mut rest = TaskRange { first: 0, count: 0 };
    let mut pieces = Vec::new();
    for (worker, mut share) in allocation.iter().copied().enumerate() {
        while share > 0 {
            if rest.count == 0 {
                rest = ranges.next().expect("an allocation of no more tasks than there are");
            }
            let piece = split_off(&mut rest, share);
            share -= piece.count;
            pieces.push((worker, piece));
        }
    }
    pieces
}

/// Splits the first tasks off a range: `most` of them, if there are as many and a lease may have that many.
pub(super) fn split_off(rest: &mut TaskRange, most: u64) -> TaskRange {
    let count = most.min(rest.count).min(MAX_LEASE_TASKS);
    let piece = TaskRange { first: rest.first, count };
    *rest = TaskRange { first: piece.end(), count: rest.count - count };
    piece
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_and_indices_are_kept(
            lost in prop::collection::vec((0u64..40, 1u64..40), 1..5),
            weights in prop::collection::vec(0u64..100, 1..5),
        ) {
            let mut first = 0;
            let tasks: Vec<TaskRange> = lost.iter().map(|(gap, count)| {
                let range = TaskRange { first: first + gap, count: *count };
                first = range.end();
                range
            }).collect();
            let total: u64 = tasks.iter().map(|range| range.count).sum();
            let sum: u64 = weights.iter().sum::<u64>().max(1);
            let mut allocation: Vec<u64> = weights.iter().map(|weight| total * weight / sum).collect();
            allocation[0] += total - allocation.iter().sum::<u64>();
            let pieces = share_out(tasks.clone(), &allocation);
            let mut got = vec![0; allocation.len()];
            for (worker, range) in &pieces {
                got[*worker] += range.count;
            }
            prop_assert_eq!(got, allocation);
            let of = |ranges: &mut dyn Iterator<Item = TaskRange>| ranges.flat_map(TaskRange::indices).collect::<Vec<u64>>();
            prop_assert_eq!(of(&mut pieces.iter().map(|(_, range)| *range)), of(&mut tasks.iter().copied()));
            let inside = |piece: &TaskRange| tasks.iter().any(|range| range.first <= piece.first && piece.end() <= range.end());
            prop_assert!(pieces.iter().all(|(_, piece)| inside(piece)), "no piece joins two ranges");
        }
    }

    #[test]
    fn each_share_is_one_range_if_a_lease_may_be_so_large() {
        let range = |first, count| TaskRange { first, count };
        assert_eq!(lay_out(&[9, 0, 4, 1]), [(0, range(0, 9)), (2, range(9, 4)), (3, range(13, 1))]);
        let large = lay_out(&[2 * MAX_LEASE_TASKS + 3, 1]);
        let counts: Vec<u64> = large.iter().map(|(_, range)| range.count).collect();
        assert_eq!(counts, [MAX_LEASE_TASKS, MAX_LEASE_TASKS, 3, 1]);
    }
}
