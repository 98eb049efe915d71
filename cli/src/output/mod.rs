//! The output of commands: progress on standard error, results on standard output.

mod progress;

pub use progress::live_line;
pub(crate) use progress::{Counter, Counting, show_progress, time_left};

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use ata_figures::Table;
use ata_record::write_atomically;
use serde::Serialize;
use serde_json::json;

use crate::escape::{escaped, escaped_json};
use crate::failure::Failure;
use crate::say::is_json;

/// Writes a line to standard error. Unlike `eprintln!`, it does not panic if standard error is a file on a full disk or a closed pipe.
#[macro_export]
macro_rules! note {
    ($($format:tt)*) => {
        $crate::say("INFO", format_args!($($format)*))
    };
}
pub(crate) use note;

/// Whether standard error is a terminal on which lines may change.
fn is_live() -> bool {
    std::io::stderr().is_terminal() && !is_json()
}

/// The time between two plain lines of progress.
const LINE_INTERVAL: Duration = Duration::from_secs(2);

/// Formats a problem's own metrics, as in `absolute error 0.125, top 5 0.750`.
pub(crate) fn metrics_text<'a>(metrics: impl Iterator<Item = (&'a String, f64)>) -> String {
    metrics.map(|(name, value)| format!("{name} {value:.3}")).collect::<Vec<_>>().join(", ")
}

/// Returns the failure of a write to standard output. A closed pipe is not one, because readers such as `head` close it early.
pub(crate) fn written(result: std::io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::disk(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints whole lines on standard output.
pub fn print_text(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout();
    written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Prints a message on standard output; with `--log-format json`, as an object.
pub(crate) fn print_message(text: &str) -> Result<(), Failure> {
    print(false, &json!({ "message": text }), || format!("{text}\n"))
}

/// Prints a value as JSON on standard output: on one line with `--log-format json`.
pub fn print_json(value: &(impl Serialize + ?Sized)) -> Result<(), Failure> {
    let to_text = if is_json() { serde_json::to_string } else { serde_json::to_string_pretty };
    print_text(&format!("{}\n", escaped_json(&to_text(value).map_err(Failure::internal)?)))
}

/// Prints a result on standard output, as JSON or as lines of text for a terminal, in which untrusted text is escaped.
pub fn print(as_json: bool, result: &(impl Serialize + ?Sized), text: impl FnOnce() -> String) -> Result<(), Failure> {
    if as_json || is_json() { print_json(result) } else { print_text(&text()) }
}

pub(crate) fn write_file(path: &Path, content: &[u8]) -> Result<(), Failure> {
    write_atomically(path, content).map_err(|cause| Failure::disk(format!("cannot write {}: {cause}", path.display())))
}

/// Renders the first `limit` rows, and the number of omitted rows. Names are left-aligned, numbers right-aligned. All text is escaped.
pub fn render_table(table: &Table, limit: usize) -> String {
    let rows = &table.rows[..limit.min(table.rows.len())];
    let line = |line: &Vec<String>| line.iter().map(|cell| escaped(cell).into_owned()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(&table.header).chain(rows).map(line).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table.header.len()).map(width).collect();
    let mut text = format!("\n{}\n\n", escaped(&table.title));
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("   ").trim_end());
        text.push('\n');
    }
    let more = match table.rows.len() - rows.len() {
        0 => String::new(),
        more => format!("… and {more} more\n"),
    };
    text + &more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_long_tables_cut() {
        let cells = |cells: [&str; 2]| cells.map(String::from).to_vec();
        let table = Table {
            title: "Costs".into(),
            header: cells(["policy", "time"]),
            rows: vec![cells(["uniform", "1 s"]), cells(["gta", "10.5 s"]), cells(["fta", "1 s"])],
        };
        let expected = "\nCosts\n\npolicy      time\nuniform      1 s\ngta       10.5 s\n… and 1 more\n";
        assert_eq!(render_table(&table, 2), expected);
        assert!(render_table(&table, 3).ends_with("fta          1 s\n"));
    }
}
