//! ATA: Adaptive Task Allocation.
//!
//! Source: Maranjyan, Saad, Richtárik, Orabona, "ATA: Adaptive Task Allocation for Efficient Resource Management in
//! Distributed Machine Learning", ICML 2025 (arXiv 2502.00775), Algorithm 1 and the lower confidence bound of
//! section 4.

use crate::exploration::{exploration, exploration_log};
use ata_scheduler::allocate_by_score;
use ata_scheduler::policy::{Arguments, Decision, Policy, PolicyError, Round, SchedulerRng};
use ata_scheduler::policy::{PolicyEntry, PolicyKind};

pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "ata",
    about: "ATA: lower confidence bounds for a common noise level alpha",
    parameters: "alpha=SECONDS (default: 0.766 x the largest observed mean), preset=printed|published-runs",
    kind: PolicyKind::Barrier,
    build: |arguments| Ok(Box::new(Ata::from_arguments(arguments)?)),
};

/// The ψ1 norm of X − E X for X = m + Exp(m), divided by the mean 2m: 1.53135 m / 2m.
pub(crate) const TIGHT_ALPHA_PER_MEAN: f64 = 0.765_675;

/// Allocates by lower confidence bounds on the mean times: scores s_i = max(m_i − c·α(√(L/K_i) + L/K_i), 0) with
/// L = ln(2k²), and 0 before the first observation; a = RAS(s).
///
/// α bounds the ψ1 norm of every worker's task-time noise, in seconds. c is 2 as printed, and 4e in the paper's own
/// experiments.
#[derive(Clone, Copy, Debug)]
pub struct Ata {
    alpha_s: Alpha,
    factor: f64,
}

#[derive(Clone, Copy, Debug)]
enum Alpha {
    Given(f64),
    /// A multiple of the largest observed mean.
    PerLargestMean(f64),
}

impl Ata {
    /// Creates a policy with the bound as printed, for noise with a ψ1 norm of at most `alpha_s` seconds.
    pub fn new(alpha_s: f64) -> Self {
        Self { alpha_s: Alpha::Given(alpha_s), factor: 2.0 }
    }

    /// Reads `alpha` and `preset`.
    pub(crate) fn from_arguments(arguments: &mut Arguments<'_>) -> Result<Self, PolicyError> {
        let given = arguments.positive("alpha")?;
        let (factor, alpha_per_mean) = match Preset::from_arguments(arguments)? {
            Preset::Printed => (2.0, TIGHT_ALPHA_PER_MEAN),
            Preset::PublishedRuns => (4.0 * std::f64::consts::E, 2.0),
        };
        Ok(Self { alpha_s: given.map_or(Alpha::PerLargestMean(alpha_per_mean), Alpha::Given), factor })
    }

    fn alpha_s(&self, round: &Round<'_>) -> f64 {
        match self.alpha_s {
            Alpha::Given(alpha_s) => alpha_s,
            Alpha::PerLargestMean(times) => times * round.largest_mean_s(),
        }
    }
}

impl Policy for Ata {
    fn name(&self) -> &'static str {
        "ata"
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        let width_s = self.factor * self.alpha_s(round);
        let log = exploration_log(round.iteration.number());
        let scores = round.bounds(0.0, |mean_s, observed| (mean_s - width_s * exploration(log, observed)).max(0.0));
        decide_by_score(round, scores, rng)
    }
}

/// Returns the decision of RAS on `scores`, with the warm-up rule.
pub(crate) fn decide_by_score(round: &Round<'_>, scores: Vec<f64>, rng: &mut SchedulerRng) -> Decision {
    let (allocation, rule) = allocate_by_score(&scores, |i| round.of(i).observed == 0, round.budget, rng);
    Decision::barrier(allocation, scores, rule)
}

/// A choice among the constants of the ATA paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preset {
    /// The printed constants 2α and 2η, with the tight α and η of shifted exponential times.
    Printed,
    /// The constants of the paper's experiments: 4e·α with α = 2 max μ, and 2η with η = 4e.
    PublishedRuns,
}

impl Preset {
    /// Reads `preset=printed|published-runs`; the default is `printed`.
    pub(crate) fn from_arguments(arguments: &mut Arguments<'_>) -> Result<Self, PolicyError> {
        let preset = arguments.take("preset", "'printed' or 'published-runs'", |value| match value {
            "printed" => Some(Self::Printed),
            "published-runs" => Some(Self::PublishedRuns),
            _ => None,
        })?;
        Ok(preset.unwrap_or(Self::Printed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build_policy;
    use crate::testing::decide;
    use ata_scheduler::Rule;
    use ata_scheduler::policy::PolicyContext;

    /// ATA paper (arXiv 2502.00775), section 4: s_i = max(m_i − 2α(√(L/K_i) + L/K_i), 0), 0 if K_i = 0.
    #[test]
    fn scores_follow_the_printed_bound() {
        let decision = decide(&mut Ata::new(0.5), 10, 4, &[(400, 1200.0), (100, 500.0), (4, 4.0), (0, 0.0)]);
        let l = 200_f64.ln();
        for (score, k, mean) in [(decision.scores[0], 400.0, 3.0), (decision.scores[1], 100.0, 5.0)] {
            let expected = mean - 2.0 * 0.5 * ((l / k).sqrt() + l / k);
            assert!((score - expected).abs() < 1e-12, "{score} is not {expected}");
        }
        assert_eq!(decision.scores[2..], [0.0, 0.0]);
        assert_eq!(decision.rule, Rule::WarmUp { never_observed: 1, zero_score: 1 });
    }

    /// ATA paper (arXiv 2502.00775), section 6: the printed constant is 2α, that of the published runs 4e·α with α = 2 max μ.
    #[test]
    fn presets() {
        let observed = [(1_000_000, 1e6), (1_000_000, 3e6)];
        let exploration = exploration(exploration_log(2), 1e6);
        for (spec, constant) in [
            ("ata:alpha=0.5", 1.0),
            ("ata:alpha=0.5,preset=published-runs", 4.0 * std::f64::consts::E * 0.5),
            ("ata:preset=published-runs", 4.0 * std::f64::consts::E * 2.0 * 3.0),
            ("ata", 2.0 * TIGHT_ALPHA_PER_MEAN * 3.0),
        ] {
            let mut policy = build_policy(spec, &PolicyContext::default()).unwrap();
            let decision = decide(&mut *policy, 2, 4, &observed);
            assert!((decision.scores[0] - (1.0 - constant * exploration)).abs() < 1e-12, "{spec}");
        }
    }
}
