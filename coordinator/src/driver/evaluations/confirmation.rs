//! Batches that two members measure before a measurement counts.

use ata_learn::{EvaluationBatches, Measurement};

use super::crew::CrewMember;

/// The largest relative difference between the losses that two devices measure: ten times what gradients may differ by, because no step
/// depends on it. With a tenth of it, workers with bf16 would be refused.
const LOSS_TOLERANCE: f64 = 1e-2;

/// The largest difference between losses of nearly 0, which rounding errors make up.
const LEAST_LOSS: f64 = 1e-5;

/// The largest share of samples whose two best scores two devices may rank differently, and the largest difference between a problem's own
/// metrics. One sample may always differ.
const SHARE_TOLERANCE: f64 = 2e-2;

/// The number of measurements of a batch that are compared. If none of five agree, at least four are wrong.
pub(super) const MOST_MEASUREMENTS: usize = 5;

/// A measurement with the member that made it and its division of the test data.
#[derive(Clone, Debug)]
pub(super) struct MadeMeasurement {
    pub(super) member: CrewMember,
    pub(super) found: EvaluationBatches,
    pub(super) measured: Measurement,
}

impl MadeMeasurement {
    /// Returns whether two measurements of a batch differ by no more than the rounding of different devices.
    pub(super) fn agrees(&self, other: &Self) -> bool {
        let (a, b) = (&self.measured, &other.measured);
        let counts = |measured: &Measurement| {
            let sum =
                |of: fn(&ata_learn::ClassCount) -> u32| measured.classes.iter().map(of).map(f64::from).sum::<f64>();
            [sum(|class| class.samples), sum(|class| class.correct)]
        };
        let ([samples, correct], [other_samples, other_correct]) = (counts(a), counts(b));
        let is_near = |a: f64, b: f64, relative: f64, least: f64| {
            a.to_bits() == b.to_bits()
                || a.is_nan() && b.is_nan()
                || (a - b).abs() <= relative * a.abs().max(b.abs()) + least
        };
        self.found == other.found
            && is_near(a.loss, b.loss, LOSS_TOLERANCE, LEAST_LOSS)
            && samples == other_samples
            && (correct - other_correct).abs() <= (SHARE_TOLERANCE * samples).max(1.0)
            && a.metrics.keys().eq(b.metrics.keys())
            && a.metrics.iter().all(|(name, value)| is_near(*value, b.metrics[name], SHARE_TOLERANCE, SHARE_TOLERANCE))
    }
}
