//! Tasks of an iteration that no worker has been given yet, as subtrees of the reduction tree.

use smallvec::SmallVec;

use super::layout::join;
use ata_types::{MAX_LEASE_TASKS, TaskRange};

/// Free tasks. A worker returns one summed gradient per subtree, so that as few and as large ones as possible are given
/// out: a buddy allocator. Workers that compute a lease as one batch get theirs from the end, whole.
#[derive(Debug)]
pub(super) struct Pool {
    /// The free subtrees; `None` until the first tasks are taken. Only the smallest that is large enough is ever split, so
    /// that there are few of each size.
    free: Option<Vec<TaskRange>>,
    left: u64,
}

impl Pool {
    /// The tasks 0..`tasks`.
    pub(super) fn new(tasks: u64) -> Self {
        Self { free: None, left: tasks }
    }

    /// How many tasks are left.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Takes tasks for workers, in order: (worker, how many). Returns the subtrees, each worker's largest first. As many
    /// subtrees are taken for a worker as its number has ones in binary, as long as free ones are large enough; one that
    /// `fuses` gets one range as long as no tasks were taken before, and neighbouring subtrees joined afterwards. Requests
    /// beyond the tasks that are left are not met.
    pub(super) fn take(&mut self, shares: &[(usize, u64)], fuses: impl Fn(usize) -> bool) -> Vec<(usize, TaskRange)> {
        // Usually one worker is given tasks at a time.
        let mut wanted: SmallVec<[(usize, u64); 4]> = SmallVec::with_capacity(shares.len());
        for &(worker, tasks) in shares {
            let tasks = tasks.min(self.left);
            self.left -= tasks;
            wanted.push((worker, tasks));
        }
        let mut taken = Vec::with_capacity(2 * shares.len());
        if self.free.is_none() && wanted.iter().any(|(_, tasks)| *tasks > 0) {
            let mut end = self.left + wanted.iter().map(|(_, tasks)| tasks).sum::<u64>();
            for (worker, tasks) in wanted.iter_mut().filter(|(worker, _)| fuses(*worker)) {
                while *tasks > 0 {
                    let count = (*tasks).min(MAX_LEASE_TASKS);
                    (*tasks, end) = (*tasks - count, end - count);
                    taken.push((*worker, TaskRange { first: end, count }));
                }
            }
            self.free = Some(TaskRange { first: 0, count: end }.subtrees().collect());
        }
        let largest = wanted.iter().filter_map(|(_, tasks)| tasks.checked_ilog2()).max();
        for size in largest.map_or(0..0, |largest| 0..largest + 1).rev().map(|exponent| 1 << exponent) {
            for (worker, tasks) in &mut wanted {
                while *tasks >= size
                    && let Some(first) = self.subtree(size)
                {
                    *tasks -= size;
                    let count = size.min(MAX_LEASE_TASKS);
                    let parts = (0..size / count).map(|part| TaskRange { first: first + part * count, count });
                    taken.extend(parts.map(|range| (*worker, range)));
                }
            }
        }
        join(&mut taken, fuses);
        taken
    }

    /// The first task of a free subtree of this size, split off the smallest one that is large enough.
    fn subtree(&mut self, size: u64) -> Option<u64> {
        let free = self.free.as_mut()?;
        let large = free.iter().enumerate().filter(|(_, range)| range.count >= size);
        let (at, _) = large.min_by_key(|(_, range)| range.count)?;
        let TaskRange { first, mut count } = free.swap_remove(at);
        while count > size {
            count /= 2;
            free.push(TaskRange { first: first + count, count });
        }
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_task_is_given_out_once_in_subtrees(
            tasks in 1u64..200,
            rounds in prop::collection::vec(prop::collection::vec(0u64..40, 1..6), 0..12),
        ) {
            let mut pool = Pool::new(tasks);
            let mut seen = vec![false; tasks as usize];
            for round in rounds.into_iter().chain([vec![u64::MAX]]) {
                let shares: Vec<(usize, u64)> = round.into_iter().enumerate().collect();
                let before = pool.left();
                let asked = shares.iter().map(|(_, tasks)| *tasks).fold(0, u64::saturating_add);
                let given = pool.take(&shares, |_| false);
                let sum: u64 = given.iter().map(|(_, range)| range.count).sum();
                prop_assert_eq!(sum, asked.min(before));
                prop_assert_eq!(pool.left(), before - sum);
                for (_, range) in given {
                    prop_assert!(range.is_subtree());
                    for task in range.indices() {
                        prop_assert!(!std::mem::replace(&mut seen[task as usize], true));
                    }
                }
            }
            prop_assert!(seen.into_iter().all(|seen| seen));
        }

        /// A worker that computes a lease as one batch gets its first share whole.
        #[test]
        fn batches_are_whole(shares in prop::collection::vec((0u64..40, any::<bool>()), 1..8), more in 0u64..50) {
            let (allocation, fuses): (Vec<u64>, Vec<bool>) = shares.into_iter().unzip();
            let mut pool = Pool::new(allocation.iter().sum::<u64>() + more);
            let shares: Vec<(usize, u64)> = allocation.iter().copied().enumerate().collect();
            let mut given = pool.take(&shares, |worker| fuses[worker]);
            given.extend(pool.take(&[(0, more)], |_| false));
            let mut indices: Vec<u64> = given.iter().flat_map(|(_, range)| range.indices()).collect();
            indices.sort_unstable();
            prop_assert_eq!(indices, (0..allocation.iter().sum::<u64>() + more).collect::<Vec<u64>>());
            for (worker, tasks) in shares.into_iter().filter(|&(worker, tasks)| fuses[worker] && tasks > 0) {
                prop_assert!(given.iter().any(|&(to, range)| (to, range.count) == (worker, tasks)));
            }
        }

        /// From a fresh pool every share is as few subtrees as it can be.
        #[test]
        fn the_first_shares_are_their_binary_digits(allocation in prop::collection::vec(0u64..40, 1..8), more in 0u64..50) {
            let mut pool = Pool::new(allocation.iter().sum::<u64>() + more);
            let shares: Vec<(usize, u64)> = allocation.iter().copied().enumerate().collect();
            let given = pool.take(&shares, |_| false);
            let digits: u32 = allocation.iter().map(|tasks| tasks.count_ones()).sum();
            prop_assert_eq!(given.len() as u32, digits);
            prop_assert!(given.iter().is_sorted_by_key(|(_, range)| std::cmp::Reverse(range.count)));
        }
    }
}
