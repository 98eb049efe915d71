//! CMAB with the Kullback-Leibler bound for exponential times.
//!
//! Source: Egger, Bitar, Wachter-Zeh, Gündüz, "Cost-Efficient Distributed Learning via Combinatorial Multi-Armed
//! Bandits", Entropy 2025 (arXiv 2202.08302), the KL-based policy.

use crate::employment::Schedule;
use crate::kl::kl_lower_bound;
use ata_scheduler::policy::{Arguments, Decision, Policy, PolicyError, Round, SchedulerRng};
use ata_scheduler::policy::{PolicyEntry, PolicyKind};

pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "cmab-kl",
    about: "cmab-lcb with a Kullback-Leibler bound",
    parameters: Schedule::PARAMETERS,
    kind: PolicyKind::Barrier,
    build: |arguments| Ok(Box::new(CmabKl::from_arguments(arguments)?)),
};

/// Employs the r workers with the smallest lower bounds on their mean times, one task each: min{q ≤ m_i :
/// K_i·(ln(q/m_i) + m_i/q − 1) ≤ f} with f = ln(1 + j ln²j) in iteration j. A worker that was never observed comes
/// first.
#[derive(Clone, Debug)]
pub struct CmabKl {
    schedule: Schedule,
}

impl CmabKl {
    pub(crate) fn from_arguments(arguments: &mut Arguments<'_>) -> Result<Self, PolicyError> {
        Ok(Self { schedule: Schedule::from_arguments(arguments)? })
    }
}

/// f(j) = ln(1 + j ln²j).
fn kl_exploration(iteration: u64) -> f64 {
    let j = iteration as f64;
    (j * j.ln().powi(2)).ln_1p()
}

/// Returns the KL bounds of all present workers; 0 for workers that were never observed.
pub(crate) fn kl_scores(round: &Round<'_>) -> Vec<f64> {
    let f = kl_exploration(round.iteration.number());
    round.bounds(0.0, |mean_s, observed| kl_lower_bound(mean_s, f / observed))
}

impl Policy for CmabKl {
    fn name(&self) -> &'static str {
        "cmab-kl"
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        self.schedule.employ(round, kl_scores(round), rng)
    }
}

#[cfg(test)]
mod tests {
    use crate::build_policy;
    use crate::testing::decide;
    use ata_scheduler::policy::PolicyContext;

    /// Bandit paper (arXiv 2202.08302), the KL-based policy: min{q ≤ m_i : K_i·(ln(q/m_i) + m_i/q − 1) ≤ f},
    /// f = ln(1 + j ln²j).
    #[test]
    fn scores_follow_the_bound() {
        let mut policy = build_policy("cmab-kl:r=1", &PolicyContext::default()).unwrap();
        let decision = decide(&mut *policy, 20, 9, &[(4, 40.0), (100, 900.0), (2, 20.0)]);
        let f = (1.0 + 20.0 * 20_f64.ln().powi(2)).ln();
        for (i, k, mean) in [(0, 4.0, 10.0), (1, 100.0, 9.0), (2, 2.0, 10.0)] {
            let q: f64 = decision.scores[i];
            assert!(q < mean && (k * ((q / mean).ln() + mean / q - 1.0) - f).abs() < 1e-9, "{q}");
        }
        assert_eq!(decision.allocation, [0, 0, 1], "few observations make a small bound");
    }
}
