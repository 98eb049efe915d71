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
