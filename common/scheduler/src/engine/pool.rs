//! Tasks of an iteration that no worker has been given yet.

use super::layout::split_off;
use ata_types::TaskRange;

/// The free tasks, which are given out in the order of their indices.
#[derive(Debug)]
pub(super) struct TaskPool {
    rest: TaskRange,
}

impl TaskPool {
    /// Creates a pool of the tasks 0..`tasks`.
    pub(super) fn new(tasks: u64) -> Self {
        Self { rest: TaskRange { first: 0, count: tasks } }
    }

    /// Returns the number of tasks that are left.
    pub(super) fn left(&self) -> u64 {
        self.rest.count
    }

    /// Takes tasks for workers, in order; `shares` are (worker, number of tasks). Requests beyond the tasks that are left are dropped.
    pub(super) fn take(&mut self, shares: &[(usize, u64)]) -> Vec<(usize, TaskRange)> {
        let mut taken = Vec::with_capacity(shares.len());
        for &(worker, mut tasks) in shares {
            while tasks > 0 && self.rest.count > 0 {
                let piece = split_off(&mut self.rest, tasks);
                tasks -= piece.count;
                taken.push((worker, piece));
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_task_is_given_out_once(
            tasks in 1u64..200,
            rounds in prop::collection::vec(prop::collection::vec(0u64..40, 1..6), 0..12),
        ) {
            let mut pool = TaskPool::new(tasks);
            let mut seen = Vec::new();
            for round in rounds.into_iter().chain([vec![u64::MAX]]) {
                let shares: Vec<(usize, u64)> = round.into_iter().enumerate().collect();
                let before = pool.left();
                let asked = shares.iter().map(|(_, tasks)| *tasks).fold(0, u64::saturating_add);
                let given = pool.take(&shares);
                let sum: u64 = given.iter().map(|(_, range)| range.count).sum();
                prop_assert_eq!(sum, asked.min(before));
                prop_assert_eq!(pool.left(), before - sum);
                seen.extend(given.into_iter().flat_map(|(_, range)| range.indices()));
            }
            prop_assert_eq!(seen, (0..tasks).collect::<Vec<u64>>());
        }
    }
}
