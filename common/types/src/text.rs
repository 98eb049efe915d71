//! Values as text.

/// The error of a text that is none of some names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}': expected {expected}")]
pub struct NameError {
    pub(crate) text: String,
    pub(crate) expected: &'static str,
}

/// The most metrics of an evaluation: as many as fit where they are displayed.
pub const MAX_METRICS: usize = 16;

/// The longest name of a metric in bytes, which is displayed on one line with its value.
pub const MAX_METRIC_NAME_BYTES: usize = 64;

/// Formats a time for humans to read: `1.5 ms`, `250 ms`, `2.50 s`, `100 s`.
pub fn seconds(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0} s"),
        value if value >= 1.0 => format!("{value:.2} s"),
        value if value >= 0.1 => format!("{:.0} ms", value * 1e3),
        value => format!("{:.1} ms", value * 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_about_three_digits() {
        for (value, text) in [(0.0015, "1.5 ms"), (0.25, "250 ms"), (2.5, "2.50 s"), (100.0, "100 s")] {
            assert_eq!(seconds(value), text);
        }
    }
}
