//! Limits on a problem's own metrics.

/// The most metrics of an evaluation: as many as fit where they are displayed.
pub const MAX_METRICS: usize = 16;

/// The longest name of a metric in bytes, which is displayed on one line with its value.
pub const MAX_METRIC_NAME_BYTES: usize = 64;
