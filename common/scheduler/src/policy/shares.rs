//! Common parts of the policies without exploration: every worker is tried once first, shares are rounded to whole tasks, and
//! the tasks and seconds of an iteration are added up.

use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::{Round, SchedulerRng, save_trimmed};
use crate::allocation::{Rule, uniform};
use ata_types::WorkerId;

/// The smallest cost of a task, in seconds: a clock may measure zero, but costs must be positive.
pub(super) const LEAST_S: f64 = 1e-100;

/// Gives one task to each worker that was never observed, and shares the rest among the others by `share`, which takes their positions in
/// [`Round::workers`] and the number of tasks left, and returns the tasks in the same order. `rule` is its name.
///
/// If more workers are new than there are tasks, a random choice of them gets one each; if all are new, all tasks go to
/// them in equal shares.
pub(super) fn new_workers_first(
    round: &Round<'_>,
    rule: Rule,
    rng: &mut SchedulerRng,
    share: impl FnOnce(&[usize], u64, &mut SchedulerRng) -> Vec<u64>,
) -> (Vec<u64>, Rule) {
    let (new, known): (Vec<usize>, Vec<usize>) = (0..round.workers.len()).partition(|&i| round.of(i).observed == 0);
    if new.is_empty() {
        return (share(&known, round.budget, rng), rule);
    }
    let rule = Rule::WarmUp { never_observed: new.len(), zero_score: 0 };
    if known.is_empty() {
        return (uniform(new.len(), round.budget, rng), rule);
    }
    let tried = round.budget.min(new.len() as u64);
    let left = round.budget - tried;
    let mut allocation = vec![0; round.workers.len()];
    for (&i, tasks) in new.iter().zip(uniform(new.len(), tried, rng)) {
        allocation[i] = tasks;
    }
    if left > 0 {
        for (&i, tasks) in known.iter().zip(share(&known, left, rng)) {
            allocation[i] = tasks;
        }
    }
    (allocation, rule)
}

/// Allocates `budget` tasks in proportion to `weights`, rounded by largest remainder: each share is rounded down, and the tasks
/// left go one each to the shares that lost most. Ties are broken at random.
///
/// # Panics
/// If a weight is negative or not finite, or none is positive.
pub(super) fn in_proportion(weights: &[f64], budget: u64, rng: &mut SchedulerRng) -> Vec<u64> {
    assert!(weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0), "weights are finite, and not negative");
    let largest = weights.iter().copied().fold(0.0, f64::max);
    assert!(largest > 0.0, "some weight is positive");
    // The weights are relative to the largest, so that no sum overflows.
    let sum: f64 = weights.iter().map(|weight| weight / largest).sum();
    let exact: Vec<f64> = weights.iter().map(|weight| weight / largest / sum * budget as f64).collect();
    let mut allocation: Vec<u64> = exact.iter().map(|share| *share as u64).collect();
    let allocated: u64 = allocation.iter().sum();

    let mut order: Vec<usize> = (0..weights.len()).filter(|&i| weights[i] > 0.0).collect();
    order.shuffle(rng);
    order.sort_by(|&i, &j| exact[j].fract().total_cmp(&exact[i].fract()));
    if allocated <= budget {
        let left = (budget - allocated) as usize;
        order.into_iter().cycle().take(left).for_each(|i| allocation[i] += 1);
    } else {
        // Products that should have been just below a whole number were rounded up to it.
        let excess = (allocated - budget) as usize;
        order.into_iter().rev().filter(|&i| exact[i] >= 1.0).take(excess).for_each(|i| allocation[i] -= 1);
    }
    allocation
}

/// The tasks and seconds of each worker since the tally was last cleared, such as in an iteration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Tally {
    /// The number of tasks and their total seconds, by slot; workers beyond the end have none.
    #[serde(serialize_with = "save_trimmed")]
    done: Vec<(u64, f64)>,
}

impl Tally {
    pub(super) fn add(&mut self, worker: WorkerId, tasks: u64, busy_s: f64) {
        let slot = worker.slot();
        self.done.resize(self.done.len().max(slot + 1), (0, 0.0));
        self.done[slot].0 += tasks;
        self.done[slot].1 += busy_s;
    }

    /// Returns a worker's number of tasks and their total seconds; `None` if it did none.
    pub(super) fn of(&self, worker: WorkerId) -> Option<(u64, f64)> {
        self.done.get(worker.slot()).copied().filter(|(tasks, _)| *tasks > 0)
    }

    /// Returns the workers that did tasks, with their number and total seconds, and clears the tally.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (WorkerId, u64, f64)> {
        let done = std::mem::take(&mut self.done).into_iter().enumerate();
        done.filter(|(_, (tasks, _))| *tasks > 0).map(|(slot, (tasks, s))| (WorkerId::from_slot(slot), tasks, s))
    }

    pub(super) fn forget(&mut self, worker: WorkerId) {
        if let Some(done) = self.done.get_mut(worker.slot()) {
            *done = (0, 0.0);
        }
    }

    pub(super) fn is_valid(&self) -> bool {
        self.done.iter().all(|(_, total_s)| total_s.is_finite() && *total_s >= 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::with_round;
    use proptest::prelude::*;
    use rand::SeedableRng;

    fn weight() -> impl Strategy<Value = f64> {
        prop_oneof![Just(0.0), Just(1.0), Just(1.0 / 3.0), 1e-3f64..1e3, Just(1e-300), Just(1e300)]
    }

    proptest! {
        /// The sum is the budget, and no share differs from the exact one by more than a task.
        #[test]
        fn shares_are_rounded_to_the_budget(
            weights in prop::collection::vec(weight(), 1..60),
            budget in prop_oneof![0u64..100, 0u64..1 << 24],
            seed: u64,
        ) {
            prop_assume!(weights.iter().any(|weight| *weight > 0.0));
            let allocation = in_proportion(&weights, budget, &mut SchedulerRng::seed_from_u64(seed));
            prop_assert_eq!(allocation.iter().sum::<u64>(), budget);
            let largest = weights.iter().copied().fold(0.0, f64::max);
            let sum: f64 = weights.iter().map(|weight| weight / largest).sum();
            for (&tasks, weight) in allocation.iter().zip(&weights) {
                let exact = weight / largest / sum * budget as f64;
                prop_assert!((tasks as f64 - exact).abs() < 1.0 + 1e-6, "{tasks} for {exact}");
                prop_assert!(*weight > 0.0 || tasks == 0, "nothing for a share of nothing");
            }
        }
    }

    /// A new worker gets a task before any other worker does; if all are new, they share the budget.
    #[test]
    fn each_new_worker_is_tried_once() {
        for (observed, budget, shares) in [
            ([1, 1, 1], 7, [3, 2, 2]),
            ([1, 0, 1], 7, [3, 3, 1]),
            ([0, 0, 1], 2, [1, 1, 0]),
            ([0, 0, 1], 1, [1, 0, 0]),
            ([0, 0, 0], 8, [3, 3, 2]),
        ] {
            let mut rng = SchedulerRng::seed_from_u64(budget);
            let (mut allocation, rule) = with_round(1, budget, &observed.map(|observed| (observed, 2.0)), |round| {
                new_workers_first(round, Rule::Ras, &mut rng, |known, left, rng| uniform(known.len(), left, rng))
            });
            let new = observed.iter().filter(|observed| **observed == 0).count();
            assert!(new == 3 || budget < 3 || (0..3).all(|i| observed[i] > 0 || allocation[i] == 1), "{allocation:?}");
            assert_eq!(rule == Rule::Ras, new == 0);
            allocation.sort_unstable();
            assert!(allocation.iter().rev().eq(&shares), "{allocation:?}");
        }
    }

    #[test]
    fn the_largest_remainders_get_the_tasks_left() {
        let mut rng = SchedulerRng::seed_from_u64(4);
        assert_eq!(in_proportion(&[3.4, 1.8, 0.7, 0.1], 6, &mut rng), [3, 2, 1, 0]);
    }
}
