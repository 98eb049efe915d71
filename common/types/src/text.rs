//! Formats values as text.

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
