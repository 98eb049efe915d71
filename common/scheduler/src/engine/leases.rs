//! The lease table, which records which worker holds which tasks, in which order, since when, and until when.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::{Blame, Effect, LeaseTime};
use ata_types::{CollectionId, Iteration, Lease, LeaseId, TaskOutcome, TaskRange, Time, WorkerId};

/// A result that passed the engine's checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct AcceptedResult {
    pub(super) worker: WorkerId,
    pub(super) lease: Lease,
    pub(super) busy_s: f64,
    /// The factor on the reported seconds, at most 1.
    pub(super) factor: f64,
    /// For the last lease that its worker held: the seconds of its occupation that no report accounts for, waits not included.
    pub(super) overhead_s: Option<f64>,
    /// The seconds of its occupation until then in which it waited for parameters.
    pub(super) waited_s: f64,
}

impl AcceptedResult {
    pub(super) fn end(&self, outcome: TaskOutcome) -> Effect {
        let Self { worker, lease, factor, waited_s, .. } = *self;
        let overhead_s = self.overhead_s.map(|overhead_s| overhead_s + waited_s);
        Effect::End { worker, lease, outcome, time: LeaseTime::Reported { factor, overhead_s } }
    }
}

/// Returns the seconds for which the worker computed that computed for longest.
pub(super) fn longest_busy_s<'a>(results: impl IntoIterator<Item = &'a AcceptedResult>) -> f64 {
    let mut of_workers: BTreeMap<WorkerId, f64> = BTreeMap::new();
    for result in results {
        *of_workers.entry(result.worker).or_default() += result.busy_s;
    }
    of_workers.into_values().fold(0.0, f64::max)
}

#[derive(Debug)]
pub(super) struct EndedLease {
    pub(super) lease: Lease,
    /// Earlier failures of its tasks; `None` for most tasks, which never failed.
    pub(super) blame: Option<Box<Blame>>,
    /// Seconds since its worker began it; `None` if the worker had not begun it.
    pub(super) elapsed_s: Option<f64>,
}

/// One worker's leases with the earlier failures of their tasks, in the order in which it computes them, and its clock.
#[derive(Clone, Debug, Default)]
struct LeaseQueue {
    leases: VecDeque<(Lease, Option<Box<Blame>>)>,
    /// The number of changes of its deadline: deadlines that were set at an earlier count are void.
    deadlines: u32,
    /// The time at which the worker began its current lease, as far as its reports account for the time.
    begun_s: f64,
    /// The time at which it last got a lease while it was idle, or at which one of its leases last ended.
    heard_s: f64,
    /// Seconds that it has waited for parameters since it was idle, as it reports.
    waited_s: f64,
}

/// The table of all leases. A worker computes and reports its leases in order, so that granting, finding and finishing
/// a lease take constant time, however many there are.
#[derive(Debug, Default)]
pub(super) struct Leases {
    queues: Vec<LeaseQueue>,
    pub(super) len: usize,
    /// The times by which workers must have reported their first leases, earliest first, each with the value of [`LeaseQueue::deadlines`]
    /// when it was set. Void ones are skipped.
    deadlines: BinaryHeap<Reverse<(Time, WorkerId, u32)>>,
    /// The blocked workers, and the times since which they are blocked. Their deadlines are suspended.
    blocked: BTreeMap<WorkerId, f64>,
    pub(super) next_id: u64,
}

impl Leases {
    pub(super) fn numbered_from(next_id: u64, workers: usize) -> Self {
        Self { next_id, queues: vec![LeaseQueue::default(); workers], ..Self::default() }
    }

    pub(super) fn add(&mut self, worker: WorkerId) {
        self.queues.resize(self.queues.len().max(worker.slot() + 1), LeaseQueue::default());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn is_free(&self, worker: WorkerId) -> bool {
        self.of(worker).next().is_none()
    }

    pub(super) fn of(&self, worker: WorkerId) -> impl Iterator<Item = (&Lease, Option<&Blame>)> + '_ {
        let leases = self.queues.get(worker.slot()).map(|queue| &queue.leases);
        leases.into_iter().flatten().map(|(lease, blame)| (lease, blame.as_deref()))
    }

    /// Returns the seconds since a worker began its current lease.
    pub(super) fn elapsed_s(&self, now_s: f64, worker: WorkerId) -> f64 {
        (now_s - self.queues[worker.slot()].begun_s).max(0.0)
    }

    pub(super) fn find(&self, worker: WorkerId, id: LeaseId) -> Option<Lease> {
        let queue = self.queues.get(worker.slot())?;
        Some(queue.leases[queue.position(id)?].0)
    }

    pub(super) fn find_by(&self, worker: WorkerId, is_wanted: impl Fn(&Lease) -> bool) -> Option<LeaseId> {
        self.of(worker).map(|(lease, _)| lease).find(|lease| is_wanted(lease)).map(|lease| lease.id)
    }

    /// Records that a worker's lease on exactly these tasks, if it has one, failed on another worker.
    pub(super) fn blame(&mut self, worker: WorkerId, tasks: TaskRange, failed: WorkerId) {
        let leases = &mut self.queues[worker.slot()].leases;
        if let Some((_, blame)) = leases.iter_mut().find(|(lease, _)| lease.tasks == tasks) {
            blame.get_or_insert_default().add(failed);
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
        self.len += 1;
        let queue = &mut self.queues[worker.slot()];
        if queue.leases.is_empty() {
            (queue.begun_s, queue.heard_s, queue.waited_s) = (now_s, now_s, 0.0);
        }
        queue.leases.push_back((lease, blame));
        lease
    }

    /// Ends a lease that its worker reports as done in `reported_s` seconds, after it waited for parameters. A worker's reports cannot
    /// claim more time than has passed since it began.
    pub(super) fn finish(
        &mut self,
        now_s: f64,
        worker: WorkerId,
        id: LeaseId,
        reported_s: f64,
        waited_s: f64,
    ) -> Option<AcceptedResult> {
        let EndedLease { lease, .. } = self.remove(now_s, worker, id)?;
        let queue = &mut self.queues[worker.slot()];
        let passed_s = (now_s - queue.begun_s).max(0.0);
        // The tolerance is only for the rounding of sums.
        let factor = if reported_s > passed_s * (1.0 + 1e-9) { passed_s / reported_s } else { 1.0 };
        let busy_s = reported_s * factor;
        let waited_s = waited_s.min((passed_s - busy_s).max(0.0));
        queue.begun_s += busy_s + waited_s;
        queue.waited_s += waited_s;
        let overhead_s = queue.leases.is_empty().then(|| (now_s - queue.begun_s).max(0.0));
        Some(AcceptedResult { worker, lease, busy_s, factor, overhead_s, waited_s: queue.waited_s })
    }

    /// Ends a lease without a result. If its worker had begun it, the worker begins the next one now.
    pub(super) fn revoke(&mut self, now_s: f64, worker: WorkerId, id: LeaseId) -> Option<EndedLease> {
        let ended = self.remove(now_s, worker, id)?;
        if ended.elapsed_s.is_some() {
            self.queues[worker.slot()].begun_s = now_s;
        }
        Some(ended)
    }

    pub(super) fn revoke_all(&mut self, now_s: f64, worker: WorkerId) -> Vec<EndedLease> {
        let Some(queue) = self.queues.get_mut(worker.slot()) else { return Vec::new() };
        let mut elapsed_s = Some((now_s - queue.begun_s).max(0.0));
        queue.deadlines = queue.deadlines.wrapping_add(1);
        self.blocked.remove(&worker);
        self.len -= queue.leases.len();
        let all = queue.leases.drain(..);
        all.map(|(lease, blame)| EndedLease { lease, blame, elapsed_s: elapsed_s.take() }).collect()
    }

    /// Ends the leases of an iteration without a result. Returns them in order.
    pub(super) fn revoke_of(&mut self, now_s: f64, worker: WorkerId, iteration: Iteration) -> Vec<EndedLease> {
        let held = self.of(worker).map(|(lease, _)| lease).filter(|lease| lease.iteration == iteration);
        let held: Vec<LeaseId> = held.map(|lease| lease.id).collect();
        // The last one goes first, because it was not begun.
        let mut ended: Vec<EndedLease> = held.iter().rev().filter_map(|id| self.revoke(now_s, worker, *id)).collect();
        ended.reverse();
        if self.is_free(worker) {
            self.blocked.remove(&worker);
        }
        ended
    }

    fn remove(&mut self, now_s: f64, worker: WorkerId, id: LeaseId) -> Option<EndedLease> {
        let queue = self.queues.get_mut(worker.slot())?;
        let at = queue.position(id)?;
        let (lease, blame) = queue.leases.remove(at)?;
        self.len -= 1;
        queue.deadlines = queue.deadlines.wrapping_add(1);
        queue.heard_s = now_s;
        Some(EndedLease { lease, blame, elapsed_s: (at == 0).then(|| (now_s - queue.begun_s).max(0.0)) })
    }

    /// Makes the first lease of a worker due `allowed_s` after the worker was last heard from.
    pub(super) fn set_deadline(&mut self, worker: WorkerId, allowed_s: f64) {
        let queue = &mut self.queues[worker.slot()];
        queue.deadlines = queue.deadlines.wrapping_add(1);
        self.deadlines.push(Reverse((Time(queue.heard_s + allowed_s), worker, queue.deadlines)));
        // Each worker has at most one valid deadline. Once the heap holds a few times that many, the void ones are removed.
        if self.deadlines.len() > 4 * self.queues.len() + 64 {
            let mut all = std::mem::take(&mut self.deadlines).into_vec();
            all.retain(|Reverse((_, worker, set))| self.holds(*worker, *set));
            self.deadlines = all.into();
        }
    }

    pub(super) fn block(&mut self, now_s: f64, worker: WorkerId) {
        if !self.is_free(worker) {
            self.blocked.entry(worker).or_insert(now_s);
        }
    }

    /// Lets a worker continue. Returns whether it was blocked, in which case its deadline must be set anew. The time for which it was
    /// blocked does not count as silence.
    pub(super) fn resume(&mut self, now_s: f64, worker: WorkerId) -> bool {
        let Some(since_s) = self.blocked.remove(&worker) else { return false };
        let queue = &mut self.queues[worker.slot()];
        queue.heard_s += now_s - since_s.max(queue.heard_s);
        true
    }

    /// Returns whether the deadline of a worker is valid that was set at this count.
    fn holds(&self, worker: WorkerId, set: u32) -> bool {
        let queue = &self.queues[worker.slot()];
        !queue.leases.is_empty() && queue.deadlines == set && !self.blocked.contains_key(&worker)
    }

    pub(super) fn next_deadline_s(&mut self) -> Option<f64> {
        while let Some(Reverse((at, worker, set))) = self.deadlines.peek() {
            if self.holds(*worker, *set) {
                return Some(at.0);
            }
            self.deadlines.pop();
        }
        None
    }

    /// Returns the workers whose deadline has passed, ascending, each with the seconds since it last reported anything.
    pub(super) fn overdue(&mut self, now_s: f64) -> Vec<(WorkerId, f64)> {
        let mut overdue = Vec::new();
        while self.next_deadline_s().is_some_and(|at_s| at_s < now_s)
            && let Some(Reverse((_, worker, _))) = self.deadlines.pop()
        {
            overdue.push((worker, now_s - self.queues[worker.slot()].heard_s));
        }
        overdue.sort_unstable_by_key(|(worker, _)| *worker);
        overdue
    }
}

impl LeaseQueue {
    fn position(&self, id: LeaseId) -> Option<usize> {
        // Nearly always it is the first. Leases are numbered in the order in which they were granted.
        if self.leases.front()?.0.id == id {
            return Some(0);
        }
        self.leases.binary_search_by_key(&id, |(lease, _)| lease.id).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(number: u32) -> WorkerId {
        WorkerId::new(number).unwrap()
    }

    fn grant(leases: &mut Leases, now_s: f64, number: u32, index: u64) -> LeaseId {
        leases.grant(now_s, worker(number), Iteration::FIRST, TaskRange::single(index), None, None).id
    }

    /// Invariant 8: the coordinator's clock bounds every reported time.
    #[test]
    fn reports_cannot_claim_more_than_the_time_that_passed() {
        let mut leases = Leases::numbered_from(0, 1);
        let (a, b) = (grant(&mut leases, 0.0, 1, 0), grant(&mut leases, 0.0, 1, 1));
        let first = leases.finish(2.0, worker(1), a, 8.0, 1.0).unwrap();
        assert_eq!((first.factor, first.overhead_s, first.waited_s), (0.25, None, 0.0));
        let second = leases.finish(3.0, worker(1), b, 0.25, 0.5).unwrap();
        assert_eq!((second.factor, second.overhead_s, second.waited_s), (1.0, Some(0.25), 0.5));
    }

    #[test]
    fn only_the_first_lease_was_begun() {
        let mut leases = Leases::numbered_from(0, 1);
        let (a, b, c) = (grant(&mut leases, 0.0, 1, 0), grant(&mut leases, 0.0, 1, 1), grant(&mut leases, 0.0, 1, 2));
        assert_eq!(leases.revoke(3.0, worker(1), b).unwrap().elapsed_s, None);
        assert_eq!(leases.finish(4.0, worker(1), a, 4.0, 0.0).unwrap().factor, 1.0);
        assert_eq!(leases.revoke(6.0, worker(1), c).unwrap().elapsed_s, Some(2.0));
        grant(&mut leases, 7.0, 1, 3);
        grant(&mut leases, 7.0, 1, 4);
        let ended = leases.revoke_all(9.0, worker(1));
        assert_eq!(ended.iter().map(|ended| ended.elapsed_s).collect::<Vec<_>>(), [Some(2.0), None]);
    }

    #[test]
    fn deadlines_are_set_anew_and_void_ones_do_not_count() {
        let mut leases = Leases::numbered_from(0, 3);
        let a = grant(&mut leases, 0.0, 1, 0);
        leases.set_deadline(worker(1), 5.0);
        grant(&mut leases, 0.0, 2, 1);
        leases.set_deadline(worker(2), 3.0);
        leases.set_deadline(worker(2), 9.0);
        assert_eq!(leases.next_deadline_s(), Some(5.0));
        leases.finish(4.0, worker(1), a, 1.0, 0.0);
        assert_eq!(leases.next_deadline_s(), Some(9.0));
        assert_eq!(leases.overdue(9.0), []);
        assert_eq!(leases.overdue(9.5), [(worker(2), 9.5)]);
        assert_eq!((leases.overdue(99.0), leases.next_deadline_s()), (vec![], None));
    }

    #[test]
    fn the_deadline_of_a_blocked_worker_stands_still() {
        let mut leases = Leases::numbered_from(0, 2);
        let first = grant(&mut leases, 0.0, 1, 0);
        grant(&mut leases, 0.0, 1, 1);
        leases.block(4.0, worker(1));
        leases.block(6.0, worker(1));
        assert!(leases.resume(100.0, worker(1)) && !leases.resume(100.0, worker(1)));
        leases.set_deadline(worker(1), 5.0);
        assert_eq!(leases.next_deadline_s(), Some(101.0), "a second is left of it");

        // A report in the meantime restarts its time.
        leases.block(100.5, worker(1));
        leases.finish(110.0, worker(1), first, 1.0, 0.0);
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
        let mut leases = Leases::numbered_from(0, 2);
        for round in 0..10_000 {
            let id = grant(&mut leases, f64::from(round), 1, 0);
            leases.set_deadline(worker(1), 1e9);
            leases.finish(f64::from(round), worker(1), id, 0.0, 0.0);
        }
        assert!(leases.deadlines.len() <= 72, "{}", leases.deadlines.len());
    }
}
