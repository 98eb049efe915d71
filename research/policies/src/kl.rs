//! The Kullback-Leibler lower bound on the mean of exponential times.

/// Returns the smallest mean under which exponential times with this empirical mean are not too unlikely: min{q ≤ mean
/// : ln(q/mean) + mean/q − 1 ≤ c}. `c` ≥ 0 is f/K, the exploration per observation.
///
/// With x = q/mean this is the root of h(x) = ln x + 1/x − 1 − c in (0, 1], where h is convex and decreasing: Newton's
/// method from the left of the root approaches it without ever passing it, so that every iterate is a lower bound. The
/// start 1/(1 + c + √(2c)) is on the left because z − ln(1 + z) ≥ 1 + z − √(1 + 2z) for z ≥ 0.
///
/// Source: Garivier, Cappé, "The KL-UCB Algorithm for Bounded Stochastic Bandits and Beyond", COLT 2011, section 4;
/// as a lower bound on exponential times in the bandit paper (arXiv 2202.08302).
pub(crate) fn kl_lower_bound(mean: f64, c: f64) -> f64 {
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
    use proptest::prelude::*;

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
