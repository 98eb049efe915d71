//! The older text format of Prometheus, for readers that do not ask for OpenMetrics.

use std::fmt::Write;

/// Converts OpenMetrics text. A counter `NAME` with the sample `NAME_total` becomes `NAME_total`, and an info becomes a gauge.
pub(super) fn classic(openmetrics: &str) -> String {
    let mut text = String::new();
    let mut lines = openmetrics.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" {
            break;
        }
        let Some(help) = line.strip_prefix("# HELP ") else {
            text += line;
            text.push('\n');
            continue;
        };
        let (name, help) = help.split_once(' ').unwrap_or((help, ""));
        // The type follows the help text.
        let kind = lines.next().and_then(|line| line.rsplit(' ').next()).unwrap_or("untyped");
        let (suffix, kind) = match kind {
            "counter" => ("_total", "counter"),
            "info" => ("_info", "gauge"),
            kind => ("", kind),
        };
        let written = write!(text, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n");
        written.expect("a string takes all that is written");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_samples() {
        let openmetrics = "# HELP a Of a.\n# TYPE a counter\na_total 1\n# HELP b Of b.\n# TYPE b info\nb_info{v=\"1\"} 1\n\
                           # HELP c Of c.\n# TYPE c gauge\nc 2\n# EOF\n";
        let expected = "# HELP a_total Of a.\n# TYPE a_total counter\na_total 1\n# HELP b_info Of b.\n# TYPE b_info gauge\n\
                        b_info{v=\"1\"} 1\n# HELP c Of c.\n# TYPE c gauge\nc 2\n";
        assert_eq!(classic(openmetrics), expected);
    }
}
