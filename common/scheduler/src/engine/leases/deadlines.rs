//! Deadlines of the leases that workers compute.

use std::cmp::Reverse;

use super::Leases;
use crate::engine::Time;
use ata_types::WorkerId;

/// The time by which a worker must have reported its first lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Deadline {
    at: Time,
    worker: WorkerId,
    /// The value of [`super::LeaseQueue::deadlines`] when this deadline was set.
    set: u32,
}

impl Leases {
    /// Makes the first lease of a worker due `allowed_s` after the worker was last heard from.
    pub(in crate::engine) fn set_deadline(&mut self, worker: WorkerId, allowed_s: f64) {
        let queue = &mut self.queues[worker.slot()];
        queue.deadlines = queue.deadlines.wrapping_add(1);
        let at = Time(queue.heard_s + allowed_s);
        let set = queue.deadlines;
        self.deadlines.push(Reverse(Deadline { at, worker, set }));
        // Each worker has at most one valid deadline. Once the heap holds a few times that many, the void ones are removed.
        if self.deadlines.len() > 4 * self.queues.len() + 64 {
            let mut all = std::mem::take(&mut self.deadlines).into_vec();
            all.retain(|Reverse(deadline)| self.holds(deadline));
            self.deadlines = all.into();
        }
    }

    pub(in crate::engine) fn block(&mut self, now_s: f64, worker: WorkerId) {
        if !self.is_free(worker) {
            self.blocked.entry(worker).or_insert(now_s);
        }
    }

    /// Lets a worker continue. Returns whether it was blocked, in which case its deadline must be set anew. The time for which it was
    /// blocked does not count as silence.
    pub(in crate::engine) fn resume(&mut self, now_s: f64, worker: WorkerId) -> bool {
        let Some(since_s) = self.blocked.remove(&worker) else { return false };
        let queue = &mut self.queues[worker.slot()];
        queue.heard_s += now_s - since_s.max(queue.heard_s);
        true
    }

    fn holds(&self, deadline: &Deadline) -> bool {
        let queue = &self.queues[deadline.worker.slot()];
        !queue.leases.is_empty() && queue.deadlines == deadline.set && !self.blocked.contains_key(&deadline.worker)
    }

    pub(in crate::engine) fn next_deadline_s(&mut self) -> Option<f64> {
        while let Some(Reverse(next)) = self.deadlines.peek() {
            if self.holds(next) {
                return Some(next.at.0);
            }
            self.deadlines.pop();
        }
        None
    }

    /// Returns the workers whose deadline has passed, ascending, each with the seconds since it last reported anything.
    pub(in crate::engine) fn overdue(&mut self, now_s: f64) -> Vec<(WorkerId, f64)> {
        let mut overdue = Vec::new();
        while self.next_deadline_s().is_some_and(|at_s| at_s < now_s)
            && let Some(Reverse(Deadline { worker, .. })) = self.deadlines.pop()
        {
            overdue.push((worker, now_s - self.queues[worker.slot()].heard_s));
        }
        overdue.sort_unstable_by_key(|(worker, _)| *worker);
        overdue
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{grant, table, worker};

    #[test]
    fn deadlines_are_set_anew_and_void_ones_do_not_count() {
        let mut leases = table(3);
        let a = grant(&mut leases, 0.0, 1, 0);
        leases.set_deadline(worker(1), 5.0);
        grant(&mut leases, 0.0, 2, 1);
        leases.set_deadline(worker(2), 3.0);
        leases.set_deadline(worker(2), 9.0);
        assert_eq!(leases.next_deadline_s(), Some(5.0));
        leases.finish(4.0, worker(1), a, 1.0);
        assert_eq!(leases.next_deadline_s(), Some(9.0));
        assert_eq!(leases.overdue(9.0), []);
        assert_eq!(leases.overdue(9.5), [(worker(2), 9.5)]);
        assert_eq!((leases.overdue(99.0), leases.next_deadline_s()), (vec![], None));
    }

    #[test]
    fn the_deadline_of_a_blocked_worker_stands_still() {
        let mut leases = table(2);
        let first = grant(&mut leases, 0.0, 1, 0);
        grant(&mut leases, 0.0, 1, 1);
        leases.block(4.0, worker(1));
        leases.block(6.0, worker(1));
        assert!(leases.resume(100.0, worker(1)) && !leases.resume(100.0, worker(1)));
        leases.set_deadline(worker(1), 5.0);
        assert_eq!(leases.next_deadline_s(), Some(101.0), "a second is left of it");

        // A report in the meantime restarts its time.
        leases.block(100.5, worker(1));
        leases.finish(110.0, worker(1), first, 1.0);
        leases.set_deadline(worker(1), 5.0);
        assert_eq!(leases.next_deadline_s(), None);
        leases.resume(112.0, worker(1));
        leases.set_deadline(worker(1), 5.0);
        assert_eq!(leases.next_deadline_s(), Some(117.0));

        leases.block(113.0, worker(1));
        leases.revoke_all(114.0, worker(1));
        grant(&mut leases, 115.0, 1, 2);
        leases.set_deadline(worker(1), 5.0);
        assert_eq!(leases.next_deadline_s(), Some(120.0), "a worker that comes back is not blocked");
    }

    #[test]
    fn void_deadlines_do_not_pile_up() {
        let mut leases = table(2);
        for round in 0..10_000 {
            let id = grant(&mut leases, f64::from(round), 1, 0);
            leases.set_deadline(worker(1), 1e9);
            leases.finish(f64::from(round), worker(1), id, 0.0);
        }
        assert!(leases.deadlines.len() <= 72, "{}", leases.deadlines.len());
    }
}
