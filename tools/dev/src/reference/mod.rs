//! Makes the reference pages of the documentation from the program's own definitions.
//!
//! # Layout
//! - this file: [`pages`], from [`Definitions`]; `command`: writes them; `commands`: the command line; `settings`: the configuration;
//!   `events`: the journal

mod command;
mod commands;
mod events;
mod settings;

pub(crate) use command::command;

use std::fmt::Write;

use clap::Command;
use serde_json::Value;
use toml::Table;

/// The first line of every page.
const ORIGIN: &str = "<!-- Made by `ata-dev reference --out docs/reference`; a test compares. -->\n";

/// The definitions that the pages are made from.
#[derive(Debug)]
pub(crate) struct Definitions {
    /// The command line.
    pub(crate) command: Command,
    /// The default settings of a run.
    pub(crate) defaults: Table,
    /// The ids of the arguments of a run that are not settings.
    pub(crate) not_settings: &'static [&'static str],
    /// The JSON schema of the events.
    pub(crate) events: Value,
    /// The version of the journal.
    pub(crate) journal_version: u32,
    /// The metrics that a dashboard serves.
    pub(crate) metrics: Vec<Metric>,
    /// The exit codes and their meanings.
    pub(crate) exit_codes: &'static [(u8, &'static str)],
}

/// A metric that a dashboard serves.
#[derive(Debug)]
pub(crate) struct Metric {
    /// The name of the metric.
    pub(crate) name: String,
    /// The type of the metric: counter, gauge or histogram.
    pub(crate) kind: String,
    /// The description of the metric.
    pub(crate) help: String,
    /// The labels of the metric.
    pub(crate) labels: Vec<String>,
}

/// Returns the pages, each with its file name.
pub(crate) fn pages(definitions: &Definitions) -> [(&'static str, String); 5] {
    let mut command = definitions.command.clone();
    command.build();
    let page = |title: &str, text: String| format!("{ORIGIN}# {title}\n\n{text}");
    [
        ("cli.md", page("Command line", commands::page(&command))),
        ("configuration.md", page("Configuration", settings::page(&command, definitions))),
        ("metrics.md", page("Metrics", metrics(&definitions.metrics))),
        ("events.md", page("Events", events::page(&definitions.events, definitions.journal_version))),
        ("exit-codes.md", page("Exit codes", exit_codes(definitions.exit_codes))),
    ]
}

fn metrics(metrics: &[Metric]) -> String {
    let mut text = "A coordinator's dashboard serves them at `/metrics`, in the OpenMetrics text format. Times are in seconds. Counters \
                    and histograms begin at 0 with the process; those of single workers, prices and energy go on when a run is \
                    resumed. A histogram `NAME` is queried as `NAME_bucket`, `NAME_sum` and `NAME_count`.\n\n\
                    | metric | type | labels | |\n| --- | --- | --- | --- |\n"
        .to_owned();
    for Metric { name, kind, help, labels } in metrics {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(text, "| `{name}` | {kind} | {} | {help} |", labels.join(", ")).expect("a string takes it");
    }
    text
}

fn exit_codes(codes: &[(u8, &str)]) -> String {
    let mut text = "| code | |\n| --- | --- |\n".to_owned();
    for (code, meaning) in codes {
        writeln!(text, "| {code} | {meaning} |").expect("a string takes it");
    }
    text
}

/// Escapes a text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}
