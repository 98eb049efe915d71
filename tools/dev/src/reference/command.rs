//! The command `ata-dev reference`.

use std::path::Path;

use ata::{EXIT_CODES, Exit, Failure};
use ata_observe::{MetricDescription, Metrics};
use ata_record::{JOURNAL_VERSION, RunEvent, write_atomically};
use schemars::schema_for;

use super::{Definitions, Metric, pages};

/// Arguments of `ata up` and `ata coordinator` that are not settings of the run.
const NOT_SETTINGS: [&str; 7] = ["config", "resume", "json", "stay", "log", "log_format", "ready_file"];

/// Writes the pages to a folder.
pub(crate) fn command(out: &Path) -> Result<Exit, Failure> {
    let failed = |cause: std::io::Error| Failure::disk(format!("cannot write to {}: {cause}", out.display()));
    std::fs::create_dir_all(out).map_err(failed)?;
    for (name, text) in pages(&definitions()?) {
        write_atomically(&out.join(name), text.as_bytes()).map_err(failed)?;
    }
    Ok(Exit::DONE)
}

fn definitions() -> Result<Definitions, Failure> {
    let metric =
        |MetricDescription { name, kind, help, labels }: MetricDescription| Metric { name, kind, help, labels };
    Ok(Definitions {
        command: ata::command_line(),
        defaults: ata::default_settings()?,
        not_settings: &NOT_SETTINGS,
        events: schema_for!(RunEvent).to_value(),
        journal_version: JOURNAL_VERSION,
        metrics: Metrics::reference().into_iter().map(metric).collect(),
        exit_codes: &EXIT_CODES,
    })
}
