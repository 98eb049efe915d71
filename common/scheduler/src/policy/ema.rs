//! EMA: a policy that uses the best allocation for exponentially weighted means of the observed task times.
//!
//! It has no source: it is a natural baseline for bandits, with the allocation rule RAS of the ATA paper (arXiv 2502.00775,
//! section 3).

use super::shares::{LEAST_S, new_workers_first};
use super::{
    Arguments, Decision, Policy, PolicyEntry, PolicyError, PolicyKind, PolicyState, Round, SchedulerRng, from_state,
    to_state, trimmed,
};
use crate::allocation::{Rule, ras};
use ata_types::WorkerId;

/// The policy's entry in the registry.
pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "ema",
    about: "the best allocation for exponentially weighted means of the observed times; no exploration",
    parameters: "weight=SHARE of the newest time (default: 0.2)",
    kind: PolicyKind::Barrier,
    build: |arguments| Ok(Box::new(Ema::from_arguments(arguments)?)),
};

/// Allocates a = RAS(m), with m_i the exponentially weighted mean of worker i's task times. Each worker is tried once first; one
/// that gets no tasks by its mean is not tried again.
///
/// The means are of computation alone, without the overhead of an assignment.
pub(super) struct Ema {
    weight: f64,
    /// Seconds per task, by slot; `None` if the worker was never observed.
    means_s: Vec<Option<f64>>,
}

impl Ema {
    pub(super) fn from_arguments(arguments: &mut Arguments<'_>) -> Result<Self, PolicyError> {
        Ok(Self { weight: arguments.fraction("weight")?.unwrap_or(0.2), means_s: Vec::new() })
    }

    pub(super) fn mean_s(&mut self, worker: WorkerId) -> &mut Option<f64> {
        self.means_s.resize(self.means_s.len().max(worker.slot() + 1), None);
        &mut self.means_s[worker.slot()]
    }

    /// Returns the means of the workers of a round. They are positive, except for workers never observed, whose mean is 0. Those that are
    /// known from elsewhere, from a warm start or a previous policy, begin with their plain mean.
    pub(super) fn of(&mut self, round: &Round<'_>) -> Vec<f64> {
        let mean_s = |i: usize| {
            let known = round.of(i).mean_s();
            let own = self.mean_s(round.workers[i]);
            *own = own.or(known);
            own.map_or(0.0, |mean_s| mean_s.max(LEAST_S))
        };
        (0..round.workers.len()).map(mean_s).collect()
    }
}

impl Policy for Ema {
    fn name(&self) -> &'static str {
        "ema"
    }

    /// Updates the mean: m ← (1 − w)·m + w·x. The first time is taken as the mean.
    fn observe(&mut self, worker: WorkerId, busy_s: f64) {
        let weight = self.weight;
        let mean_s = self.mean_s(worker);
        *mean_s = Some(mean_s.map_or(busy_s, |mean_s| (1.0 - weight) * mean_s + weight * busy_s));
    }

    fn expected_s(&self, worker: WorkerId) -> Option<f64> {
        self.means_s.get(worker.slot()).copied().flatten()
    }

    fn forget(&mut self, worker: WorkerId) {
        *self.mean_s(worker) = None;
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        let means_s = self.of(round);
        let (allocation, rule) = new_workers_first(round, Rule::Ras, rng, |known, budget, rng| {
            let known_s: Vec<f64> = known.iter().map(|&i| means_s[i]).collect();
            ras(&known_s, budget, rng)
        });
        Decision::barrier(allocation, means_s, rule)
    }

    fn save(&self) -> PolicyState {
        to_state(&trimmed(&self.means_s))
    }

    fn restore(&mut self, state: PolicyState) -> Result<(), String> {
        let means_s: Vec<Option<f64>> = from_state(state)?;
        if !means_s.iter().flatten().all(|mean_s| mean_s.is_finite() && *mean_s >= 0.0) {
            return Err("a mean time is negative".into());
        }
        self.means_s = means_s;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::{built, decide};

    fn observed(specification: &str, times_s: &[&[f64]]) -> Box<dyn Policy> {
        let mut policy = built(specification);
        for (slot, times_s) in times_s.iter().enumerate() {
            times_s.iter().for_each(|&time_s| policy.observe(WorkerId::from_slot(slot), time_s));
        }
        policy
    }

    /// The mean is m ← (1 − w)·m + w·x from the first time on, with w = 0.2 by default, and RAS is applied to it.
    #[test]
    fn the_newest_time_has_its_weight() {
        for (specification, mean_s, allocation) in
            [("ema", 1.2, [5, 0]), ("ema:weight=0.5", 1.5, [4, 1]), ("ema:weight=1", 2.0, [4, 1])]
        {
            let mut policy = observed(specification, &[&[1.0, 2.0], &[7.0]]);
            let decision = decide(&mut *policy, 3, 5, &[(2, 3.0), (1, 7.0)]);
            assert!((decision.scores[0] - mean_s).abs() < 1e-12, "{specification}: {:?}", decision.scores);
            assert_eq!((&decision.allocation[..], decision.rule), (&allocation[..], Rule::Ras));
        }
    }

    /// The engine's statistics stand in for earlier times, as in a warm start; those of a forgotten worker do not count.
    #[test]
    fn earlier_means_are_taken_over() {
        let mut policy = observed("ema", &[&[1.0]]);
        let known = [(1, 1.0), (10, 20.0), (10, 40.0)];
        assert_eq!(decide(&mut *policy, 1, 7, &known).scores, [1.0, 2.0, 4.0]);
        policy.observe(WorkerId::from_slot(1), 7.0);
        assert_eq!(decide(&mut *policy, 2, 7, &known).scores, [1.0, 3.0, 4.0]);
        policy.forget(WorkerId::from_slot(1));
        assert_eq!(decide(&mut *policy, 3, 7, &[(1, 1.0), (0, 0.0), (10, 40.0)]).scores, [1.0, 0.0, 4.0]);
    }
}
