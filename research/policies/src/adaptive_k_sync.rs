//! Adaptive k-sync: k grows when the gradients stop pointing the same way.
//!
//! Source: Kas Hanna, Bitar, Parag, Dasari, El Rouayheb, "Adaptive Distributed Stochastic Gradient Descent for
//! Minimizing Delay in the Presence of Stragglers", ICASSP 2020 (arXiv 2002.11005), Algorithm 1, after Pflug's test for
//! stationarity.

use crate::k_sync::first_of_each;
use ata_scheduler::policy::{
    Decision, Policy, PolicyEntry, PolicyError, PolicyKind, PolicyState, Round, SchedulerRng, StepOutcome, from_state,
    to_state,
};

pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "adaptive-k-sync",
    about: "k-sync whose k grows when the gradients stop agreeing",
    parameters: "k=K (default: 1), step=S (1), k_max=K (all workers), threshold=T (10), burn_in=ITERATIONS (20)",
    kind: PolicyKind::Racing,
    build: |arguments| {
        let k = arguments.count("k")?.unwrap_or(1);
        let k_max =
            arguments.count("k_max")?.unwrap_or_else(|| arguments.context().workers.map_or(k, u64::from).max(k));
        arguments.at_most_workers("k_max", Some(k_max))?;
        if k > k_max {
            return Err(PolicyError::conflict(format!("k = {k} is above k_max = {k_max}")));
        }
        let step = arguments.count("step")?.unwrap_or(1);
        let threshold = arguments.count("threshold")?.unwrap_or(10).cast_signed();
        let burn_in = arguments.count("burn_in")?.unwrap_or(20);
        Ok(Box::new(AdaptiveKSync { k, step, k_max, threshold, burn_in, count: 0, iterations: 0 }))
    },
};

/// A variant of k-sync whose k grows by `step` up to `k_max`. ⟨g_j, g_{j−1}⟩ < 0 counts +1, else −1; when the count exceeds `threshold` and
/// more than `burn_in` iterations have passed since the last change, k grows and the count restarts.
#[derive(Clone, Copy, Debug)]
struct AdaptiveKSync {
    k: u64,
    step: u64,
    k_max: u64,
    threshold: i64,
    burn_in: u64,
    count: i64,
    iterations: u64,
}

impl Policy for AdaptiveKSync {
    fn name(&self) -> &'static str {
        "adaptive-k-sync"
    }

    fn decide(&mut self, round: &Round<'_>, _rng: &mut SchedulerRng) -> Decision {
        first_of_each(round, self.k)
    }

    fn wants_gradient_product(&self) -> bool {
        true
    }

    fn stepped(&mut self, step: &StepOutcome) {
        let Some(product) = step.gradient_product else { return };
        self.iterations += 1;
        self.count += if product < 0.0 { 1 } else { -1 };
        if self.count > self.threshold && self.iterations > self.burn_in {
            self.k = (self.k + self.step).min(self.k_max);
            (self.count, self.iterations) = (0, 0);
        }
    }

    fn save(&self) -> PolicyState {
        to_state(&(self.k, self.count, self.iterations))
    }

    fn restore(&mut self, state: PolicyState) -> Result<(), String> {
        let (k, count, iterations): (u64, i64, u64) = from_state(state)?;
        // A resumed run may have a different `k_max`.
        (self.k, self.count, self.iterations) = (k.clamp(1, self.k_max), count, iterations);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{built, decide};
    use ata_scheduler::policy::Collect;

    fn taken(policy: &mut dyn Policy) -> u64 {
        match decide(policy, 1, 99, &[(0, 0.0); 8]).collect {
            Collect::First { take, refill: false } => take,
            other => panic!("{other:?}"),
        }
    }

    /// By Algorithm 1, the count must exceed the threshold, and the burn-in must be over.
    #[test]
    fn k_grows_by_pflugs_test() {
        let specification = "adaptive-k-sync:k=2,step=3,k_max=6,threshold=2,burn_in=5";
        let mut policy = built(specification);
        let tell = |policy: &mut dyn Policy, product: f64, times: usize| {
            for _ in 0..times {
                policy.stepped(&StepOutcome { gradient_product: Some(product), ..StepOutcome::default() });
            }
            taken(policy)
        };
        assert_eq!(tell(&mut *policy, -1.0, 5), 2, "the count is 5, but the burn-in is not over");
        assert_eq!(tell(&mut *policy, -1.0, 1), 5);
        assert_eq!(tell(&mut *policy, 1.0, 9), 5, "the count is -9");
        assert_eq!(tell(&mut *policy, -1.0, 11), 5, "the count is 2");
        assert_eq!(tell(&mut *policy, -1.0, 1), 6, "no more than k_max");
        assert_eq!(tell(&mut *policy, -1.0, 99), 6);
    }
}
