//! The clairvoyant policy knows the times of each worker's next tasks. It shows how early an iteration that waits for a fixed allocation
//! can end.
//!
//! Its allocation minimizes the longest of these times, by [`ras_by_cost`]. It does not plan beyond the iteration,
//! works only in simulations, and is not from a paper.

use std::sync::Arc;

use ata_scheduler::policy::{Decision, Policy, PolicyEntry, PolicyKind, Round, SchedulerRng, Truth};
use ata_scheduler::{Rule, ras_by_cost};

pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "clairvoyant",
    about: "only in simulation: the best allocation for the task times to come",
    parameters: "none",
    kind: PolicyKind::Barrier,
    build: |arguments| Ok(Box::new(Clairvoyant { truth: arguments.truth("clairvoyant")? })),
};

struct Clairvoyant {
    truth: Arc<dyn Truth>,
}

impl Policy for Clairvoyant {
    fn name(&self) -> &'static str {
        "clairvoyant"
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        let workers = round.workers;
        let cost = |i: usize, tasks| self.truth.coming_s(workers[i], tasks);
        let allocation = ras_by_cost(workers.len(), round.budget, cost, rng);
        let means = workers.iter().map(|&worker| self.truth.mean_s(worker)).collect();
        Decision::barrier(allocation, means, Rule::Ras)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::decide;
    use ata_types::WorkerId;

    /// The task times of each worker, in order.
    #[derive(Debug)]
    struct Times([[f64; 4]; 2]);

    impl Truth for Times {
        fn mean_s(&self, _worker: WorkerId) -> f64 {
            1.0
        }

        fn coming_s(&self, worker: WorkerId, tasks: u64) -> f64 {
            self.0[worker.slot()][..tasks as usize].iter().sum()
        }
    }

    /// The first worker's first task is long, and the second worker's second one.
    #[test]
    fn nothing_ends_sooner() {
        let truth = Arc::new(Times([[3.0, 0.5, 0.4, 9.0], [1.0, 5.0, 0.1, 0.1]]));
        assert_eq!(decide(&mut Clairvoyant { truth }, 1, 4, &[(0, 0.0); 2]).allocation, [3, 1]);
    }
}
