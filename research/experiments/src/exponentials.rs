//! The mean maximum of independent exponential times: the duration of an iteration that waits for one task of each of r workers.
//!
//! Proposition 1 of the bandit paper (arXiv 2202.08302) gives its mean as an alternating sum over all subsets of the
//! rates, in 2^r terms that cancel. Here the mean is the integral of t against the density f(t) = Π_i (1 − e^(−λ_i·t))
//! · Σ_i λ_i / (e^(λ_i·t) − 1), whose terms are all positive, so there is no cancellation.
//!
//! Over ln t the integrands are analytic and vanish at both ends, where the trapezoidal rule converges exponentially.

use std::f64::consts::PI;

/// The rule's error is e^(−`ERROR_EXPONENT`) times a factor of a few hundred.
const ERROR_EXPONENT: f64 = 40.0;
/// A task that is unfinished with probability e^(−`CERTAIN`) does not measurably change the mean.
const CERTAIN: f64 = 50.0;
/// The density is negligible before the time at which the maximum is reached with this probability.
const IMPOSSIBLE: f64 = 1e-22;

/// Returns the mean of the maximum of independent exponential times with these rates (proposition 1); infinite beyond the largest f64.
///
/// The relative error is below 1e-12 up to ten thousand rates, which must be positive and finite.
pub(crate) fn mean_of_maximum(rates: &[f64]) -> f64 {
    assert!(!rates.is_empty(), "the maximum of no times is not defined");
    assert!(rates.iter().all(|rate| rate.is_finite() && *rate > 0.0), "rates must be positive and finite");
    let mut rates = rates.to_vec();
    rates.sort_unstable_by(f64::total_cmp);
    // Times are multiples of the reciprocal of the smallest rate, which makes the mean at least 1.
    let unit = rates[0];
    for rate in &mut rates {
        *rate /= unit;
    }
    let spread = libm::log(rates.len() as f64);
    let step = step(spread);
    let last = libm::log(spread + CERTAIN);
    let times = (0_u32..).map(|k| libm::exp(last - f64::from(k) * step));
    let mean: f64 = times.map_while(|t| density(&rates, t).map(|density| step * t * density * t)).sum();
    mean / unit
}

/// The distance between nodes in ln t, where `spread` is ln r.
///
/// The error falls as e^(−2πθ/step), where θ is how far ln t can leave the real line before the integrand grows. At
/// the angle θ a factor 1 − e^(−z) exceeds 1 only past Re z = π/(2·tan θ); the r factors together stay below e if that
/// is ln r.
fn step(spread: f64) -> f64 {
    let angle = libm::atan2(PI / 2.0, spread);
    2.0 * PI * angle / ERROR_EXPONENT
}

/// Returns the density at `t`, for ascending `rates`; `None` if the maximum is certainly later.
fn density(rates: &[f64], t: f64) -> Option<f64> {
    let mut reached = 1.0;
    let mut hazard = 0.0;
    for rate in rates {
        let exponent = rate * t;
        if exponent > CERTAIN {
            // All further rates are at least as large.
            break;
        }
        let odds = libm::expm1(exponent);
        reached *= odds / (1.0 + odds);
        if reached < IMPOSSIBLE {
            return None;
        }
        hazard += rate / odds;
    }
    Some(reached * hazard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn assert_close(found: f64, expected: f64, tolerance: f64, what: &str) {
        let error = (found / expected - 1.0).abs();
        assert!(error <= tolerance, "{what}: {found} for {expected}, off by {error:e}");
    }

    #[test]
    fn equal_rates_have_closed_forms() {
        for (r, rate) in [(1, 1.0), (2, 3.0), (10, 1.0), (50, 0.01), (1000, 29.0), (10_000, 1.0)] {
            let rates = vec![rate; r];
            let mean: f64 = (1..=r).rev().map(|j| 1.0 / (rate * j as f64)).sum();
            assert_close(mean_of_maximum(&rates), mean, 1e-12, &format!("mean of {r}"));
        }
    }

    /// Computes the mean by proposition 1 as printed.
    fn inclusion_exclusion(rates: &[f64]) -> f64 {
        let mut mean = 0.0;
        for subset in 1_u32..1 << rates.len() {
            let total: f64 = (0..rates.len()).filter(|i| subset >> i & 1 == 1).map(|i| rates[i]).sum();
            let sign = if subset.count_ones() % 2 == 1 { 1.0 } else { -1.0 };
            mean += sign / total;
        }
        mean
    }

    #[test]
    fn extreme_rates() {
        assert_close(mean_of_maximum(&[1e-300, 1e300]), 1e300, 1e-12, "mean");
        assert_close(mean_of_maximum(&[1e300, 2e300]), 7.0 / 6.0 * 1e-300, 1e-12, "mean");
    }

    proptest! {
        #[test]
        fn few_rates_agree_with_inclusion_exclusion(
            exponents in prop::collection::vec(-4.0f64..4.0, 1..9),
            unit in prop_oneof![Just(1.0), Just(1e-100), Just(1e100)],
        ) {
            let rates: Vec<f64> = exponents.iter().map(|x| unit * libm::exp10(*x)).collect();
            prop_assert!((mean_of_maximum(&rates) / inclusion_exclusion(&rates) - 1.0).abs() < 1e-10);
        }
    }
}
