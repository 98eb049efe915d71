//! The exploration term of ATA and ATA-Empirical.

/// Returns the exploration term √(L/K) + L/K with L = ln(2k²), which the bounds of ATA and ATA-Empirical share.
///
/// `log` is L, `observed` is K ≥ 1.
pub(crate) fn exploration(log: f64, observed: f64) -> f64 {
    let ratio = log / observed;
    ratio.sqrt() + ratio
}

/// Returns L = ln(2k²) for iteration k ≥ 1.
pub(crate) fn exploration_log(iteration: u64) -> f64 {
    let k = iteration as f64;
    (2.0 * k * k).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exploration_term_follows_its_formula() {
        // For k = 3 and K = 4, L = ln 18 = 2.890371757896165.
        let expected = (2.890_371_757_896_165_f64 / 4.0).sqrt() + 2.890_371_757_896_165 / 4.0;
        assert!((exploration(exploration_log(3), 4.0) - expected).abs() < 1e-15);
    }
}
