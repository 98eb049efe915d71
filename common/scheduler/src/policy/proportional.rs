//! Proportional: a policy that allocates tasks in proportion to the workers' speeds.
//!
//! Sources: Chen, Weng, Wang, Li, Li, "Semi-Dynamic Load Balancing: Efficient Distributed Learning in Non-Dedicated
//! Environments", SoCC 2020 (LB-BSP), which predicts the speeds; Ye, Zhou, Shi, Sun, Lv, "DBS: Dynamic Batch Size For
//! Distributed Deep Neural Network Training", 2020 (arXiv 2007.11831), which uses those of the previous epoch.

use super::ema::Ema;
use super::shares::{Tally, in_proportion, new_workers_first};
use super::{
    Decision, Policy, PolicyEntry, PolicyError, PolicyKind, PolicyState, Round, SchedulerRng, from_state, to_state,
};
use crate::allocation::Rule;
use ata_types::WorkerId;

/// The policy's entry in the registry.
pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "proportional",
    about: "tasks in proportion to speed, rounded (LB-BSP, DBS); no exploration",
    parameters: "weight=SHARE of the newest time in the mean (default: 0.2), or window=ITERATIONS between new speeds",
    kind: PolicyKind::Barrier,
    build: |arguments| {
        let window = arguments.count("window")?;
        if window.is_some() && arguments.has("weight") {
            return Err(PolicyError::conflict("give either 'weight' or 'window'"));
        }
        let means = Ema::from_arguments(arguments)?;
        Ok(Box::new(Proportional { means, window, done: Tally::default() }))
    },
};

/// Allocates shares in proportion to 1/m_i, rounded by largest remainder to sum B. m_i is the exponentially weighted mean of
/// worker i's task times or, with a window, its mean time in the last W iterations, updated every W iterations.
///
/// Each worker is tried once first. A worker without a task in the last window keeps its previous mean.
struct Proportional {
    means: Ema,
    /// The number of iterations between two changes of the means, W; `None` if they move with every task.
    window: Option<u64>,
    done: Tally,
}

impl Policy for Proportional {
    fn name(&self) -> &'static str {
        "proportional"
    }

    fn observe(&mut self, worker: WorkerId, busy_s: f64) {
        if self.window.is_some() {
            self.done.add(worker, 1, busy_s);
        } else {
            self.means.observe(worker, busy_s);
        }
    }

    fn expected_s(&self, worker: WorkerId) -> Option<f64> {
        self.means.expected_s(worker)
    }

    fn forget(&mut self, worker: WorkerId) {
        self.means.forget(worker);
        self.done.forget(worker);
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        if self.window.is_some_and(|window| (round.iteration.number() - 1).is_multiple_of(window)) {
            for (worker, tasks, busy_s) in self.done.take() {
                *self.means.mean_s(worker) = Some(busy_s / tasks as f64);
            }
        }
        // A worker that was first tried in the current window has the mean of its tasks so far.
        let means_s = self.means.of(round);
        let (allocation, rule) = new_workers_first(round, Rule::Named("proportional"), rng, |known, budget, rng| {
            let speeds: Vec<f64> = known.iter().map(|&i| 1.0 / means_s[i]).collect();
            in_proportion(&speeds, budget, rng)
        });
        Decision::barrier(allocation, means_s, rule)
    }

    fn save(&self) -> PolicyState {
        to_state(&(self.means.save(), &self.done))
    }

    fn restore(&mut self, state: PolicyState) -> Result<(), String> {
        let (means, done) = from_state::<(PolicyState, Tally)>(state)?;
        if !done.is_valid() {
            return Err("a task time is negative".into());
        }
        self.means.restore(means)?;
        self.done = done;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::{built, decide};

    /// Returns the allocations of iterations in which worker i's tasks take `times_s[k][i]` seconds each.
    fn allocations<const N: usize>(specification: &str, budget: u64, times_s: &[[f64; N]]) -> Vec<Vec<u64>> {
        let mut policy = built(specification);
        let mut observed = [(0, 0.0); N];
        let run = times_s.iter().zip(1..).map(|(times_s, iteration)| {
            let allocation = decide(&mut *policy, iteration, budget, &observed).allocation.to_vec();
            for (slot, (&tasks, &time_s)) in allocation.iter().zip(times_s).enumerate() {
                (0..tasks).for_each(|_| policy.observe(WorkerId::from_slot(slot), time_s));
                observed[slot].0 += tasks;
                observed[slot].1 += tasks as f64 * time_s;
            }
            allocation
        });
        run.collect()
    }

    /// LB-BSP, DBS: b_i = B·v_i/Σv, where v_i is the speed. This is not the allocation that finishes first: with times 1 and 9, the one
    /// task of the second worker takes nearly twice as long as all tasks of the first.
    #[test]
    fn tasks_are_in_proportion_to_speed() {
        for specification in ["proportional", "proportional:window=1"] {
            assert_eq!(allocations(specification, 14, &[[1.0, 2.0, 4.0]; 3])[1..], [[8, 4, 2], [8, 4, 2]]);
        }
        assert_eq!(allocations("proportional", 6, &[[1.0, 9.0]; 3])[1..], [[5, 1], [5, 1]]);
    }

    /// DBS: the speeds are those of the last epoch, and change with the next one.
    #[test]
    fn a_window_s_speeds_last_for_the_next_one() {
        let (before, after) = ([1.0, 3.0], [3.0, 1.0]);
        let times_s = [before, before, before, after, after, after, after];
        let allocations = allocations("proportional:window=3", 8, &times_s);
        assert_eq!(allocations[1..], [[6, 2], [6, 2], [6, 2], [6, 2], [6, 2], [2, 6]]);
    }
}
