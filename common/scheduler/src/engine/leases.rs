//! The lease table, which records which worker holds which tasks, in which order, since when, and until when.

mod deadlines;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::blame::Blame;
use super::event::LeaseTime;
use ata_types::{CollectionId, Iteration, Lease, LeaseId, TaskRange, WorkerId};
use deadlines::Deadline;
pub(super) use deadlines::OverdueWorker;

/// A lease that its worker no longer holds.
#[derive(Debug)]
pub(super) struct EndedLease {
    pub(super) lease: Lease,
    /// Earlier failures of its tasks; `None` for most tasks, which never failed.
    pub(super) blame: Option<Box<Blame>>,
    /// Seconds since its worker began it; `None` if the worker had not begun it.
    pub(super) elapsed_s: Option<f64>,
}

impl EndedLease {
    pub(super) fn time(&self) -> LeaseTime {
        LeaseTime::Censored { elapsed_s: self.elapsed_s }
    }
}

/// A lease that its worker finished.
#[derive(Debug)]
pub(super) struct FinishedLease {
    pub(super) lease: Lease,
    /// The factor on the reported seconds, at most 1.
    pub(super) factor: f64,
    /// The seconds of the worker's occupation that no report accounts for, if the worker holds no other lease.
    pub(super) overhead_s: Option<f64>,
}

/// The index that stands for no entry.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct LeaseEntry {
    lease: Lease,
    blame: Option<Box<Blame>>,
    /// The index of the lease that its worker computes after this one.
    next: u32,
}

/// One worker's leases, in the order in which it computes them, and its clock. The alignment ensures that, with many workers, each
/// access costs only one cache miss.
#[derive(Clone, Debug)]
#[repr(align(32))]
struct DeadlineQueue {
    first: u32,
    last: u32,
    len: u32,
    /// The number of changes of its deadline: deadlines that were set at an earlier count are void.
    deadlines: u32,
    /// The time at which the worker began its current lease, as far as its reports account for the time.
    begun_s: f64,
    /// The time at which it last got a lease while it was idle, or at which one of its leases last ended.
    heard_s: f64,
}

impl Default for DeadlineQueue {
    fn default() -> Self {
        Self { first: NONE, last: NONE, len: 0, deadlines: 0, begun_s: 0.0, heard_s: 0.0 }
    }
}

/// The table of all leases. A worker computes and reports its leases in order, so that granting, finding and finishing
/// a lease take constant time, however many there are.
#[derive(Debug, Default)]
pub(super) struct Leases {
    entries: Vec<LeaseEntry>,
    /// Positions in `entries` that can be reused.
    free: Vec<u32>,
    /// The queue of each worker, by slot.
    queues: Vec<DeadlineQueue>,
    /// The deadlines, earliest first; void ones are skipped.
    deadlines: BinaryHeap<Reverse<Deadline>>,
    /// The blocked workers, and the times since which they are blocked. Their deadlines are suspended.
    blocked: BTreeMap<WorkerId, f64>,
    next_id: u64,
}

impl Leases {
    /// Creates an empty table whose leases are numbered from `next_id` on.
    pub(super) fn numbered_from(next_id: u64, workers: usize) -> Self {
        Self { next_id, queues: vec![DeadlineQueue::default(); workers], ..Self::default() }
    }

    /// Returns the number of the next lease.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Makes room for a worker that may be new.
    pub(super) fn add(&mut self, worker: WorkerId) {
        if self.queues.len() <= worker.slot() {
            self.queues.resize(worker.slot() + 1, DeadlineQueue::default());
        }
    }

    /// Returns the number of leases that are held.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Returns whether no worker holds a lease.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether a worker holds no lease.
    pub(super) fn is_free(&self, worker: WorkerId) -> bool {
        self.queues.get(worker.slot()).is_none_or(|queue| queue.len == 0)
    }

    /// Returns the leases of a worker, in order.
    pub(super) fn of(&self, worker: WorkerId) -> impl Iterator<Item = (&Lease, Option<&Blame>)> + '_ {
        let first = self.queues.get(worker.slot()).map_or(NONE, |queue| queue.first);
        let entry = |at: u32| self.entries.get(at as usize);
        let entries = std::iter::successors(entry(first), move |last| entry(last.next));
        entries.map(|entry| (&entry.lease, entry.blame.as_deref()))
    }

    /// Returns the lease that a worker is computing, and the number of tasks that the worker holds.
    pub(super) fn held(&self, worker: WorkerId) -> Option<(Lease, u64)> {
        let mut leases = self.of(worker).map(|(lease, _)| lease);
        let first = *leases.next()?;
        Some((first, first.tasks.count + leases.map(|lease| lease.tasks.count).sum::<u64>()))
    }

    /// Returns the seconds since a worker began its current lease.
    pub(super) fn elapsed_s(&self, now_s: f64, worker: WorkerId) -> f64 {
        (now_s - self.queues[worker.slot()].begun_s).max(0.0)
    }

    /// Returns a lease that a worker holds.
    pub(super) fn find(&self, worker: WorkerId, id: LeaseId) -> Option<Lease> {
        // Nearly always it is the first.
        let first = self.entries.get(self.queues.get(worker.slot())?.first as usize)?;
        if first.lease.id == id {
            return Some(first.lease);
        }
        // Leases are numbered in the order in which they were granted.
        let leases = self.of(worker).map(|(lease, _)| *lease).take_while(|lease| lease.id <= id);
        leases.last().filter(|lease| lease.id == id)
    }

    /// Returns a worker's lease that has this collection as its own.
    pub(super) fn with_own(&self, worker: WorkerId, collection: CollectionId) -> Option<LeaseId> {
        self.of(worker).map(|(lease, _)| lease).find(|lease| lease.own == Some(collection)).map(|lease| lease.id)
    }

    /// Returns a worker's lease on exactly these tasks.
    pub(super) fn on(&self, worker: WorkerId, tasks: TaskRange) -> Option<LeaseId> {
        self.of(worker).map(|(lease, _)| lease).find(|lease| lease.tasks == tasks).map(|lease| lease.id)
    }

    /// Records that the tasks of a lease failed on another worker.
    pub(super) fn blame(&mut self, worker: WorkerId, id: LeaseId, failed: WorkerId) {
        let mut at = self.queues[worker.slot()].first;
        while let Some(entry) = self.entries.get_mut(at as usize) {
            if entry.lease.id == id {
                entry.blame.get_or_insert_default().add(failed);
                return;
            }
            at = entry.next;
        }
    }

    /// Gives a worker a lease, after the leases that it already holds.
    pub(super) fn grant(
        &mut self,
        now_s: f64,
        worker: WorkerId,
        iteration: Iteration,
        tasks: TaskRange,
        own: Option<CollectionId>,
        blame: Option<Box<Blame>>,
    ) -> Lease {
        let lease = Lease { id: LeaseId(self.next_id), iteration, tasks, own };
        self.next_id += 1;
        let entry = LeaseEntry { lease, blame, next: NONE };
        let at = self.free.pop().unwrap_or_else(|| u32::try_from(self.entries.len()).expect("fewer than 2^32 leases"));
        if let Some(free) = self.entries.get_mut(at as usize) {
            *free = entry;
        } else {
            self.entries.push(entry);
        }
        let queue = &mut self.queues[worker.slot()];
        if queue.len == 0 {
            (queue.begun_s, queue.heard_s, queue.first) = (now_s, now_s, at);
        } else {
            self.entries[queue.last as usize].next = at;
        }
        queue.last = at;
        queue.len += 1;
        lease
    }

    /// Ends a lease that its worker reports as done in `reported_s` seconds. A worker's reports cannot claim more time
    /// than has passed since it began.
    pub(super) fn finish(
        &mut self,
        now_s: f64,
        worker: WorkerId,
        id: LeaseId,
        reported_s: f64,
    ) -> Option<FinishedLease> {
        let EndedLease { lease, .. } = self.unlink(worker, id)?;
        let queue = &mut self.queues[worker.slot()];
        queue.heard_s = now_s;
        let passed_s = (now_s - queue.begun_s).max(0.0);
        // The tolerance is only for the rounding of sums.
        let factor = if reported_s > passed_s * (1.0 + 1e-9) { passed_s / reported_s } else { 1.0 };
        queue.begun_s += reported_s * factor;
        let overhead_s = (queue.len == 0).then(|| (now_s - queue.begun_s).max(0.0));
        Some(FinishedLease { lease, factor, overhead_s })
    }

    /// Ends a lease without a result. If its worker had begun it, the worker begins the next one now.
    pub(super) fn revoke(&mut self, now_s: f64, worker: WorkerId, id: LeaseId) -> Option<EndedLease> {
        let queue = &self.queues[worker.slot()];
        let elapsed_s = (now_s - queue.begun_s).max(0.0);
        let is_first = self.entries.get(queue.first as usize).is_some_and(|first| first.lease.id == id);
        let ended = self.unlink(worker, id)?;
        let queue = &mut self.queues[worker.slot()];
        queue.heard_s = now_s;
        if is_first {
            queue.begun_s = now_s;
        }
        Some(EndedLease { elapsed_s: is_first.then_some(elapsed_s), ..ended })
    }

    /// Ends all leases of a worker, in order.
    pub(super) fn revoke_all(&mut self, now_s: f64, worker: WorkerId) -> Vec<EndedLease> {
        let Some(queue) = self.queues.get_mut(worker.slot()) else { return Vec::new() };
        let mut elapsed_s = Some((now_s - queue.begun_s).max(0.0));
        let mut next = queue.first;
        (queue.first, queue.last, queue.len) = (NONE, NONE, 0);
        queue.deadlines = queue.deadlines.wrapping_add(1);
        self.blocked.remove(&worker);
        let mut all = Vec::new();
        while next != NONE {
            let entry = &mut self.entries[next as usize];
            all.push(EndedLease { lease: entry.lease, blame: entry.blame.take(), elapsed_s: elapsed_s.take() });
            self.free.push(next);
            next = entry.next;
        }
        all
    }

    fn unlink(&mut self, worker: WorkerId, id: LeaseId) -> Option<EndedLease> {
        let queue = self.queues.get_mut(worker.slot())?;
        let (mut before, mut at) = (NONE, queue.first);
        while self.entries.get(at as usize)?.lease.id != id {
            (before, at) = (at, self.entries[at as usize].next);
        }
        let next = self.entries[at as usize].next;
        match self.entries.get_mut(before as usize) {
            Some(before) => before.next = next,
            None => queue.first = next,
        }
        if queue.last == at {
            queue.last = before;
        }
        queue.len -= 1;
        queue.deadlines = queue.deadlines.wrapping_add(1);
        self.free.push(at);
        let entry = &mut self.entries[at as usize];
        Some(EndedLease { lease: entry.lease, blame: entry.blame.take(), elapsed_s: None })
    }

    /// Returns the tasks that a worker is computing, and how often they failed.
    pub(super) fn current(&self, worker: WorkerId) -> Option<(TaskRange, u32)> {
        self.of(worker).next().map(|(lease, blame)| (lease.tasks, blame.map_or(0, |blame| blame.attempts)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn worker(number: u32) -> WorkerId {
        WorkerId::new(number).unwrap()
    }

    pub(super) fn table(workers: u32) -> Leases {
        Leases::numbered_from(0, workers as usize)
    }

    pub(super) fn grant(leases: &mut Leases, now_s: f64, number: u32, index: u64) -> LeaseId {
        leases.grant(now_s, worker(number), Iteration::FIRST, TaskRange::single(index), None, None).id
    }

    fn held(leases: &Leases, number: u32) -> Vec<u64> {
        leases.of(worker(number)).map(|(lease, _)| lease.id.0).collect()
    }

    #[test]
    fn leases_are_kept_in_order_whichever_ends() {
        let mut leases = table(2);
        let ids: Vec<LeaseId> = (0..5).map(|index| grant(&mut leases, 0.0, 1, index)).collect();
        grant(&mut leases, 0.0, 2, 9);
        for (id, left) in [(2, &[0, 1, 3, 4][..]), (4, &[0, 1, 3]), (0, &[1, 3]), (3, &[1]), (1, &[])] {
            assert!(leases.find(worker(1), ids[id]).is_some() && leases.find(worker(2), ids[id]).is_none());
            assert_eq!(leases.revoke(1.0, worker(1), ids[id]).unwrap().lease.id, ids[id]);
            assert_eq!(held(&leases, 1), left);
            assert!(leases.find(worker(1), ids[id]).is_none() && leases.revoke(1.0, worker(1), ids[id]).is_none());
        }
        assert!(leases.is_free(worker(1)) && !leases.is_empty());
        assert_eq!(leases.revoke_all(1.0, worker(2)).len(), 1);
        assert!(leases.is_empty());
        assert_eq!((grant(&mut leases, 2.0, 1, 0), leases.entries.len()), (LeaseId(6), 6), "places are reused");
    }

    /// Invariant 8: the coordinator's clock bounds every reported time.
    #[test]
    fn reports_cannot_claim_more_than_the_time_that_passed() {
        let mut leases = table(1);
        let (a, b) = (grant(&mut leases, 0.0, 1, 0), grant(&mut leases, 0.0, 1, 1));
        let first = leases.finish(2.0, worker(1), a, 8.0).unwrap();
        assert_eq!((first.factor, first.overhead_s), (0.25, None));
        let second = leases.finish(3.0, worker(1), b, 0.25).unwrap();
        assert_eq!((second.factor, second.overhead_s), (1.0, Some(0.75)));
    }

    #[test]
    fn a_later_lease_that_fails_leaves_the_time_to_the_first() {
        let mut leases = table(1);
        let (a, b, c) = (grant(&mut leases, 0.0, 1, 0), grant(&mut leases, 0.0, 1, 1), grant(&mut leases, 0.0, 1, 2));
        assert_eq!(leases.revoke(3.0, worker(1), b).unwrap().elapsed_s, None);
        assert_eq!(leases.finish(4.0, worker(1), a, 4.0).unwrap().factor, 1.0);
        assert_eq!(leases.revoke(6.0, worker(1), c).unwrap().elapsed_s, Some(2.0));
    }

    #[test]
    fn only_the_first_lease_of_those_revoked_was_begun() {
        let mut leases = table(1);
        grant(&mut leases, 1.0, 1, 0);
        grant(&mut leases, 1.0, 1, 1);
        let ended = leases.revoke_all(3.0, worker(1));
        assert_eq!(ended.iter().map(|ended| ended.elapsed_s).collect::<Vec<_>>(), [Some(2.0), None]);
    }
}
