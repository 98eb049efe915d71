//! Makes the reference pages of the documentation from the program's own definitions.
//!
//! # Layout
//! - this file: [`command`], which writes the pages; `commands`: the command line; `settings`: the configuration; `metrics`: Prometheus'
//!   metrics; `events`: the journal

mod commands;
mod events;
mod metrics;
mod settings;

use std::fmt::Write;
use std::path::Path;

use ata::{EXIT_CODES, Exit, Failure};
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
        ("metrics.md", "Metrics", metrics::page()),
        ("events.md", "Events", events::page()),
        ("exit-codes.md", "Exit codes", exit_codes()),
    ] {
        write_atomically(&out.join(name), format!("{ORIGIN}# {title}\n\n{text}").as_bytes()).map_err(failed)?;
    }
    Ok(Exit::DONE)
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
