//! Makes the reference pages of the documentation from the program's own definitions.
//!
//! # Layout
//! - this file: [`command`], which writes the pages; `commands`: the command line; `settings`: the configuration; `events`: the journal

mod commands;
mod events;
mod settings;

use std::fmt::Write;
use std::path::Path;

use ata::{EXIT_CODES, Exit, Failure};
use ata_observe::{MetricDescription, Metrics};
use ata_record::write_atomically;

/// The first line of every page.
const ORIGIN: &str = "<!-- Made by `ata-dev reference --out docs/reference`; a test compares. -->\n";

pub(crate) fn command(out: &Path) -> Result<Exit, Failure> {
    let failed = |cause: std::io::Error| Failure::disk(format!("cannot write to {}: {cause}", out.display()));
    std::fs::create_dir_all(out).map_err(failed)?;
    let mut ata = ata::command_line();
    ata.build();
    for (name, title, text) in [
        ("cli.md", "Command line", commands::page(&ata)),
        ("configuration.md", "Configuration", settings::page(&ata)?),
        ("metrics.md", "Metrics", metrics()),
        ("events.md", "Events", events::page()),
        ("exit-codes.md", "Exit codes", exit_codes()),
    ] {
        write_atomically(&out.join(name), format!("{ORIGIN}# {title}\n\n{text}").as_bytes()).map_err(failed)?;
    }
    Ok(Exit::DONE)
}

fn metrics() -> String {
    let mut text = "A coordinator's dashboard serves them at `/metrics`, in the OpenMetrics text format. Times are in seconds. Counters \
                    and histograms begin at 0 with the process; those of single workers, prices and energy go on when a run is \
                    resumed. A histogram `NAME` is queried as `NAME_bucket`, `NAME_sum` and `NAME_count`.\n\n\
                    | metric | type | labels | |\n| --- | --- | --- | --- |\n"
        .to_owned();
    for MetricDescription { name, kind, help, labels } in Metrics::reference() {
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

/// Escapes a text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}
