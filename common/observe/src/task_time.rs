//! The mean time of a worker's tasks.

use ata_record::WorkerState;

/// The number of recent times from which means, intervals and medians are computed, as speeds change.
pub(crate) const RECENT: usize = 256;

/// The mean seconds of a task, with a 95 % interval.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_field_names, reason = "units come last")]
pub(crate) struct MeanTaskTime {
    pub(crate) mean_s: Option<f64>,
    pub(crate) low_s: Option<f64>,
    pub(crate) high_s: Option<f64>,
}

impl MeanTaskTime {
    pub(crate) fn of(worker: &WorkerState) -> Self {
        let times = || worker.times_s.iter().rev().take(RECENT);
        let count = times().count() as f64;
        if count == 0.0 {
            return Self::default();
        }
        let mean_s = times().sum::<f64>() / count;
        if count == 1.0 {
            return Self { mean_s: Some(mean_s), low_s: None, high_s: None };
        }
        let variance = times().map(|time_s| (time_s - mean_s).powi(2)).sum::<f64>() / (count - 1.0);
        let margin_s = 1.96 * (variance / count).sqrt();
        Self { mean_s: Some(mean_s), low_s: Some((mean_s - margin_s).max(0.0)), high_s: Some(mean_s + margin_s) }
    }
}
