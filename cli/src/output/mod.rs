//! What is printed: progress on standard error, tables and JSON on standard output.

mod counter;
mod escape;
mod progress;
mod table;

pub(crate) use counter::Counter;
pub(crate) use escape::{JsonLines, escaped, escaped_json, is_unsafe, print_json};
#[cfg(target_os = "linux")]
pub(crate) use progress::live_line;
pub(crate) use progress::show_progress;
pub(crate) use table::render_table;

use std::time::Duration;

/// Time between two plain lines of progress.
const LINE_INTERVAL: Duration = Duration::from_secs(2);
