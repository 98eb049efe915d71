//! Affine: a policy for equal finish times, with a line t = o + a·s that is fitted to each worker's shares.
//!
//! Source: Nie, Maghakian, Liu, "Training DNN Models over Heterogeneous Clusters with Optimal Performance", Middleware
//! 2024 (arXiv 2402.05302), where it is named Cannikin.

use serde::{Deserialize, Serialize};

use super::shares::{LEAST_S, Tally, new_workers_first};
use super::{
    Decision, Policy, PolicyEntry, PolicyKind, PolicyState, Round, SchedulerRng, from_state, save_trimmed, to_state,
};
use crate::allocation::{PerWorker, Rule, ras_by_cost};
use crate::batches::{BatchStatistics, CostLine};
use ata_types::WorkerId;

/// The policy's entry in the registry.
pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "affine",
    about: "equal finish times by a line t = o + a*s fitted to each worker's shares (Cannikin); no exploration",
    parameters: "none",
    kind: PolicyKind::Barrier,
    build: |_| Ok(Box::new(Affine::default())),
};

/// Allocates the a that minimizes the largest o_i + a_i·s_i, the line of least squares through worker i's (tasks, seconds) in the
/// iterations so far, plus its mean overhead per assignment. All iterations count alike.
///
/// Each worker is tried once first. Until a worker has had shares of two sizes, its time is assumed to be proportional to its tasks.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Affine {
    /// The shares of past iterations, by slot.
    #[serde(serialize_with = "save_trimmed")]
    shares: Vec<BatchStatistics>,
    done: Tally,
}

impl Affine {
    /// Returns the cost of the i-th worker's share; `None` if the worker was never observed.
    fn cost(&self, round: &Round<'_>, i: usize) -> Option<CostLine> {
        let statistics = round.of(i);
        let shares = &self.shares[round.workers[i].slot()];
        let (fixed_s, per_task_s) = match shares.line() {
            Some(line) if line.has_slope => (line.fixed_s, line.per_task_s),
            Some(_) => (0.0, shares.total_s / shares.tasks),
            // The worker is known from a warm start, or from a previous policy.
            None => (0.0, statistics.mean_s()?),
        };
        let (fixed_s, per_task_s) = (fixed_s + statistics.mean_overhead_s(), per_task_s.max(LEAST_S));
        Some(CostLine { fixed_s, per_task_s, has_slope: true })
    }
}

impl Policy for Affine {
    fn name(&self) -> &'static str {
        "affine"
    }

    fn observe(&mut self, worker: WorkerId, busy_s: f64) {
        self.done.add(worker, 1, busy_s);
    }

    fn observe_batch(&mut self, worker: WorkerId, tasks: u64, busy_s: f64) {
        self.done.add(worker, tasks, busy_s);
    }

    fn forget(&mut self, worker: WorkerId) {
        self.done.forget(worker);
        if let Some(shares) = self.shares.get_mut(worker.slot()) {
            *shares = BatchStatistics::default();
        }
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        // The shares of the iteration that ended are added.
        self.shares.resize(self.shares.len().max(round.statistics.len()), BatchStatistics::default());
        for (worker, tasks, busy_s) in self.done.take() {
            // A saved file may name more workers than there are.
            if let Some(shares) = self.shares.get_mut(worker.slot()) {
                shares.observe(tasks, busy_s);
            }
        }
        let none = CostLine { fixed_s: 0.0, per_task_s: 0.0, has_slope: true };
        let costs: Vec<CostLine> = (0..round.workers.len()).map(|i| self.cost(round, i).unwrap_or(none)).collect();
        let (allocation, rule) = new_workers_first(round, Rule::Ras, rng, |known, budget, rng| {
            ras_by_cost(known.len(), budget, |j, tasks| costs[known[j]].at_s(tasks), rng)
        });
        let per_task_s = |(cost, &tasks): (&CostLine, &u64)| cost.at_s(tasks.max(1)) / tasks.max(1) as f64;
        let scores = costs.iter().zip(&allocation).map(per_task_s).collect();
        let at_s = |cost: &CostLine, tasks: u64| if tasks == 0 { 0.0 } else { cost.at_s(tasks) };
        let finish_s = costs
            .iter()
            .zip(&allocation)
            .map(|(cost, &tasks)| [tasks.saturating_sub(1), tasks, tasks + 1].map(|tasks| at_s(cost, tasks)));
        let finish_s = PerWorker::from(finish_s.collect::<Vec<_>>());
        Decision { finish_s, ..Decision::barrier(allocation, scores, rule) }
    }

    fn save(&self) -> PolicyState {
        to_state(self)
    }

    fn restore(&mut self, state: PolicyState) -> Result<(), String> {
        let state: Self = from_state(state)?;
        if !state.done.is_valid() || !state.shares.iter().all(BatchStatistics::is_valid) {
            return Err("shares that cannot have been observed".into());
        }
        *self = state;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::{decide, with_round};
    use crate::statistics::WorkerStatistics;
    use rand::SeedableRng;

    /// Cannikin (arXiv 2402.05302): the lines are known after shares of two sizes, and all workers then finish together.
    #[test]
    fn finish_times_are_equal_once_the_lines_are_known() {
        let (mut policy, mut observed) = (Affine::default(), [(0, 0.0); 2]);
        // The second allocation is in proportion to 28/18 s and 2 s per task. Then the workers take 10 + 21 and 2·15 s.
        for (iteration, expected) in (1..).zip([[18, 18], [20, 16], [21, 15], [21, 15]]) {
            let allocation = decide(&mut policy, iteration, 36, &observed).allocation;
            assert_eq!(allocation, expected, "iteration {iteration}");
            for (slot, (fixed_s, per_task_s)) in [(10.0, 1.0), (0.0, 2.0)].into_iter().enumerate() {
                let busy_s = fixed_s + allocation[slot] as f64 * per_task_s;
                policy.observe_batch(WorkerId::from_slot(slot), allocation[slot], busy_s);
                observed[slot] = (observed[slot].0 + allocation[slot], observed[slot].1 + busy_s);
            }
        }
    }

    #[test]
    fn overhead_is_part_of_the_finish_time() {
        let statistics = [6.0, 0.0].map(|overhead_s| {
            let mut statistics = WorkerStatistics { observed: 5, total_s: 5.0, ..WorkerStatistics::default() };
            // The first one is not representative.
            statistics.observe_overhead(99.0);
            statistics.observe_overhead(overhead_s);
            statistics
        });
        let allocation = with_round(2, 10, &[(5, 5.0); 2], |round| {
            let round = Round { statistics: &statistics, ..*round };
            Affine::default().decide(&round, &mut SchedulerRng::seed_from_u64(1)).allocation
        });
        assert_eq!(allocation, [2, 8]);
    }
}
