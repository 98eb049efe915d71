//! The output of commands: progress on standard error, results on standard output.

mod counter;
mod progress;
mod table;

pub(crate) use counter::{Counter, Counting};
pub use progress::live_line;
pub(crate) use progress::show_progress;
pub use table::render_table;

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use ata_record::write_atomically;
use serde::Serialize;

use crate::escape::escaped_json;
use crate::failure::Failure;

/// Writes a line to standard error. Unlike `eprintln!`, it does not panic if standard error is a file on a full disk or a closed pipe.
#[macro_export]
macro_rules! note {
    ($($format:tt)*) => {{
        use std::io::Write as _;
        drop(writeln!(std::io::stderr(), $($format)*));
    }};
}
pub(crate) use note;

/// The time between two plain lines of progress.
const LINE_INTERVAL: Duration = Duration::from_secs(2);

/// Formats a problem's own metrics, as in `absolute error 0.125, top 5 0.750`.
pub(crate) fn metrics_text<'a>(metrics: impl Iterator<Item = (&'a String, f64)>) -> String {
    metrics.map(|(name, value)| format!("{name} {value:.3}")).collect::<Vec<_>>().join(", ")
}

/// Prints whole lines on standard output. A closed pipe is not an error, because readers such as `head` close it early.
pub fn print_text(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::disk(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a value as JSON on standard output.
pub fn print_json(value: &(impl Serialize + ?Sized)) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::internal)?;
    print_text(&format!("{}\n", escaped_json(&text)))
}

/// Prints the result of a command on standard output: its serialization as JSON, or whole lines of text for a terminal, in which untrusted
/// text is escaped.
pub fn print(as_json: bool, result: &(impl Serialize + ?Sized), text: impl FnOnce() -> String) -> Result<(), Failure> {
    if as_json { print_json(result) } else { print_text(&text()) }
}

pub(crate) fn write_file(path: &Path, content: &[u8]) -> Result<(), Failure> {
    write_atomically(path, content).map_err(|cause| Failure::disk(format!("cannot write {}: {cause}", path.display())))
}
