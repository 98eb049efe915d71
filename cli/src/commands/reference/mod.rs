//! `ata reference`: the pages of the documentation that are made from the code.
//!
//! # Layout
//! - here: the pages; `commands`: the command line; `settings`: the configuration; `events`: the journal

mod commands;
mod events;
mod settings;

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use ata_observe::{Described, Metrics};
use ata_record::write_atomically;

use crate::failure::{EXIT_CODES, Failure};

/// What every page says first.
const MADE: &str = "<!-- Made by `ata reference --out docs/reference`; a test compares. -->\n";

/// Writes the pages to a folder.
pub(crate) fn run(out: &Path) -> Result<ExitCode, Failure> {
    let failed = |cause: std::io::Error| Failure::disk(format!("cannot write to {}: {cause}", out.display()));
    std::fs::create_dir_all(out).map_err(failed)?;
    for (name, text) in pages()? {
        write_atomically(&out.join(name), text.as_bytes()).map_err(failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The pages by file name.
fn pages() -> Result<[(&'static str, String); 5], Failure> {
    let page = |title: &str, text: String| format!("{MADE}# {title}\n\n{text}");
    Ok([
        ("cli.md", page("Command line", commands::page())),
        ("configuration.md", page("Configuration", settings::page()?)),
        ("metrics.md", page("Metrics", metrics())),
        ("events.md", page("Events", events::page())),
        ("exit-codes.md", page("Exit codes", exit_codes())),
    ])
}

fn metrics() -> String {
    let mut text = "A coordinator's dashboard serves them at `/metrics`, in the OpenMetrics text format. Times are in seconds. Counters \
                    and histograms begin at 0 with the process; those of single workers, prices and energy go on when a run is \
                    resumed. A histogram `NAME` is queried as `NAME_bucket`, `NAME_sum` and `NAME_count`.\n\n\
                    | metric | type | labels | |\n| --- | --- | --- | --- |\n"
        .to_owned();
    for Described { name, kind, help, labels } in Metrics::reference() {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(text, "| `{name}` | {kind} | {} | {help} |", labels.join(", ")).expect("a string takes it");
    }
    text
}

fn exit_codes() -> String {
    let mut text = "| code | |\n| --- | --- |\n".to_owned();
    for (code, meaning) in EXIT_CODES {
        writeln!(text, "| {code} | {meaning} |").expect("a string takes it");
    }
    text
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}
