//! Gradient coding by fractional repetition: groups of workers compute the same tasks.
//!
//! Source: Tandon, Lei, Dimakis, Karampatziakis, "Gradient Coding: Avoiding Stragglers in Distributed Learning", ICML 2017
//! (arXiv 1612.03301), the fractional repetition scheme. It needs no coding: within a group, all sums are the same.

use rand::seq::SliceRandom;

use ata_scheduler::Rule;
use ata_scheduler::policy::{
    Actions, Collect, Decision, IterationView, Policy, PolicyEntry, PolicyKind, Round, SchedulerRng,
};
use ata_types::WorkerId;

pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "gradient-coding",
    about: "groups of s + 1 workers compute the same tasks, the first of each group is waited for",
    parameters: "stragglers=S (default: 1)",
    kind: PolicyKind::Barrier,
    build: |arguments| {
        let stragglers = arguments.count("stragglers")?;
        arguments.at_most_workers("stragglers", stragglers)?;
        let stragglers = usize::try_from(stragglers.unwrap_or(1)).unwrap_or(usize::MAX);
        Ok(Box::new(GradientCoding { stragglers, groups: Vec::new() }))
    },
};

/// Groups of at least s + 1 workers, drawn anew in each iteration, share the budget equally. All workers of a group compute the same tasks,
/// and the first result of each sum is used, so s workers of a group may be arbitrarily slow.
///
/// The paper's groups are fixed. Here they are drawn, because all others would always wait for a fixed group of slow
/// workers.
struct GradientCoding {
    stragglers: usize,
    groups: Vec<Vec<WorkerId>>,
}

/// Distributes `workers` to as many groups of `size` as they fill, and the remainder to these groups, one each in turn. Too few workers
/// form one group.
fn deal<T: Copy>(workers: &[T], size: usize) -> Vec<Vec<T>> {
    let groups = (workers.len() / size).max(1);
    (0..groups).map(|group| workers.iter().skip(group).step_by(groups).copied().collect()).collect()
}

/// Returns the share of a group: equal ones, and the remainder goes to the first groups.
fn share(tasks: u64, groups: usize, group: usize) -> u64 {
    let (groups, group) = (groups as u64, group as u64);
    tasks / groups + u64::from(group < tasks % groups)
}

impl Policy for GradientCoding {
    fn name(&self) -> &'static str {
        "gradient-coding"
    }

    /// The allocation contains the tasks that each worker computes unless another worker of its group is faster.
    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        let mut order: Vec<usize> = (0..round.workers.len()).collect();
        order.shuffle(rng);
        let groups = deal(&order, self.stragglers.saturating_add(1));
        let mut allocation = vec![0; round.workers.len()];
        for (at, group) in groups.iter().enumerate() {
            for &i in group {
                allocation[i] = share(round.budget, groups.len(), at);
            }
        }
        let workers = |group: &Vec<usize>| group.iter().map(|&i| round.workers[i]).collect();
        self.groups = groups.iter().map(workers).collect();
        Decision::new(allocation, Collect::InParts { tasks: round.budget }, Rule::Uniform)
    }

    /// All groups start at once. If all workers of a group are lost, the engine reassigns its tasks.
    fn replan(&mut self, view: &IterationView<'_>, actions: &mut Actions) {
        let groups = std::mem::take(&mut self.groups);
        for (at, group) in groups.iter().enumerate() {
            let (first, others) = group.split_first().expect("no group is empty");
            actions.begin.push((*first, share(view.left, groups.len(), at)));
            actions.copy.extend(others.iter().map(|other| (*other, *first)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::decide;
    use proptest::prelude::*;

    proptest! {
        /// Tandon et al. (ICML 2017), fractional repetition: if s + 1 divides n, there are n/(s + 1) groups of s + 1 workers, each with the
        /// same share of the data. Here it also works for other n.
        #[test]
        fn every_task_is_computed_by_at_least_s_plus_one(n in 1usize..40, stragglers in 0usize..6, budget in 1u64..50) {
            let mut policy = GradientCoding { stragglers, groups: Vec::new() };
            let decision = decide(&mut policy, 1, budget, &vec![(0, 0.0); n]);
            let size = stragglers + 1;
            prop_assert_eq!(policy.groups.len(), (n / size).max(1));
            prop_assert!(policy.groups.iter().all(|group| group.len() >= size.min(n)));
            let mut all: Vec<WorkerId> = policy.groups.concat();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq((0..n).map(WorkerId::from_slot)), "each worker is in one group");
            let share = |worker: &WorkerId| decision.allocation[worker.slot()];
            let shares: Vec<u64> = policy.groups.iter().map(|group| share(&group[0])).collect();
            prop_assert_eq!(shares.iter().sum::<u64>(), budget);
            prop_assert!(shares.iter().all(|tasks| tasks.abs_diff(budget / shares.len() as u64) <= 1));
            let is_same = |group: &Vec<WorkerId>| group.iter().all(|worker| share(worker) == share(&group[0]));
            prop_assert!(policy.groups.iter().all(is_same), "the same tasks");
            if n.is_multiple_of(size) {
                prop_assert!(policy.groups.iter().all(|group| group.len() == size));
            }
        }
    }
}
