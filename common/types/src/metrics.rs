//! How many metrics of its own a problem may have.

/// Metrics of an evaluation: as many as have room where they are shown.
pub const MAX_METRICS: usize = 16;

/// Bytes of a metric's name, which stands in one line with its value.
pub const MAX_METRIC_NAME_BYTES: usize = 64;
