//! Tasks that several workers compute at the same time.
//!
//! A copier computes whole leases of another worker. Tasks that were lost meanwhile may have been handed out again in other ranges, so
//! leases may overlap without being equal.

use std::collections::BTreeMap;

use ata_types::{TaskRange, TaskRanges, WorkerId};

/// The workers that compute, or computed, the same tasks as another worker.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// The workers with the tasks of one of their leases, by the first task and the order in which they got it.
    held: BTreeMap<(u64, u64), (WorkerId, TaskRange)>,
    added: u64,
    /// The largest number of tasks of any lease: leases that overlap a range begin at most this far before it.
    longest: u64,
}

impl Copies {
    /// Returns whether another worker got some of these tasks after this one.
    pub(super) fn is_copied(&self, worker: WorkerId, tasks: TaskRange) -> bool {
        let Some((_, own)) = self.find(worker, tasks) else { return false };
        self.overlapping(tasks).any(|((_, at), (copier, _))| *copier != worker && at > own)
    }

    /// Records that `copier` also computes `part` of the tasks that `holder` has a lease on.
    pub(super) fn add(&mut self, (holder, tasks): (WorkerId, TaskRange), copier: WorkerId, part: TaskRange) {
        if self.find(holder, tasks).is_none() {
            self.insert(holder, tasks);
        }
        self.insert(copier, part);
    }

    fn insert(&mut self, worker: WorkerId, tasks: TaskRange) {
        self.held.insert((tasks.first, self.added), (worker, tasks));
        self.added += 1;
        self.longest = self.longest.max(tasks.count);
    }

    fn find(&self, worker: WorkerId, tasks: TaskRange) -> Option<&(u64, u64)> {
        if self.held.is_empty() {
            return None;
        }
        let own = self.overlapping(tasks).find(|(_, held)| **held == (worker, tasks));
        own.map(|(key, _)| key)
    }

    fn overlapping(&self, tasks: TaskRange) -> impl Iterator<Item = (&(u64, u64), &(WorkerId, TaskRange))> {
        let near = (tasks.first.saturating_sub(self.longest), 0)..(tasks.end(), 0);
        self.held.range(near).filter(move |(_, (_, held))| held.overlaps(tasks))
    }

    /// Returns the other workers that compute some of these tasks, each with the tasks of its lease.
    pub(super) fn others(&self, worker: WorkerId, tasks: TaskRange) -> Vec<(WorkerId, TaskRange)> {
        self.overlapping(tasks).map(|(_, held)| *held).filter(|(other, _)| *other != worker).collect()
    }

    /// Records that a worker no longer computes a lease on these tasks. Returns those among them that no other worker computes.
    pub(super) fn end(&mut self, worker: WorkerId, tasks: TaskRange) -> TaskRanges {
        if let Some(key) = self.find(worker, tasks).copied() {
            self.held.remove(&key);
        }
        self.uncovered(tasks)
    }

    /// Records that a lease on these tasks is done: removes it and all that overlap. Returns the others, in the order of their tasks.
    pub(super) fn take(&mut self, worker: WorkerId, tasks: TaskRange) -> Vec<(WorkerId, TaskRange)> {
        if self.held.is_empty() {
            return Vec::new();
        }
        let keys: Vec<(u64, u64)> = self.overlapping(tasks).map(|(key, _)| *key).collect();
        let all = keys.iter().filter_map(|key| self.held.remove(key));
        all.filter(|(other, _)| *other != worker).collect()
    }

    /// Returns those of these tasks that no recorded worker computes.
    fn uncovered(&self, tasks: TaskRange) -> TaskRanges {
        TaskRanges::from(tasks).minus(&self.overlapping(tasks).map(|(_, (_, held))| *held).collect())
    }

    /// Returns what is left of each of some cancelled leases once `done` of their tasks are done: each task once, without those that other
    /// leases cover.
    pub(super) fn leftovers(&self, cancelled: &[TaskRange], done: TaskRange) -> Vec<TaskRanges> {
        let mut taken = TaskRanges::from(done);
        let left = |tasks: &TaskRange| {
            let left = self.uncovered(*tasks).minus(&taken);
            left.iter().for_each(|range| taken.insert(range));
            left
        };
        cancelled.iter().map(left).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch of five tasks is copied by another worker as four and one.
    #[test]
    fn each_task_of_a_batch_that_is_copied_in_parts_is_computed() {
        let range = |first, count| TaskRange { first, count };
        let worker = WorkerId::from_slot;
        let mut copies = Copies::default();
        assert_eq!(copies.end(worker(9), range(7, 2)), range(7, 2).into(), "none was copied");
        copies.add((worker(1), range(0, 5)), worker(2), range(0, 4));
        copies.add((worker(1), range(0, 5)), worker(2), range(4, 1));
        assert!(copies.is_copied(worker(1), range(0, 5)) && !copies.is_copied(worker(2), range(0, 4)));
        assert_eq!(copies.end(worker(2), range(4, 1)), TaskRanges::default(), "worker 1 still computes it");
        assert_eq!(copies.take(worker(2), range(0, 4)), [(worker(1), range(0, 5))]);
        assert_eq!(
            copies.leftovers(&[range(0, 5), range(0, 5)], range(0, 4)),
            [range(4, 1).into(), TaskRanges::default()]
        );
    }
}
