//! What is known of a worker's speed.

/// Observed task times of one worker: K_i and T_i of the ATA paper (Algorithm 1).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerStatistics {
    /// K_i, tasks observed.
    pub observed: u64,
    /// T_i, seconds those tasks took together.
    pub total_s: f64,
}

impl WorkerStatistics {
    /// Takes in one more task time, in seconds.
    pub fn observe(&mut self, busy_s: f64) {
        debug_assert!(busy_s.is_finite() && busy_s >= 0.0);
        self.observed += 1;
        self.total_s += busy_s;
    }

    /// m_i = T_i / K_i, in seconds; `None` before the first observation.
    pub fn mean_s(&self) -> Option<f64> {
        (self.observed > 0).then(|| self.total_s / self.observed as f64)
    }
}

/// The exploration term √(L/K) + L/K with L = ln(2k²), common to the bounds of ATA and ATA-Empirical.
///
/// `iteration` is k ≥ 1, `observed` is K ≥ 1.
pub(crate) fn exploration(iteration: u64, observed: u64) -> f64 {
    let k = iteration as f64;
    let ratio = (2.0 * k * k).ln() / observed as f64;
    ratio.sqrt() + ratio
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_is_total_over_count() {
        let mut statistics = WorkerStatistics::default();
        assert_eq!(statistics.mean_s(), None);
        statistics.observe(1.0);
        statistics.observe(4.0);
        assert_eq!(statistics.mean_s(), Some(2.5));
    }

    #[test]
    fn exploration_term_follows_its_formula() {
        // k = 3, K = 4: L = ln 18 = 2.890371757896165
        let expected = (2.890_371_757_896_165_f64 / 4.0).sqrt() + 2.890_371_757_896_165 / 4.0;
        assert!((exploration(3, 4) - expected).abs() < 1e-15);
    }
}
