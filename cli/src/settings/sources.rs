//! The sources of settings: files and flags.

use std::path::Path;

use serde::Serialize;
use toml::Table;

use super::labels::add_tags;
use super::workers::add_workers;
use super::{Settings, keys};
use crate::failure::Failure;

pub(super) fn merge(earlier: &mut Table, mut over: Table) {
    add_workers(earlier, &mut over);
    add_tags(earlier, &mut over);
    earlier.extend(over);
}

/// Returns those flags of a command that are given, as a table of settings.
pub(crate) fn flags(given: &impl Serialize) -> Result<Table, Failure> {
    Table::try_from(given).map_err(Failure::usage)
}

pub(crate) fn read_file(path: &Path) -> Result<Table, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|cause| Failure::usage(format!("{shown}: {cause}")))?;
    read_text(&text, &shown.to_string())
}

/// Parses settings. Error messages refer to the text as `shown`.
pub(crate) fn read_text(text: &str, shown: &str) -> Result<Table, Failure> {
    let text = &keys::with_underscores(text);
    let wrong = |error: toml::de::Error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        Failure::usage(format!("{shown}, line {line}: {}", keys::in_short(error.message())))
    };
    // This only checks names and types, while line numbers are known.
    toml::from_str::<Settings>(text).map_err(wrong)?;
    toml::from_str(text).map_err(wrong)
}
