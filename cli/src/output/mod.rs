//! Human-readable output: progress on standard error, tables on standard output.

mod counter;
mod progress;
mod table;

pub(crate) use counter::Counter;
#[cfg(target_os = "linux")]
pub(crate) use progress::live_line;
pub(crate) use progress::show_progress;
pub(crate) use table::render_table;

use std::time::Duration;

/// Time between two plain lines of progress.
const LINE_INTERVAL: Duration = Duration::from_secs(2);

/// A human-readable duration.
pub(crate) fn seconds(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0} s"),
        value if value >= 1.0 => format!("{value:.2} s"),
        value if value >= 0.1 => format!("{:.0} ms", value * 1e3),
        value => format!("{:.1} ms", value * 1e3),
    }
}
