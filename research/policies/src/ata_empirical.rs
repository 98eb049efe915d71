//! ATA-Empirical: ATA with a bound that scales with each worker's own mean.
//!
//! Source: the ATA paper (arXiv 2502.00775), section 5, "ATA-Empirical".

use crate::ata::{Preset, TIGHT_ALPHA_PER_MEAN, decide_by_score};
use crate::exploration::{exploration, exploration_log};
use ata_scheduler::policy::{Arguments, Decision, Policy, PolicyError, Round, SchedulerRng};
use ata_scheduler::policy::{PolicyEntry, PolicyKind};

pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "ata-empirical",
    about: "ATA with bounds relative to each worker's mean",
    parameters: "eta=NUMBER (default: 0.766), or preset=printed|published-runs",
    kind: PolicyKind::Barrier,
    build: |arguments| Ok(Box::new(AtaEmpirical::from_arguments(arguments)?)),
};

/// ATA with lower bounds relative to each worker's mean: scores s_i = m_i · max(1 − 2η(√(L/K_i) + L/K_i), 0) with
/// L = ln(2k²), and 0 before the first observation; a = RAS(s).
///
/// η bounds α_i/μ_i, the ψ1 norm of worker i's task-time noise relative to its mean: a pure number.
#[derive(Clone, Copy, Debug)]
pub struct AtaEmpirical {
    eta: f64,
}

impl AtaEmpirical {
    /// Creates a policy with the bound for relative noise with a ψ1 norm of at most `eta`.
    pub fn new(eta: f64) -> Self {
        Self { eta }
    }

    /// Reads `eta` or `preset`.
    pub(crate) fn from_arguments(arguments: &mut Arguments<'_>) -> Result<Self, PolicyError> {
        let eta = match Preset::from_arguments(arguments)? {
            Preset::Printed => arguments.positive("eta")?.unwrap_or(TIGHT_ALPHA_PER_MEAN),
            Preset::PublishedRuns => 4.0 * std::f64::consts::E,
        };
        Ok(Self::new(eta))
    }
}

impl Policy for AtaEmpirical {
    fn name(&self) -> &'static str {
        "ata-empirical"
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        let log = exploration_log(round.iteration.number());
        let scores =
            round.bounds(0.0, |mean_s, observed| mean_s * (1.0 - 2.0 * self.eta * exploration(log, observed)).max(0.0));
        decide_by_score(round, scores, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build_policy;
    use crate::testing::decide;
    use ata_scheduler::policy::PolicyContext;

    /// ATA paper (arXiv 2502.00775), section 5: s_i = m_i · max(1 − 2η(√(L/K_i) + L/K_i), 0).
    #[test]
    fn scores_follow_the_bound() {
        let decision = decide(&mut AtaEmpirical::new(0.25), 10, 4, &[(100, 500.0), (1, 5.0)]);
        let l = 200_f64.ln();
        let expected = 5.0 * (1.0 - 0.5 * ((l / 100.0).sqrt() + l / 100.0));
        assert!((decision.scores[0] - expected).abs() < 1e-12);
        assert_eq!(decision.scores[1], 0.0);
    }

    /// ATA paper (arXiv 2502.00775): η = 0.76567 is tight for X = m + Exp(m); the published runs used η = 4e.
    #[test]
    fn presets() {
        let exploration = exploration(exploration_log(2), 1e6);
        for (spec, eta) in [
            ("ata-empirical", 0.765_675),
            ("ata-empirical:eta=0.1", 0.1),
            ("ata-empirical:preset=printed", 0.765_675),
            ("ata-empirical:preset=published-runs", 4.0 * std::f64::consts::E),
        ] {
            let mut policy = build_policy(spec, &PolicyContext::default()).unwrap();
            let decision = decide(&mut *policy, 2, 4, &[(1_000_000, 3e6)]);
            assert!((decision.scores[0] - 3.0 * (1.0 - 2.0 * eta * exploration)).abs() < 1e-12, "{spec}");
        }
    }
}
