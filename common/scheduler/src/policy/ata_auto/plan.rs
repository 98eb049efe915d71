//! What ATA-Auto plans for an iteration, and how it goes on from there.

use crate::allocation::ras_by_cost;
use crate::ids::WorkerId;
use crate::policy::{Doing, Midway, Orders, SchedulerRng};

use super::known::Pace;

/// A worker that may compute in the iteration under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) worker: WorkerId,
    pub(super) pace: Pace,
    /// Tasks planned for it.
    pub(super) share: u64,
}

/// The plan for an iteration.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) members: Vec<Member>,
    /// By slot: which member.
    place: Vec<u32>,
    /// Standard deviations in the index, β.
    pub(super) caution: f64,
    /// Worker-seconds that a second of runtime is worth.
    pub(super) second_is_worth: f64,
    has_begun: bool,
}

/// No member.
const NONE: u32 = u32::MAX;

impl Plan {
    pub(super) fn new(members: Vec<Member>, workers: usize, caution: f64, second_is_worth: f64) -> Self {
        let mut place = vec![NONE; workers];
        for (at, member) in members.iter().enumerate() {
            place[member.worker.slot()] = at as u32;
        }
        Self { members, place, caution, second_is_worth, has_begun: false }
    }

    /// A member's task took `busy_s` seconds.
    pub(super) fn observe(&mut self, worker: WorkerId, busy_s: f64) {
        let at = self.place.get(worker.slot()).copied().unwrap_or(NONE);
        if let Some(Member { pace, .. }) = self.members.get_mut(at as usize)
            && pace.most.is_none()
        {
            pace.mean_s = (pace.mean_s * pace.count + busy_s) / (pace.count + 1.0);
            pace.count += 1.0;
        }
    }

    pub(super) fn resume(&mut self, midway: &Midway<'_>, orders: &mut Orders) {
        if !std::mem::replace(&mut self.has_begun, true) {
            let shares = self.members.iter().filter(|member| member.share > 0);
            orders.begin.extend(shares.map(|member| (member.worker, self.first_part(&member.pace, member.share))));
        } else if midway.left > 0 {
            self.share_rest(midway, orders);
        } else {
            self.copy_late(midway, orders);
        }
    }

    /// How many tasks of a share to hand out at once: half of them, unless an assignment costs more than holding back is
    /// likely to gain.
    fn first_part(&self, pace: &Pace, share: u64) -> u64 {
        if pace.deviation_s(share as f64) <= pace.per_assignment_s() {
            return share;
        }
        ((share as f64 * crate::tune!("PART", 0.5)).ceil() as u64).min((pace.count as u64).max(1))
    }

    /// Shares out the tasks that are left, as if the workers' time began when they are likely to be free.
    fn share_rest(&self, midway: &Midway<'_>, orders: &mut Orders) {
        let mut free: Vec<(&Member, f64, bool)> = Vec::with_capacity(self.members.len());
        for member in &self.members {
            match midway.doing(member.worker) {
                Doing::Away => {}
                Doing::Idle => free.push((member, 0.0, true)),
                Doing::Busy { tasks, elapsed_s, .. } => free.push((member, member.pace.rest_s(tasks, elapsed_s, 0.0), false)),
            }
        }
        if !free.iter().any(|(.., is_idle)| *is_idle) {
            return;
        }
        let cost = |i: usize, tasks: u64| {
            let (member, rest_s, is_idle) = free[i];
            let pace = &member.pace;
            let a = tasks as f64;
            if is_idle {
                return pace.index_s(tasks, self.caution);
            }
            let doubt = pace.variation * (a + 0.5 + a * a / pace.count);
            rest_s + pace.fixed_s + a * pace.mean_s + self.caution * pace.mean_s * doubt.sqrt()
        };
        let mut rng: SchedulerRng = rand::SeedableRng::seed_from_u64(midway.left);
        let shares = ras_by_cost(free.len(), midway.left, cost, &mut rng);
        for ((member, _, is_idle), share) in free.iter().zip(shares) {
            if *is_idle && share > 0 {
                orders.begin.push((member.worker, self.first_part(&member.pace, share)));
            }
        }
    }

    /// Has idle workers compute late tasks as well, if the second is worth it.
    fn copy_late(&self, midway: &Midway<'_>, orders: &mut Orders) {
        let mut late: Vec<(WorkerId, f64, u64)> = Vec::new();
        let mut idle: Vec<(&Member, f64)> = Vec::new();
        let mut longest_s = 0.0_f64;
        for member in &self.members {
            match midway.doing(member.worker) {
                Doing::Busy { tasks, elapsed_s, is_copied: false } => {
                    late.push((member.worker, member.pace.rest_s(tasks, elapsed_s, self.caution), tasks));
                    longest_s = longest_s.max(elapsed_s);
                }
                Doing::Idle => idle.push((member, member.pace.index_s(1, self.caution))),
                Doing::Away | Doing::Busy { .. } => {}
            }
        }
        if late.is_empty() || idle.is_empty() {
            return;
        }
        late.sort_by(|a, b| b.1.total_cmp(&a.1));
        idle.sort_by(|a, b| a.1.total_cmp(&b.1));
        orders.ask_again_s = Some(midway.now_s + longest_s.max(idle[0].1));
        let mode = crate::tune!("COPY", 1.0);
        if mode == 0.0 {
            let count = late.len() as f64;
            let pays = |((_, rest_s, tasks), (member, _)): &(&(WorkerId, f64, u64), &(&Member, f64))| {
                let copy_s = member.pace.index_s(*tasks, self.caution);
                (rest_s - copy_s) * self.second_is_worth > copy_s * count
            };
            orders.copy.extend(late.iter().zip(&idle).take_while(pays).map(|(late, idle)| (idle.0.worker, late.0)));
            return;
        }
        let save = crate::tune!("SAVE", 1.0);
        let (mut end_s, mut cost_s, mut best, mut many) = (0.0_f64, 0.0, 0.0, 0);
        for (at, ((_, rest_s, tasks), (member, _))) in late.iter().zip(&idle).enumerate() {
            let copy_s = member.pace.index_s(*tasks, self.caution);
            if copy_s >= *rest_s { break; }
            end_s = end_s.max(copy_s);
            cost_s += copy_s - save * (rest_s - copy_s);
            let next_s = late.get(at + 1).map_or(0.0, |next| next.1);
            let gain = (late[0].1 - end_s.max(next_s)).max(0.0) * self.second_is_worth - cost_s;
            if gain > best { (best, many) = (gain, at + 1); }
        }
        orders.copy.extend(late.iter().zip(&idle).take(many).map(|(late, idle)| (idle.0.worker, late.0)));
    }
}

