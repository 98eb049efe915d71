//! Pull: a policy with a queue of tasks, from which each worker takes one whenever it is free.
//!
//! This is the work queue of task systems, such as Ray's (Moritz et al., "Ray: A Distributed Framework for Emerging AI
//! Applications", OSDI 2018) and the data shards of DLRover (Wang et al., "DLRover-RM", VLDB 2024).

use super::{Actions, Collect, Decision, IterationView, Policy, PolicyEntry, PolicyKind, Round, SchedulerRng};
use crate::allocation::{Rule, uniform};
use ata_types::WorkerId;

/// The policy's entry in the registry.
pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "pull",
    about: "work queue: a free worker takes one more of the B tasks, all are waited for",
    parameters: "none",
    kind: PolicyKind::Barrier,
    build: |_| Ok(Box::new(Pull::default())),
};

/// Lets every worker take one of the B tasks, or a random choice of B workers if there are more. A worker that has finished takes
/// another one, as long as there is one. No task is computed twice, and the step waits for the last.
#[derive(Default)]
struct Pull {
    first: Vec<WorkerId>,
}

impl Policy for Pull {
    fn name(&self) -> &'static str {
        "pull"
    }

    /// The plan assumes that all workers are equally fast.
    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        let plan = uniform(round.workers.len(), round.budget, rng);
        let chosen = round.workers.iter().zip(&plan).filter(|(_, tasks)| **tasks > 0);
        self.first = chosen.map(|(worker, _)| *worker).collect();
        Decision::new(plan, Collect::InParts { tasks: round.budget }, Rule::Uniform)
    }

    fn replan(&mut self, view: &IterationView<'_>, actions: &mut Actions) {
        let mut free = std::mem::take(&mut self.first);
        if free.is_empty() && view.left > 0 {
            free = view.idle();
        }
        actions.begin.extend(free.into_iter().map(|worker| (worker, 1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::decide;

    /// If there are more workers than tasks, the workers that begin are drawn anew in each iteration.
    #[test]
    fn every_worker_begins_or_as_many_as_there_are_tasks() {
        let mut policy = Pull::default();
        let decision = decide(&mut policy, 1, 9, &[(0, 0.0); 4]);
        assert_eq!(decision.collect, Collect::InParts { tasks: 9 });
        assert_eq!((decision.allocation.iter().sum::<u64>(), policy.first.len()), (9, 4));
        decide(&mut policy, 1, 3, &[(7, 1.0); 9]);
        assert!(policy.first.len() == 3 && policy.first.is_sorted_by(|a, b| a < b), "{:?}", policy.first);
    }
}
