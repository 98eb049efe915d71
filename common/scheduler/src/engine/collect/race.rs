//! The mode in which all workers compute copies of the same tasks; the first result of each makes the step.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Mode, WorkerTime};
use crate::policy::Decision;
use ata_types::TaskRange;

#[derive(Debug)]
pub(in crate::engine) struct Race {
    /// Whether each task is done, by task index.
    done: Vec<bool>,
    left: usize,
    /// The tasks by the number of workers that have begun them, and then by index. Tasks that are done are skipped.
    fewest_copies: BinaryHeap<Reverse<(u32, u64)>>,
}

impl Race {
    pub(super) fn new(tasks: u64) -> Self {
        let count = tasks as usize;
        Self {
            done: vec![false; count],
            left: count,
            fewest_copies: (0..tasks).map(|task| Reverse((0, task))).collect(),
        }
    }

    /// Begins another copy of the unfinished task that the fewest workers have begun.
    fn begin(&mut self) -> Option<TaskRange> {
        while let Some(Reverse((copies, task))) = self.fewest_copies.pop() {
            if !self.done[task as usize] {
                self.fewest_copies.push(Reverse((copies + 1, task)));
                return Some(TaskRange::single(task));
            }
        }
        None
    }
}

impl Mode for Race {
    /// Each worker gets one task, whatever its share.
    fn shares(&mut self, decision: &Decision) -> Vec<(usize, TaskRange)> {
        (0..decision.allocation.len()).filter_map(|i| Some((i, self.begin()?))).collect()
    }

    fn races(&self) -> bool {
        true
    }

    fn wants(&self, tasks: TaskRange) -> bool {
        !self.done[tasks.first as usize]
    }

    fn take(&mut self, tasks: TaskRange) {
        self.done[tasks.first as usize] = true;
        self.left -= 1;
    }

    fn lose(&mut self, tasks: TaskRange) {
        self.done[tasks.first as usize] = false;
        self.left += 1;
        self.fewest_copies.push(Reverse((0, tasks.first)));
    }

    fn is_complete(&self) -> bool {
        self.left == 0
    }

    fn next(&mut self) -> Option<TaskRange> {
        self.begin()
    }

    fn keeps_busy(&self) -> bool {
        true
    }

    /// A lost copy needs no replacement, because free workers keep beginning tasks that are not done.
    fn must_redo(&self, failed: bool) -> bool {
        failed
    }

    fn worker_time(&self) -> WorkerTime {
        WorkerTime::Occupied
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The result is compared with a search through all tasks.
        #[test]
        fn the_task_with_fewest_copies_is_next(tasks in 1u64..12, turns in prop::collection::vec(prop::option::of(0u64..12), 0..60)) {
            let mut race = Race::new(tasks);
            let mut copies: Vec<Option<u32>> = vec![Some(0); tasks as usize];
            for turn in turns {
                match turn.map(|task| task % tasks) {
                    Some(task) if copies[task as usize].is_some() => {
                        race.take(TaskRange::single(task));
                        copies[task as usize] = None;
                    }
                    Some(_) => {}
                    None => {
                        let fewest = (0..).zip(&copies).filter_map(|(task, copies)| Some((copies.as_ref()?, task))).min();
                        let expected = fewest.map(|(_, task): (_, u64)| task);
                        prop_assert_eq!(race.next().map(|next| next.first), expected);
                        if let Some(task) = expected {
                            copies[task as usize] = copies[task as usize].map(|copies| copies + 1);
                        }
                    }
                }
                prop_assert_eq!(race.is_complete(), copies.iter().all(Option::is_none));
            }
        }
    }
}
