//! The gradients that a worker keeps until their sum is requested. They are a cache, since all of them can be computed again.

use std::sync::Arc;

use ata_sums::{GradientSum, TensorSizes, Units};
use ata_types::{Iteration, LeaseId, TaskRanges};

/// The number of newest leases whose sums are kept separate. Another worker may have finished their tasks first, and a worker may have
/// begun the next lease but one when it is notified. The sum of the earlier leases may be requested then.
const APART: usize = 2;

/// The maximum number of sums: the total and the separate sums of the leases of a requested vector, and as many for later leases. Tasks
/// whose sum was dropped are computed again.
const MAX_SUMS: usize = 2 * (1 + APART);

/// The number of unused sums whose memory is kept for the next leases.
const SPARE: usize = 2;

/// The gradients of tasks of one iteration, in the same units.
#[derive(Debug, Default)]
pub(crate) struct KeptGradients {
    iteration: Iteration,
    units: Option<Units>,
    /// The tasks that were computed, whether or not their gradients are kept.
    computed: TaskRanges,
    /// The sums, which have no tasks in common.
    sums: Vec<KeptSum>,
    spare: Vec<GradientSum>,
}

#[derive(Debug)]
pub(crate) struct KeptSum {
    pub(crate) tasks: TaskRanges,
    /// The lease, if the tasks are those of a single one.
    pub(crate) lease: Option<LeaseId>,
    /// The round of the leases, as in `Job::Compute`. Tasks that were computed again belong to none.
    pub(crate) round: Option<u64>,
    pub(crate) sum: Arc<GradientSum>,
}

impl KeptSum {
    /// Returns whether `other` may be added to this sum, which must be of the same round and not in use by an upload.
    fn can_take(&self, other: &Self) -> bool {
        self.round.is_some() && self.round == other.round && Arc::strong_count(&self.sum) == 1
    }
}

impl KeptGradients {
    pub(crate) fn empty_sum(&mut self, sizes: &TensorSizes) -> GradientSum {
        let Some(mut sum) = self.spare.pop() else { return GradientSum::new(sizes) };
        sum.clear();
        sum
    }

    pub(crate) fn give_back(&mut self, sum: GradientSum) {
        if self.spare.len() < SPARE {
            self.spare.push(sum);
        }
    }

    /// Keeps a sum, and drops those of other iterations, in other units, or with any of its tasks, so that no task counts twice.
    pub(crate) fn add(&mut self, iteration: Iteration, units: &Units, sum: KeptSum) {
        let is_current = self.iteration == iteration && self.units.as_ref() == Some(units);
        if self.iteration != iteration {
            self.computed = TaskRanges::default();
        }
        (self.iteration, self.units) = (iteration, Some(units.clone()));
        self.drop_sums(|kept| !is_current || kept.tasks.overlaps(&sum.tasks));
        self.computed = std::mem::take(&mut self.computed).union(&sum.tasks);
        self.sums.push(sum);
        self.join();
        if self.sums.len() > MAX_SUMS {
            let oldest = self.sums.remove(0);
            self.recycle(oldest);
        }
    }

    /// Adds one of the older sums, which need not stay separate, to another one.
    fn join(&mut self) {
        let early = &self.sums[..self.sums.len().saturating_sub(APART)];
        let pair = |(at, other): (usize, &KeptSum)| Some((early[..at].iter().position(|sum| sum.can_take(other))?, at));
        let Some((into, at)) = early.iter().enumerate().find_map(pair) else { return };
        let joined = self.sums.remove(at);
        let total = &mut self.sums[into];
        let Some(sum) = Arc::get_mut(&mut total.sum) else { return };
        sum.merge(&joined.sum);
        total.tasks = std::mem::take(&mut total.tasks).union(&joined.tasks);
        total.lease = None;
        self.recycle(joined);
    }

    /// Drops the sum of a lease that was cancelled, unless others were added to it.
    pub(crate) fn discard(&mut self, lease: LeaseId) {
        for kept in self.drop_sums(|kept| kept.lease == Some(lease)) {
            self.computed = self.computed.minus(&kept);
        }
    }

    fn drop_sums(&mut self, is_over: impl Fn(&KeptSum) -> bool) -> Vec<TaskRanges> {
        let dropped: Vec<KeptSum> = self.sums.extract_if(.., |kept| is_over(kept)).collect();
        dropped.into_iter().map(|kept| self.recycle(kept)).collect()
    }

    fn recycle(&mut self, kept: KeptSum) -> TaskRanges {
        if let Some(sum) = Arc::into_inner(kept.sum) {
            self.give_back(sum);
        }
        kept.tasks
    }

    /// Returns whether all of these tasks were computed. If not, one of their leases was cancelled or failed.
    pub(crate) fn has_computed(&self, iteration: Iteration, tasks: &TaskRanges) -> bool {
        self.iteration == iteration && self.computed.covers(tasks)
    }

    /// Returns the sums in these units that consist only of these tasks, and the tasks that are missing from them.
    pub(crate) fn select(&self, tasks: &TaskRanges, units: &Units) -> (Vec<Arc<GradientSum>>, TaskRanges) {
        let are_units = self.units.as_ref() == Some(units);
        let of_them = self.sums.iter().filter(|kept| are_units && tasks.covers(&kept.tasks));
        let missing = of_them.clone().fold(tasks.clone(), |missing, kept| missing.minus(&kept.tasks));
        (of_them.map(|kept| kept.sum.clone()).collect(), missing)
    }
}

#[cfg(test)]
mod tests {
    use ata_types::TaskRange;

    use super::*;

    const ITERATION: Iteration = Iteration(4);

    fn units(exponent: i16) -> Units {
        Units::from_exponents(&[exponent], &TensorSizes::new([1])).unwrap()
    }

    fn tasks(tasks: &[u64]) -> TaskRanges {
        tasks.iter().copied().map(TaskRange::single).collect()
    }

    /// Returns the sum of a lease of one task, whose value is a distinct bit.
    fn sum(task: u64, round: u64) -> KeptSum {
        let sum = GradientSum { values: vec![1 << task], maxima: vec![1.0], saturated: 0, vanished: 0, tasks: 1 };
        KeptSum { tasks: tasks(&[task]), lease: Some(LeaseId(100 + task)), round: Some(round), sum: Arc::new(sum) }
    }

    fn kept(of: impl IntoIterator<Item = u64>) -> KeptGradients {
        let mut kept = KeptGradients::default();
        of.into_iter().for_each(|task| kept.add(ITERATION, &units(0), sum(task, 0)));
        kept
    }

    /// Returns the sum of the kept gradients of these tasks, and the tasks to compute again.
    fn found(kept: &KeptGradients, of: &[u64]) -> (i32, TaskRanges) {
        let (sums, missing) = kept.select(&tasks(of), &units(0));
        (sums.iter().map(|sum| sum.values[0]).sum(), missing)
    }

    #[test]
    fn all_tasks_or_all_but_those_of_the_last_leases_are_kept() {
        let kept = kept(1..=6);
        assert_eq!(kept.sums.len(), 1 + APART, "memory is bounded");
        assert_eq!(found(&kept, &[6, 5, 1, 2, 3, 4]), (0b111_1110, tasks(&[])));
        assert_eq!(found(&kept, &[1, 2, 3, 4]), (0b1_1110, tasks(&[])));
        assert_eq!(found(&kept, &[1, 2, 3, 4, 6]), (0b101_1110, tasks(&[])));
        assert!(!kept.has_computed(ITERATION, &tasks(&[6, 7])) && !kept.has_computed(Iteration(5), &tasks(&[1])));
    }

    /// A lease that loses a race is cancelled before its worker has computed the next lease but one.
    #[test]
    fn a_lease_that_was_cancelled_is_not_added_to_others() {
        let mut kept = kept(1..=3);
        kept.discard(LeaseId(102));
        kept.discard(LeaseId(107));
        assert!(!kept.has_computed(ITERATION, &tasks(&[2])));
        (4..6).for_each(|task| kept.add(ITERATION, &units(0), sum(task, 0)));
        assert_eq!(found(&kept, &[1, 3, 4, 5]), (0b11_1010, tasks(&[])));
    }

    /// The worker is asked for tasks 1 and 2, and is assigned tasks of a lost worker afterwards.
    #[test]
    fn what_is_asked_for_apart_is_kept_apart() {
        let mut kept = kept([1, 2]);
        (3..8).for_each(|task| kept.add(ITERATION, &units(0), sum(task, 1)));
        assert_eq!(found(&kept, &[1, 2]), (0b110, tasks(&[])));
        assert_eq!(found(&kept, &[3, 4, 5, 6, 7]), (0b1111_1000, tasks(&[])));
    }

    #[test]
    fn another_iteration_begins_anew() {
        let mut kept = kept([1, 2]);
        kept.add(Iteration(5), &units(0), sum(3, 0));
        assert!(!kept.has_computed(ITERATION, &tasks(&[1])) && !kept.has_computed(Iteration(5), &tasks(&[1])));
        assert_eq!(found(&kept, &[1, 3]), (0b1000, tasks(&[1])));
    }

    #[test]
    fn sums_that_are_being_sent_stay_as_they_are_and_memory_is_bounded() {
        let mut kept = kept([1, 2, 3]);
        let (sent, _) = kept.select(&tasks(&[1, 2, 3]), &units(0));
        (4..=9).for_each(|task| kept.add(ITERATION, &units(0), sum(task, 1)));
        assert_eq!(sent.iter().map(|sum| sum.values[0]).collect::<Vec<_>>(), [0b10, 0b100, 0b1000]);
        assert_eq!((kept.sums.len(), found(&kept, &[1, 2, 3])), (MAX_SUMS, (0b1110, tasks(&[]))));
        (10..30).for_each(|task| kept.add(ITERATION, &units(0), sum(task, task)));
        assert_eq!((kept.sums.len(), found(&kept, &[1])), (MAX_SUMS, (0, tasks(&[1]))), "and can be computed again");
    }
}
