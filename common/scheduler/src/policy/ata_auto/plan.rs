//! ATA-Auto's plan for an iteration, and how it changes within the iteration.

use smallvec::SmallVec;

use super::pace::Pace;
use crate::policy::{Actions, Activity, IterationView};
use crate::topology::OwnTimes;
use ata_types::WorkerId;

/// A worker that may compute in the current iteration.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedWorker {
    /// Its position in [`Round::workers`](crate::Round).
    pub(super) position: usize,
    pub(super) worker: WorkerId,
    pub(super) pace: Pace,
    pub(super) share: u64,
    /// The time that vectors take on its own link.
    pub(super) own: OwnTimes,
}

/// The amount of work and risk that a second of runtime is worth.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Preferences {
    /// Price of one second of runtime, in worker-seconds.
    pub(super) time_price: f64,
    /// The number of standard deviations that are added to expected times, β.
    pub(super) caution: f64,
    /// Seconds of runtime lost if a worker with a share is overtaken ([`LinkTimes::fallback_s`](crate::LinkTimes::fallback_s)).
    pub(super) fallback_s: f64,
}

/// A member with its index for one task, which is computed once because it is needed after each result.
#[derive(Clone, Copy, Debug)]
struct IndexedMember {
    member: PlannedWorker,
    /// The index if the member is idle.
    idle_s: f64,
    /// The index beyond the time for the tasks that the member holds.
    after_s: f64,
}

impl IndexedMember {
    fn new(member: PlannedWorker, caution: f64) -> Self {
        let pace = &member.pace;
        Self { member, idle_s: pace.index_s(1, caution), after_s: pace.index_after_s(0.0, 1, caution) }
    }

    fn free(&self, busy_s: Option<f64>) -> FreeWorker<'_> {
        let next_s = busy_s.map_or(self.idle_s, |busy_s| busy_s + self.after_s);
        FreeWorker { member: &self.member, busy_s, next_s, elapsed_s: 0.0, takes_more: busy_s.is_none() }
    }
}

#[derive(Debug, Default)]
pub(super) struct TaskPlan {
    members: Vec<IndexedMember>,
    preferences: Preferences,
    began_s: Option<f64>,
    /// Probes that are cancelled some time after the iteration began, in seconds.
    limits_s: Vec<(WorkerId, f64)>,
}

#[derive(Clone, Copy)]
struct LateWorker {
    worker: WorkerId,
    tasks: u64,
    rest_s: f64,
}

impl TaskPlan {
    pub(super) fn new(members: Vec<PlannedWorker>, limits_s: Vec<(WorkerId, f64)>, preferences: Preferences) -> Self {
        let members = members.into_iter().map(|member| IndexedMember::new(member, preferences.caution)).collect();
        Self { members, preferences, began_s: None, limits_s }
    }

    pub(super) fn observe(&mut self, worker: WorkerId, busy_s: f64) {
        let is_one = |ready: &&mut IndexedMember| ready.member.worker == worker && ready.member.pace.most.is_none();
        if let Some(ready) = self.members.iter_mut().find(is_one) {
            let mut member = ready.member;
            member.pace.observe(busy_s);
            *ready = IndexedMember::new(member, self.preferences.caution);
        }
    }

    pub(super) fn replan(&mut self, view: &IterationView<'_>, actions: &mut Actions) {
        match self.began_s {
            None => self.begin(view, actions),
            Some(_) if view.left > 0 => self.share_rest(view, actions),
            Some(_) => self.copy_late(view, actions),
        }
        let began_s = *self.began_s.get_or_insert(view.now_s);
        let over = self.limits_s.extract_if(.., |(_, limit_s)| view.now_s >= began_s + *limit_s);
        actions.stop.extend(over.map(|(worker, _)| worker));
        let next_s = self.limits_s.iter().map(|(_, limit_s)| began_s + limit_s);
        actions.ask_again_s = next_s.chain(actions.ask_again_s).reduce(f64::min);
    }

    fn begin(&self, view: &IterationView<'_>, actions: &mut Actions) {
        for PlannedWorker { worker, pace, share, .. } in self.members.iter().map(|ready| &ready.member) {
            let part = first_part(pace, *share, view.may_copy);
            actions.begin.push((*worker, part));
            if pace.is_queued(part) {
                actions.begin.push((*worker, first_part(pace, share - part, view.may_copy)));
            }
        }
        // The policy is asked again when the last worker should be done, if nothing happens before.
        let times_s = self.members.iter().map(|ready| ready.member.pace.time_s(ready.member.share));
        actions.ask_again_s = Some(view.now_s + times_s.fold(0.0, f64::max));
    }

    /// Shares out the tasks that are left, as if each worker's time began when it is likely to be free.
    fn share_rest(&self, view: &IterationView<'_>, actions: &mut Actions) {
        let caution = self.preferences.caution;
        let mut free: SmallVec<[FreeWorker<'_>; 16]> = SmallVec::new();
        let may_join = self.may_more_join(view);
        for ready in &self.members {
            // A worker without a share was left out because its vector would delay the step for all.
            if ready.member.share == 0 && ready.member.pace.window_s > 0.0 && !may_join {
                continue;
            }
            let worker = match view.activity(ready.member.worker) {
                Activity::Away => continue,
                Activity::Idle => ready.free(None),
                Activity::Busy { tasks, elapsed_s, has_more, .. } => {
                    let rest_s = ready.member.pace.rest_s(tasks, elapsed_s);
                    let is_queued = !has_more && ready.member.pace.is_queued(tasks);
                    FreeWorker { elapsed_s, takes_more: is_queued, ..ready.free(Some(rest_s)) }
                }
            };
            free.push(worker);
        }
        // The workers are in the order of their index: if one gets nothing, neither do those after it.
        let mut last = None;
        while let Some(next) = next_after(&free, last) {
            let share = share(&free, next.1, view.left, caution);
            if share == 0 {
                break;
            }
            let PlannedWorker { worker, ref pace, .. } = *free[next.1].member;
            actions.begin.push((worker, first_part(pace, share, view.may_copy)));
            last = Some(next);
        }
        // If nothing happens, idle workers may take over what is held back for late ones: the policy is asked again when the
        // latest worker is as late again.
        let is_held_back = view.left > actions.begin.iter().map(|(_, tasks)| tasks).sum::<u64>();
        let longest_s = free.iter().map(|free| free.elapsed_s).fold(0.0, f64::max);
        let idle_s = free.iter().filter(|free| free.busy_s.is_none()).map(|free| free.next_s).reduce(f64::min);
        actions.ask_again_s = idle_s.filter(|_| is_held_back).map(|idle_s| view.now_s + longest_s.max(idle_s));
    }

    /// Returns whether one of the workers with a share is so late that others are needed.
    fn may_more_join(&self, view: &IterationView<'_>) -> bool {
        let is_late = |member: &PlannedWorker| match view.activity(member.worker) {
            Activity::Busy { tasks, elapsed_s, .. } => member.pace.is_late(tasks, elapsed_s),
            Activity::Away => true,
            Activity::Idle => false,
        };
        self.members.iter().map(|ready| &ready.member).filter(|member| member.share > 0).any(is_late)
    }

    /// Lets idle workers compute late tasks as well, if the time gained is worth it.
    fn copy_late(&mut self, view: &IterationView<'_>, actions: &mut Actions) {
        let mut late: Vec<LateWorker> = Vec::new();
        let mut idle: Vec<(f64, &Pace, WorkerId)> = Vec::new();
        let mut longest_s = 0.0_f64;
        let Preferences { time_price, fallback_s, .. } = self.preferences;
        for IndexedMember { member, idle_s, .. } in &self.members {
            let PlannedWorker { worker, ref pace, .. } = *member;
            match view.activity(worker) {
                Activity::Busy { tasks, elapsed_s, is_copied: false, .. } => {
                    late.push(LateWorker { worker, tasks, rest_s: pace.rest_s(tasks, elapsed_s) });
                    longest_s = longest_s.max(elapsed_s);
                }
                Activity::Idle => idle.push((*idle_s, pace, worker)),
                Activity::Away | Activity::Busy { .. } => {}
            }
        }
        if late.is_empty() || idle.is_empty() {
            return;
        }
        late.sort_by(|a, b| b.rest_s.total_cmp(&a.rest_s));
        idle.sort_by(|a, b| a.0.total_cmp(&b.0));
        // The policy is asked again when the latest worker is as late again.
        actions.ask_again_s = Some(view.now_s + longest_s.max(idle[0].0));
        // Both are expected times, since the gain is an expected value.
        let copy_s = |i: usize, tasks: u64| Some(idle.get(i)?.1.index_s(tasks, 0.0));
        let many = most_worth(&late, copy_s, time_price, fallback_s);
        actions.copy.extend(late.iter().zip(&idle).take(many).map(|(late, (.., copier))| (*copier, late.worker)));
        if many > 0 {
            // The step can fall back only once.
            self.preferences.fallback_s = 0.0;
        }
    }
}

/// A member that could compute more.
struct FreeWorker<'a> {
    member: &'a PlannedWorker,
    /// The time that it is likely to need for the tasks it holds; `None` if it is idle.
    busy_s: Option<f64>,
    /// The index of the member for one more task.
    next_s: f64,
    /// Seconds since it began its current tasks.
    elapsed_s: f64,
    /// Whether it is idle, or would be idle before an assignment reaches it.
    takes_more: bool,
}

impl FreeWorker<'_> {
    fn index_s(&self, tasks: u64, caution: f64) -> f64 {
        match self.busy_s {
            None => self.member.pace.index_s(tasks, caution),
            Some(busy_s) => self.member.pace.index_after_s(busy_s, tasks, caution),
        }
    }
}

/// Returns the next member that takes more, in the order of the index for a task, with that index.
fn next_after(free: &[FreeWorker<'_>], last: Option<(f64, usize)>) -> Option<(f64, usize)> {
    let ready = free.iter().enumerate().filter(|(_, free)| free.takes_more).map(|(i, free)| (free.next_s, i));
    ready.filter(|next| last.is_none_or(|last| last < *next)).min_by(|a, b| a.0.total_cmp(&b.0))
}

/// Returns the share of the `i`-th member under RAS for the index of `left` tasks: its a-th task is included if it and the tasks of
/// others with a smaller index are at most as many as there are.
fn share(free: &[FreeWorker<'_>], i: usize, left: u64, caution: f64) -> u64 {
    let fits = |tasks: u64| {
        let index_s = free[i].index_s(tasks, caution);
        let mut room = left - tasks;
        for other in free.iter().enumerate().filter(|(at, _)| *at != i).map(|(_, other)| other) {
            let (mut next_s, mut next) = (other.next_s, 1);
            while next_s < index_s {
                if room == 0 {
                    return false;
                }
                (room, next) = (room - 1, next + 1);
                next_s = other.index_s(next, caution);
            }
        }
        true
    };
    // Shares are usually far smaller than the number of tasks left.
    let (mut least, mut step) = (0, 1);
    while step <= left - least && fits(least + step) {
        (least, step) = (least + step, 2 * step);
    }
    let mut most = (least + step - 1).min(left);
    while least < most {
        let middle = least + (most - least).div_ceil(2);
        (least, most) = if fits(middle) { (middle, most) } else { (least, middle - 1) };
    }
    least
}

/// Returns how many of the latest workers to overtake: all that are later than a copy would be, since the iteration ends with the last.
/// `copy_s` returns the time that the i-th copier needs for some tasks, and `fallback_s` is what is lost if any is overtaken.
fn most_worth(
    late: &[LateWorker],
    copy_s: impl Fn(usize, u64) -> Option<f64>,
    time_price: f64,
    fallback_s: f64,
) -> usize {
    let (mut end_s, mut cost_s) = (0.0_f64, 0.0);
    let (mut most, mut many) = (0.0, 0);
    for (i, &LateWorker { tasks, rest_s, .. }) in late.iter().enumerate() {
        let Some(copy_s) = copy_s(i, tasks).filter(|copy_s| *copy_s < rest_s) else { break };
        end_s = end_s.max(copy_s);
        // The overtaken worker saves the rest of its time.
        cost_s += copy_s - (rest_s - copy_s);
        let next_s = late.get(i + 1).map_or(0.0, |next| next.rest_s);
        let gain = (late[0].rest_s - end_s.max(next_s) - fallback_s) * time_price - cost_s;
        if gain > most {
            (most, many) = (gain, i + 1);
        }
    }
    many
}

/// The parts of a share that can neither be copied nor taken back: a worker that holds two of them and becomes ten times slower ends about
/// when the others have done the rest.
const PARTS_WITHOUT_COPIES: u64 = 16;

/// Returns how many tasks of a share to hand out at once: a quarter of them, unless the share is one batch, or knowing how long that takes
/// saves less than the time by which the worker's vector is delayed. A worker with few observations gets no more than it has done.
///
/// If no other worker may compute the same tasks, the step waits for all that a worker has begun, however slow it has become. So it gets
/// less, but as much as it computes while the next assignment comes.
fn first_part(pace: &Pace, share: u64, may_copy: bool) -> u64 {
    let known = (pace.count as u64).max(1);
    if !may_copy {
        let of_an_assignment = (pace.overhead_s / pace.mean_s).ceil() as u64;
        return share.div_ceil(PARTS_WITHOUT_COPIES).max(of_an_assignment).min(share).min(known);
    }
    let part = share.div_ceil(4);
    let (spared_s, held_back_s) = (pace.noise_s(share) - pace.noise_s(part), (share - part) as f64 * pace.mean_s);
    if pace.most.is_some() || spared_s <= (pace.window_s - held_back_s).max(0.0) {
        return share;
    }
    part.min(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::ras_by_cost;
    use crate::policy::SchedulerRng;
    use crate::policy::ata_auto::tests::pace;
    use proptest::prelude::*;
    use rand::SeedableRng;

    fn member(number: usize, mean_s: f64) -> PlannedWorker {
        let (worker, pace) = (WorkerId::from_slot(number), Pace { mean_s, ..pace(0.3) });
        PlannedWorker { position: number, worker, pace, share: 0, own: OwnTimes::default() }
    }

    proptest! {
        #[test]
        fn each_share_is_that_of_ras(
            workers in prop::collection::vec((0.1f64..10.0, prop::option::of(0.01f64..20.0)), 1..8),
            left in 1u64..40,
        ) {
            let ready: Vec<IndexedMember> =
                workers.iter().enumerate().map(|(i, (mean_s, _))| IndexedMember::new(member(i, *mean_s), 1.0)).collect();
            let free: Vec<FreeWorker<'_>> = ready.iter().zip(&workers).map(|(ready, (_, busy_s))| ready.free(*busy_s)).collect();
            let index_s = |i: usize, tasks: u64| free[i].index_s(tasks, 1.0);
            let expected = ras_by_cost(free.len(), left, index_s, &mut SchedulerRng::seed_from_u64(1));
            let found: Vec<u64> = (0..free.len()).map(|i| share(&free, i, left, 1.0)).collect();
            prop_assert_eq!(found, expected);
        }
    }

    /// The first part is a quarter of a share, or all of it if a part saves nothing or the share is a batch.
    #[test]
    fn the_first_part_is_a_quarter_of_a_share() {
        let noisy = Pace { overhead_s: 0.0, count: 100.0, ..pace(0.3) };
        for (share, part) in [(1, 1), (2, 1), (5, 2), (9, 3), (16, 4)] {
            assert_eq!(first_part(&noisy, share, true), part, "{share}");
        }
        assert_eq!(first_part(&Pace { count: 1.0, ..noisy }, 16, true), 1, "no more than it has done");
        // Six tasks of two seconds are held back, and knowing how long three take saves 2.6 seconds.
        for (window_s, part) in [(14.4, 3), (14.7, 9), (1e3, 9)] {
            assert_eq!(first_part(&Pace { window_s, ..noisy }, 9, true), part, "{window_s}");
        }
        assert_eq!(first_part(&Pace { most: Some(99), ..noisy }, 9, true), 9);
        assert_eq!(first_part(&Pace { variation: 0.0, doubt: 0.0, ..noisy }, 9, true), 9);
        assert_eq!([1, 16, 33].map(|share| first_part(&noisy, share, false)), [1, 1, 3]);
        let far = Pace { overhead_s: 2.5 * noisy.mean_s, ..noisy };
        assert_eq!([2, 16, 99].map(|share| first_part(&far, share, false)), [2, 3, 7]);
    }

    fn late(rests_s: &[f64]) -> Vec<LateWorker> {
        let late = |(i, &rest_s): (usize, &f64)| LateWorker { worker: WorkerId::from_slot(i), tasks: 1, rest_s };
        rests_s.iter().enumerate().map(late).collect()
    }

    #[test]
    fn a_late_worker_is_overtaken_if_that_is_worth_it() {
        let copy_s = |i: usize, _: u64| [2.0, 4.0].get(i).copied();
        // The time falls from 3 to 2 seconds, for 2 worker-seconds, of which the overtaken worker saves one.
        assert_eq!(most_worth(&late(&[3.0]), copy_s, 1.1, 0.0), 1);
        assert_eq!(most_worth(&late(&[3.0]), copy_s, 0.9, 0.0), 0);
        assert_eq!(most_worth(&late(&[1.0]), copy_s, 1e9, 0.0), 0, "a copy would be later still");
        // The step would fall back to a star.
        assert_eq!(most_worth(&late(&[5.0]), copy_s, 1e9, 2.9), 1);
        assert_eq!(most_worth(&late(&[5.0]), copy_s, 1e9, 3.1), 0);
        // Overtaking only the first worker gains nothing, since the second is as late; overtaking both does.
        assert_eq!(most_worth(&late(&[30.0, 30.0]), copy_s, 1.0, 0.0), 2);
        // The third worker cannot be overtaken, and overtaking only the first two gains nothing.
        assert_eq!(most_worth(&late(&[3.5, 3.5, 3.5]), copy_s, 1.0, 0.0), 0);
    }
}
