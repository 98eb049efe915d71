//! CMAB with the Kullback-Leibler bound for exponential times.
//!
//! Source: the bandit paper (Egger et al., Entropy 2025, arXiv 2202.08302), the KL-based policy.

use crate::employment::Schedule;
use ata_scheduler::policy::{PolicyEntry, PolicyKind, Round, stateless};

/// Employs the r workers with the smallest lower bounds on their mean times, one task each: min{q ≤ m_i :
/// K_i·(ln(q/m_i) + m_i/q − 1) ≤ f} with f = ln(1 + j ln²j) in iteration j. A worker that was never observed comes
/// first.
pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "cmab-kl",
    about: "cmab-lcb with a Kullback-Leibler bound",
    parameters: Schedule::PARAMETERS,
    kind: PolicyKind::Barrier,
    build: |arguments| {
        let schedule = Schedule::from_arguments(arguments)?;
        Ok(stateless("cmab-kl", move |round, rng| schedule.employ(round, kl_scores(round), rng)))
    },
};

/// Returns the KL bounds of all present workers; 0 for workers that were never observed.
pub(crate) fn kl_scores(round: &Round<'_>) -> Vec<f64> {
    let j = round.iteration.number() as f64;
    let f = (j * j.ln().powi(2)).ln_1p();
    round.bounds(0.0, |mean_s, observed| kl_lower_bound(mean_s, f / observed))
}

/// Returns the smallest mean under which exponential times with this empirical mean are not too unlikely: min{q ≤ mean
/// : ln(q/mean) + mean/q − 1 ≤ c}. `c` ≥ 0 is f/K, the exploration per observation.
///
/// With x = q/mean this is the root of h(x) = ln x + 1/x − 1 − c in (0, 1], where h is convex and decreasing: Newton's
/// method from the left of the root approaches it without ever passing it, so that every iterate is a lower bound. The
/// start 1/(1 + c + √(2c)) is on the left because z − ln(1 + z) ≥ 1 + z − √(1 + 2z) for z ≥ 0.
///
/// Source: Garivier, Cappé, "The KL-UCB Algorithm for Bounded Stochastic Bandits and Beyond", COLT 2011, section 4;
/// as a lower bound on exponential times in the bandit paper (arXiv 2202.08302).
fn kl_lower_bound(mean: f64, c: f64) -> f64 {
    let mut x = 1.0 / (1.0 + c + (2.0 * c).sqrt());
    // Convergence is quadratic, and the start is within a factor of 1.3 of the root for any c.
    for _ in 0..8 {
        let next = x + (x.ln() + 1.0 / x - 1.0 - c) / (1.0 / (x * x) - 1.0 / x);
        // The iterate is at the root, or so close to 1 that it cannot improve.
        if next.is_nan() || next <= x * (1.0 + 1e-12) {
            break;
        }
        x = next;
    }
    mean * x.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{built, decide};
    use proptest::prelude::*;

    /// Bandit paper (arXiv 2202.08302), the KL-based policy: min{q ≤ m_i : K_i·(ln(q/m_i) + m_i/q − 1) ≤ f},
    /// f = ln(1 + j ln²j).
    #[test]
    fn scores_follow_the_bound() {
        let mut policy = built("cmab-kl:r=1");
        let decision = decide(&mut *policy, 20, 9, &[(4, 40.0), (100, 900.0), (2, 20.0)]);
        let f = (1.0 + 20.0 * 20_f64.ln().powi(2)).ln();
        for (i, k, mean) in [(0, 4.0, 10.0), (1, 100.0, 9.0), (2, 2.0, 10.0)] {
            let q: f64 = decision.scores[i];
            assert!(q < mean && (k * ((q / mean).ln() + mean / q - 1.0) - f).abs() < 1e-9, "{q}");
        }
        assert_eq!(decision.allocation, [0, 0, 1], "few observations make a small bound");
    }

    proptest! {
        /// By definition, the bound's divergence is c, and that of any smaller mean is larger.
        #[test]
        fn is_the_root_of_its_definition(mean in 1e-6f64..1e6, c in 1e-9f64..1e4) {
            let q = kl_lower_bound(mean, c);
            let divergence = |q: f64| (q / mean).ln() + mean / q - 1.0;
            prop_assert!(q > 0.0 && q <= mean);
            prop_assert!((divergence(q) - c).abs() < 1e-9 * (1.0 + c) + 1e-12, "{} for {c}", divergence(q));
        }
    }

    #[test]
    fn extremes() {
        assert_eq!(kl_lower_bound(3.0, 0.0), 3.0);
        assert!(kl_lower_bound(3.0, 1e300) >= 0.0);
        assert_eq!(kl_lower_bound(0.0, 1.0), 0.0);
    }
}
