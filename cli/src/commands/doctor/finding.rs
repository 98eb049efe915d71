//! What a check finds.

use std::iter;

use serde::Serialize;

use crate::output::escaped;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    /// As it should be.
    Ok,
    /// A run would go on, but not as well as it could, or not always.
    Warning,
    /// A run would stop, or not begin.
    Problem,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// What was checked.
    pub(super) check: &'static str,
    pub(super) status: Status,
    /// What was found and, if that is not as it should be, what was expected.
    pub(super) found: String,
    /// What to do about it.
    pub(super) mend: Option<String>,
}

impl Finding {
    /// All is well.
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, status: Status::Ok, found: found.into(), mend: None }
    }

    /// A run would go on without the mend.
    pub(super) fn warning(check: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self::bad(check, Status::Warning, found, mend)
    }

    /// A run would stop without the mend.
    pub(super) fn problem(check: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self::bad(check, Status::Problem, found, mend)
    }

    /// One of these two.
    pub(super) fn bad(check: &'static str, status: Status, found: impl Into<String>, mend: impl Into<String>) -> Self {
        // One line each, even if a cause has several.
        let line = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        Self { check, status, found: line(found.into()), mend: Some(line(mend.into())) }
    }
}

/// A line for each finding, and one more for its mend; then how many there are of each kind.
pub(super) fn render(findings: &[Finding]) -> String {
    let lines = findings.iter().flat_map(|Finding { check, status, found, mend }| {
        let line = format!("{:<8} {check:<12} {}\n", status.name(), escaped(found));
        iter::once(line).chain(mend.iter().map(|mend| format!("{:<21} mend: {}\n", "", escaped(mend))))
    });
    lines.collect::<String>() + &in_short(findings) + "\n"
}

/// How many problems and warnings there are.
fn in_short(findings: &[Finding]) -> String {
    let count = |wanted: Status| findings.iter().filter(|finding| finding.status == wanted).count();
    let number = |count, what| if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") };
    match (count(Status::Problem), count(Status::Warning)) {
        (0, 0) => "no problems found".into(),
        (0, warnings) => format!("no problems found, {}", number(warnings, "warning")),
        (problems, warnings) => format!("{}, {}", number(problems, "problem"), number(warnings, "warning")),
    }
}

/// Bytes, as in `2.6 MB`.
pub(super) fn bytes(count: u64) -> String {
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
    fn findings_are_lines_with_their_mends() {
        let findings = [
            Finding::ok("clock", "2026"),
            Finding::warning("ports", "taken:\n  by another", "choose another"),
            Finding::problem("disk", "full", "delete something"),
        ];
        let expected = "ok       clock        2026\n\
                        warning  ports        taken: by another\n                      mend: choose another\n\
                        problem  disk         full\n                      mend: delete something\n\
                        1 problem, 1 warning\n";
        assert_eq!(render(&findings), expected);
        assert!(render(&findings[..2]).ends_with("no problems found, 1 warning\n"));
        assert!(render(&findings[..1]).ends_with("\nno problems found\n"));
    }

    #[test]
    fn sizes_are_readable() {
        let shown = [0, 999, 40_000, 2_570_000, 151_000_000, 5_000_000_000, 274_000_000_000].map(bytes);
        assert_eq!(shown, ["0 bytes", "999 bytes", "40 kB", "2.6 MB", "151 MB", "5.0 GB", "274 GB"]);
    }
}
