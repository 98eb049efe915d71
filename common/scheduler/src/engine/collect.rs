//! Which results make the step of an iteration, and which tasks are handed out for it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::policy::{Collect, Decision};
use ata_types::{MAX_LEASE_TASKS, TaskRange, TaskRanges};

/// Decides which results make the step. It knows only tasks; the lease table knows which worker holds them.
#[derive(Debug)]
pub(super) struct Mode {
    wanted: Wanted,
    supply: Supply,
    /// Whether the first results make the step, so that its tasks and their workers are not known in advance.
    pub(super) races: bool,
    /// Whether all seconds count as a worker's time, because workers are busy all the time. Otherwise only those of computation do:
    /// waiting at a barrier costs nothing.
    pub(super) occupies: bool,
    /// The tasks of the step, if they are known in advance.
    pub(super) step: Option<TaskRange>,
}

#[derive(Debug)]
enum Wanted {
    /// The first `take` results of tasks with an index below `end`; later tasks are probes.
    First { take: u64, taken: u64, end: u64 },
    /// One result for each of the first tasks, by index; later tasks are probes.
    Each { done: Vec<bool>, left: u64 },
    /// Results that were taken, and lost before they were delivered.
    Lost(TaskRanges),
}

/// What workers get that have nothing to do.
#[derive(Debug)]
enum Supply {
    /// They get nothing, and wait for the next iteration.
    Nothing,
    /// They get another task each, from this index on.
    Fresh(u64),
    /// They begin the next tasks, or, if tasks may be copied, another copy of what the fewest workers have begun.
    Race(Race),
    /// The policy is asked at each result how many of these tasks they get.
    Pool(Vec<TaskRange>),
}

/// The tasks of a race. Leases have one task, so that fast workers get more; only a worker that computes a lease as one batch begins with one
/// and goes on with equal shares of the rest: batches of one would cost it far more time, and two sizes tell what a batch costs.
#[derive(Debug)]
struct Race {
    /// The tasks that nobody has begun.
    fresh: TaskRange,
    /// Tasks that are to be begun together, as (number of workers that have begun them, first task, number of tasks). Some of them may be
    /// done.
    begun: BinaryHeap<Reverse<(u32, u64, u64)>>,
    /// The number of tasks in an equal share of all but the first ones.
    share: u64,
    /// Whether several workers may begin the same tasks.
    copies: bool,
}

impl Race {
    fn new(tasks: u64, workers: u64, copies: bool) -> Self {
        let share = tasks.saturating_sub(workers).div_ceil(workers).clamp(1, MAX_LEASE_TASKS);
        Self { fresh: TaskRange { first: 0, count: tasks }, begun: BinaryHeap::new(), share, copies }
    }

    /// Returns the tasks that the fewest workers have begun, at most so many if they are fresh.
    fn next(&mut self, most: u64, done: &[bool]) -> Option<TaskRange> {
        loop {
            let is_lost = self.begun.peek().is_some_and(|Reverse((copies, ..))| *copies == 0);
            if self.fresh.count > 0 && !is_lost {
                let count = most.min(self.fresh.count);
                self.begun.push(Reverse((0, self.fresh.first, count)));
                self.fresh = TaskRange { first: self.fresh.first + count, count: self.fresh.count - count };
            }
            let Reverse((copies, first, count)) = self.begun.pop()?;
            if copies > 0 && !self.copies {
                self.begun.push(Reverse((copies, first, count)));
                return None;
            }
            let tasks = TaskRange { first, count };
            let undone: TaskRanges =
                tasks.indices().filter(|task| !done[*task as usize]).map(TaskRange::single).collect();
            if undone == tasks.into() {
                self.begun.push(Reverse((copies + 1, first, count)));
                return Some(tasks);
            }
            self.begun.extend(undone.iter().map(|tasks| Reverse((copies, tasks.first, tasks.count))));
        }
    }
}

impl Mode {
    /// Creates the mode of a decision. `copies` says whether several workers may compute the same tasks.
    pub(super) fn new(decision: &Decision, copies: bool) -> Self {
        let allocated = decision.allocation.some().map(|(_, tasks)| tasks).sum();
        let first = |take, end| Wanted::First { take, taken: 0, end };
        let each = |tasks| Wanted::Each { done: vec![false; tasks as usize], left: tasks };
        let barrier = |wanted, tasks| Self {
            wanted,
            supply: Supply::Nothing,
            races: false,
            occupies: false,
            step: Some(TaskRange { first: 0, count: tasks }),
        };
        let race = |wanted, occupies, supply| Self { wanted, supply, races: true, occupies, step: None };
        match decision.collect {
            Collect::All => barrier(first(allocated, allocated), allocated),
            Collect::InParts { tasks } => {
                Self { supply: Supply::Pool(vec![TaskRange { first: 0, count: tasks }]), ..barrier(each(tasks), tasks) }
            }
            Collect::Soonest { take } => race(first(take, allocated), false, Supply::Nothing),
            Collect::First { take, refill: true } => race(first(take, u64::MAX), true, Supply::Fresh(allocated)),
            Collect::First { take, refill: false } => race(first(take, u64::MAX), true, Supply::Nothing),
            Collect::Race { tasks } => {
                let workers = decision.allocation.len() as u64;
                race(each(tasks), true, Supply::Race(Race::new(tasks, workers, copies)))
            }
            Collect::Each { .. } => Self { races: false, ..race(first(1, u64::MAX), true, Supply::Fresh(0)) },
        }
    }

    /// Changes to the mode for a step whose results, and with them its tasks, are known: those that are lost are computed again.
    pub(super) fn settle(&mut self) {
        (self.wanted, self.supply, self.races) = (Wanted::Lost(TaskRanges::default()), Supply::Nothing, false);
    }

    /// Returns the tasks to hand out as the iteration begins, as positions among the decision's workers, with tasks.
    pub(super) fn shares(&mut self, decision: &Decision) -> Vec<(usize, TaskRange)> {
        let workers = decision.allocation.some();
        let mut shares = match (&self.supply, &self.wanted) {
            // Each worker gets one task, whatever its share.
            (Supply::Race(_), _) => {
                (0..decision.allocation.len()).filter_map(|i| Some((i, self.next(false)?))).collect()
            }
            // Any result may be among those that make the step.
            _ if self.races => {
                let tasks = workers.flat_map(|(i, tasks)| std::iter::repeat_n(i, tasks as usize));
                tasks.zip((0..).map(TaskRange::single)).collect()
            }
            (Supply::Nothing, Wanted::First { end, .. }) => {
                share_out(&mut [TaskRange { first: 0, count: *end }], workers)
            }
            _ => Vec::new(),
        };
        let probes = match &self.wanted {
            Wanted::First { end, .. } => *end..,
            Wanted::Each { done, .. } => done.len() as u64..,
            Wanted::Lost(_) => u64::MAX..,
        };
        shares.extend(decision.probes.iter().copied().zip(probes.map(TaskRange::single)));
        shares
    }

    pub(super) fn wants(&self, tasks: TaskRange) -> bool {
        match &self.wanted {
            Wanted::First { end, .. } => tasks.first < *end,
            Wanted::Each { done, .. } => {
                done.get(tasks.first as usize..tasks.end() as usize).is_some_and(|done| !done.contains(&true))
            }
            Wanted::Lost(lost) => lost.covers(&tasks.into()),
        }
    }

    pub(super) fn take(&mut self, tasks: TaskRange) {
        match &mut self.wanted {
            Wanted::First { taken, .. } => *taken += tasks.count,
            Wanted::Each { done, left } => {
                done[tasks.first as usize..tasks.end() as usize].fill(true);
                *left -= tasks.count;
            }
            Wanted::Lost(lost) => *lost = lost.minus(&tasks.into()),
        }
    }

    /// Takes back a result that was lost before it was collected.
    pub(super) fn lose(&mut self, tasks: TaskRange) {
        match &mut self.wanted {
            Wanted::First { taken, .. } => *taken -= tasks.count,
            Wanted::Each { done, left } => {
                done[tasks.first as usize..tasks.end() as usize].fill(false);
                *left += tasks.count;
            }
            Wanted::Lost(lost) => lost.insert(tasks),
        }
        if let Supply::Race(race) = &mut self.supply
            && race.copies
        {
            race.begun.push(Reverse((0, tasks.first, tasks.count)));
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        match &self.wanted {
            Wanted::First { take, taken, .. } => taken >= take,
            Wanted::Each { left, .. } => *left == 0,
            Wanted::Lost(lost) => lost.is_empty(),
        }
    }

    /// Returns whether workers with nothing to do get [`Self::next`].
    pub(super) fn keeps_busy(&self) -> bool {
        matches!(self.supply, Supply::Fresh(_) | Supply::Race(_))
    }

    /// Returns whether workers never wait, since there is always a next task: a lost one need not be handed out again.
    pub(super) fn never_waits(&self) -> bool {
        match &self.supply {
            Supply::Fresh(_) => true,
            Supply::Race(race) => race.copies,
            Supply::Nothing | Supply::Pool(_) => false,
        }
    }

    /// Returns the next tasks of a worker with nothing to do, which may compute a lease as one batch; `None` if it waits for the next
    /// iteration.
    pub(super) fn next(&mut self, fuses: bool) -> Option<TaskRange> {
        match (&mut self.supply, &self.wanted) {
            (Supply::Fresh(next), _) => {
                *next += 1;
                Some(TaskRange::single(*next - 1))
            }
            (Supply::Race(race), Wanted::Each { done, .. }) => race.next(if fuses { race.share } else { 1 }, done),
            _ => None,
        }
    }

    /// Returns the tasks that no worker has been given yet, if the policy is asked for more of them at each result.
    pub(super) fn pool(&mut self) -> Option<&mut Vec<TaskRange>> {
        if let Supply::Pool(tasks) = &mut self.supply { Some(tasks) } else { None }
    }
}

/// Takes tasks off `free`, in order, so that each worker gets its share, as (worker, number of tasks). Requests beyond the tasks that are
/// free are dropped. A share of more than [`MAX_LEASE_TASKS`] becomes several ranges.
pub(super) fn share_out(
    free: &mut [TaskRange],
    shares: impl IntoIterator<Item = (usize, u64)>,
) -> Vec<(usize, TaskRange)> {
    let mut free = free.iter_mut().filter(|tasks| tasks.count > 0).peekable();
    let mut pieces = Vec::new();
    for (worker, mut share) in shares {
        while share > 0
            && let Some(rest) = free.peek_mut()
        {
            let count = share.min(rest.count).min(MAX_LEASE_TASKS);
            pieces.push((worker, TaskRange { first: rest.first, count }));
            **rest = TaskRange { first: rest.first + count, count: rest.count - count };
            share -= count;
            free.next_if(|rest| rest.count == 0);
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::Rule;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_are_taken_in_order(
            gaps in prop::collection::vec((0u64..40, 0u64..40), 1..5),
            shares in prop::collection::vec(0u64..40, 1..9),
        ) {
            let mut end = 0;
            let before: Vec<TaskRange> = gaps.iter().map(|(gap, count)| {
                let range = TaskRange { first: end + gap, count: *count };
                end = range.end();
                range
            }).collect();
            let mut free = before.clone();
            let pieces = share_out(&mut free, shares.iter().copied().enumerate());
            let indices = |ranges: &[TaskRange]| ranges.iter().flat_map(|range| range.indices()).collect::<Vec<u64>>();
            let taken: Vec<TaskRange> = pieces.iter().map(|(_, range)| *range).collect();
            prop_assert_eq!([indices(&taken), indices(&free)].concat(), indices(&before));
            let workers: Vec<usize> = pieces.iter().flat_map(|(i, range)| vec![*i; range.count as usize]).collect();
            let asked = shares.iter().enumerate().flat_map(|(i, share)| vec![i; *share as usize]);
            prop_assert_eq!(workers, asked.take(indices(&before).len()).collect::<Vec<usize>>());
            let inside = |piece: &TaskRange| before.iter().any(|range| range.first <= piece.first && piece.end() <= range.end());
            prop_assert!(taken.iter().all(inside), "no piece joins two ranges");
        }

        /// The result is compared with a search through all tasks.
        #[test]
        fn the_task_with_fewest_copies_is_next(tasks in 1u64..12, turns in prop::collection::vec(prop::option::of(0u64..12), 0..60)) {
            let mut race = Mode::new(&Decision::new(vec![1], Collect::Race { tasks }, Rule::Uniform), true);
            let mut copies: Vec<Option<u32>> = vec![Some(0); tasks as usize];
            for turn in turns {
                if let Some(task) = turn.map(|task| task % tasks) {
                    if copies[task as usize].take().is_some() {
                        race.take(TaskRange::single(task));
                    }
                } else {
                    let next = (0..).zip(&mut copies).filter(|(_, copies)| copies.is_some()).min_by_key(|(_, copies)| **copies);
                    prop_assert_eq!(race.next(false), next.as_ref().map(|(task, _)| TaskRange::single(*task)));
                    if let Some((_, copies)) = next {
                        *copies = copies.map(|copies| copies + 1);
                    }
                }
                prop_assert_eq!(race.is_complete(), copies.iter().all(Option::is_none));
            }
        }
    }

    proptest! {
        /// Whatever is lost, in whatever parts, each task is taken once.
        #[test]
        fn each_task_of_a_race_counts_once(
            (tasks, workers) in (1u64..60, 1usize..6),
            turns in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), prop::option::of((0u64..9, 1u64..9))), 0..90),
        ) {
            let decision = Decision::new(vec![1; workers], Collect::Race { tasks }, Rule::Uniform);
            let mut race = Mode::new(&decision, true);
            let mut begun: Vec<TaskRange> = race.shares(&decision).into_iter().map(|(_, lease)| lease).collect();
            prop_assert!(begun.iter().all(|lease| lease.count == 1));
            let mut taken = vec![false; tasks as usize];
            let of = |tasks: TaskRange| tasks.first as usize..tasks.end() as usize;
            for (fuses, at, lost) in turns {
                begun.extend(race.next(fuses));
                let lease = begun.swap_remove(at.index(begun.len()));
                if race.wants(lease) {
                    race.take(lease);
                    prop_assert!(!taken[of(lease)].contains(&true), "{:?} was taken twice", lease);
                    taken[of(lease)].fill(true);
                    if let Some((first, count)) = lost {
                        let first = lease.first + first.min(lease.count - 1);
                        let lost = TaskRange { first, count: count.min(lease.end() - first) };
                        race.lose(lost);
                        taken[of(lost)].fill(false);
                    }
                }
                prop_assert_eq!(race.is_complete(), !taken.contains(&false));
                if begun.is_empty() && race.is_complete() {
                    break;
                }
            }
            while let Some(lease) = race.next(true) {
                prop_assert!(race.wants(lease) && lease.count <= tasks.div_ceil(workers as u64));
                race.take(lease);
            }
            prop_assert!(race.is_complete());
        }
    }

    /// Local steps of two workers are not the same, so that no task is begun twice.
    #[test]
    fn a_race_without_copies_begins_each_task_once() {
        let decision = Decision::new(vec![1; 2], Collect::Race { tasks: 5 }, Rule::Uniform);
        let mut race = Mode::new(&decision, false);
        let begun: Vec<TaskRange> = std::iter::from_fn(|| race.next(false)).collect();
        assert_eq!(begun, (0..5).map(TaskRange::single).collect::<Vec<_>>());
        assert!(race.keeps_busy() && !race.never_waits());
        for tasks in &begun {
            race.take(*tasks);
        }
        assert!(race.is_complete());
        race.lose(begun[3]);
        assert_eq!((race.is_complete(), race.next(false)), (false, None), "lost tasks are handed out like others");
    }

    #[test]
    fn each_share_is_one_range_if_a_lease_may_be_so_large() {
        let counts = |shares: &[u64]| {
            let mut all = [TaskRange { first: 0, count: shares.iter().sum() }];
            let pieces = share_out(&mut all, shares.iter().copied().enumerate());
            pieces.iter().map(|(worker, range)| (*worker, range.count)).collect::<Vec<_>>()
        };
        assert_eq!(counts(&[9, 0, 4, 1]), [(0, 9), (2, 4), (3, 1)]);
        let most = MAX_LEASE_TASKS;
        assert_eq!(counts(&[2 * most + 3, 1]), [(0, most), (0, most), (0, 3), (1, 1)]);
    }
}
