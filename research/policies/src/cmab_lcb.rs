//! CMAB with a lower confidence bound for exponential times.
//!
//! Source: the bandit paper (Egger et al., Entropy 2025, arXiv 2202.08302), the bound of Theorem 1.

use crate::employment::Schedule;
use ata_scheduler::policy::{PolicyEntry, PolicyKind, stateless};

/// Employs the r workers with the smallest lower bounds on their mean times, one task each:
/// m_i − (√(4f/(λ²K_i)) + 2f/(λK_i)) with f = 2 ln j in iteration j.
///
/// λ is the smallest rate of any worker, in 1/seconds. A worker that was never observed comes first.
pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "cmab-lcb",
    about: "bandit: the r workers with the smallest lower bounds, one task each, all are waited for",
    parameters: "lambda=RATE (default: one over the largest observed mean), and those of cmab-kl",
    kind: PolicyKind::Barrier,
    build: |arguments| {
        let smallest_rate = arguments.positive("lambda")?;
        let schedule = Schedule::from_arguments(arguments)?;
        Ok(stateless("cmab-lcb", move |round, rng| {
            let f = 2.0 * (round.iteration.number() as f64).ln();
            let largest_mean_s = smallest_rate.map_or_else(|| round.largest_mean_s(), |rate| 1.0 / rate);
            let width_s = |observed: f64| largest_mean_s * ((4.0 * f / observed).sqrt() + 2.0 * f / observed);
            let scores = round.bounds(f64::NEG_INFINITY, |mean_s, observed| mean_s - width_s(observed));
            schedule.employ(round, scores, rng)
        }))
    },
};

#[cfg(test)]
mod tests {
    use crate::tests::{built, decide};

    /// Bandit paper (arXiv 2202.08302), Theorem 1: m_i − (√(4f/(λ²K_i)) + 2f/(λK_i)), f = 2 ln j.
    #[test]
    fn scores_follow_the_bound() {
        let mut policy = built("cmab-lcb:lambda=0.5,r=2");
        let decision = decide(&mut *policy, 3, 9, &[(4, 40.0), (100, 900.0), (0, 0.0)]);
        let f = 2.0 * 3_f64.ln();
        for (i, k, mean) in [(0, 4.0, 10.0), (1, 100.0, 9.0)] {
            let expected = mean - ((4.0 * f / (0.25 * k)).sqrt() + 2.0 * f / (0.5 * k));
            assert!((decision.scores[i] - expected).abs() < 1e-12);
        }
        assert_eq!(decision.allocation, [1, 0, 1], "the one never observed, and the one with the smaller bound");
        // Without lambda, the largest observed mean determines the smallest rate.
        let scores = |specification: &str| {
            let mut policy = built(specification);
            decide(&mut *policy, 7, 9, &[(4, 40.0), (10, 50.0)]).scores
        };
        assert_eq!(scores("cmab-lcb:r=1"), scores("cmab-lcb:lambda=0.1,r=1"));
    }
}
