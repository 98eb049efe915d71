//! The outcome of a check.

use std::fmt;

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The check passed.
    Ok,
    /// A run would go on, but with lower performance or less reliably.
    Warning,
    /// A run would stop, or not begin.
    Problem,
}

/// The text is the name in JSON.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the check.
    pub check: &'static str,
    /// The severity of the finding.
    pub status: Status,
    /// The observed state and, unless the check passed, the expected one.
    pub found: String,
    /// The suggested fix.
    pub fix: Option<String>,
}

impl Finding {
    /// Creates a finding for a check that passed.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, status: Status::Ok, found: found.into(), fix: None }
    }

    /// Creates a finding that does not stop a run.
    pub fn warning(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::bad(check, Status::Warning, found, fix)
    }

    /// Creates a finding that would stop a run.
    pub fn problem(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::bad(check, Status::Problem, found, fix)
    }

    /// Creates a warning or a problem.
    pub fn bad(check: &'static str, status: Status, found: impl Into<String>, fix: impl Into<String>) -> Self {
        // Each text is a single line, even if a cause has several.
        let line = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        Self { check, status, found: line(found.into()), fix: Some(line(fix.into())) }
    }
}

/// Formats a number of bytes, as in `2.6 MB`.
pub(crate) fn bytes(count: u64) -> String {
    let count = count as f64;
    match count {
        count if count >= 99.95e9 => format!("{:.0} GB", count / 1e9),
        count if count >= 1e9 => format!("{:.1} GB", count / 1e9),
        count if count >= 99.95e6 => format!("{:.0} MB", count / 1e6),
        count if count >= 1e6 => format!("{:.1} MB", count / 1e6),
        count if count >= 1e3 => format!("{:.0} kB", count / 1e3),
        count => format!("{count} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        let shown = [0, 999, 40_000, 2_570_000, 151_000_000, 5_000_000_000, 274_000_000_000].map(bytes);
        assert_eq!(shown, ["0 bytes", "999 bytes", "40 kB", "2.6 MB", "151 MB", "5.0 GB", "274 GB"]);
    }
}
