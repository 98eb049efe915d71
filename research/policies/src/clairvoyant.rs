//! The clairvoyant policy knows the times of each worker's next tasks. It shows how early an iteration that waits for a fixed allocation
//! can end.
//!
//! Its allocation minimizes the longest of these times, by [`ras_by_cost`]. It does not plan beyond the iteration,
//! works only in simulations, and is not from a paper.

use ata_scheduler::policy::{Decision, PolicyEntry, PolicyKind, stateless};
use ata_scheduler::{Rule, ras_by_cost};

pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "clairvoyant",
    about: "only in simulation: the best allocation for the task times to come",
    parameters: "none",
    kind: PolicyKind::Barrier,
    build: |arguments| {
        let truth = arguments.truth("clairvoyant")?;
        Ok(stateless("clairvoyant", move |round, rng| {
            let workers = round.workers;
            let cost = |i: usize, tasks| truth.coming_s(workers[i], tasks);
            let allocation = ras_by_cost(workers.len(), round.budget, cost, rng);
            let means = workers.iter().map(|&worker| truth.mean_s(worker)).collect();
            Decision::barrier(allocation, means, Rule::Ras)
        }))
    },
};

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::build_policy;
    use crate::tests::decide;
    use ata_scheduler::policy::{PolicyContext, Truth};
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
        let truth = Some(Arc::new(Times([[3.0, 0.5, 0.4, 9.0], [1.0, 5.0, 0.1, 0.1]])) as Arc<dyn Truth>);
        let mut policy = build_policy("clairvoyant", &PolicyContext { truth, ..PolicyContext::default() }).unwrap();
        assert_eq!(decide(&mut *policy, 1, 4, &[(0, 0.0); 2]).allocation, [3, 1]);
    }
}
