//! Where settings come from: files and flags.

use std::path::Path;

use serde::Serialize;
use toml::Table;

use super::labels::add_tags;
use super::workers::add_workers;
use super::{Settings, keys};
use crate::failure::Failure;

/// A line that earlier builds wrote to the settings of a run, and that says what is always so now.
const GONE: &str = "\naggregate = \"mean\"\n";

/// Lets settings override earlier ones.
pub(super) fn merge(earlier: &mut Table, mut over: Table) {
    add_workers(earlier, &mut over);
    add_tags(earlier, &mut over);
    earlier.extend(over);
}

/// A command's flags that are settings.
pub(crate) trait Flags {
    /// The flags that were given.
    fn table(&self) -> Result<Table, Failure>;
}

impl<T: Serialize> Flags for T {
    fn table(&self) -> Result<Table, Failure> {
        Table::try_from(self).map_err(Failure::usage)
    }
}

/// Reads a file of settings.
pub(crate) fn read_file(path: &Path) -> Result<Table, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|cause| Failure::usage(format!("{shown}: {cause}")))?;
    read_text(&text, &shown.to_string())
}

/// Reads settings from a text; `shown` is what it is called in the error.
pub(crate) fn read_text(text: &str, shown: &str) -> Result<Table, Failure> {
    let text = &keys::with_underscores(&text.replace(GONE, "\n\n"));
    let wrong = |error: toml::de::Error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        Failure::usage(format!("{shown}, line {line}: {}", keys::in_short(error.message())))
    };
    // This only checks names and types while line numbers are known.
    toml::from_str::<Settings>(text).map_err(wrong)?;
    toml::from_str(text).map_err(wrong)
}
