//! The sources of settings: files and flags. The names of settings may have hyphens in place of underscores.

use std::path::Path;

use ata_types::{did_you_mean, nearest};
use serde::Serialize;
use toml::Table;
use toml::de::DeTable;

use super::Settings;
use super::labels::add_tags;
use super::workers::add_workers;
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
    let text = &with_underscores(text);
    let wrong = |error: toml::de::Error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        Failure::usage(format!("{shown}, line {line}: {}", in_short(error.message())))
    };
    // This only checks names and types, while line numbers are known.
    toml::from_str::<Settings>(text).map_err(wrong)?;
    toml::from_str(text).map_err(wrong)
}

/// Replaces hyphens by underscores in the names of settings, as in `task_batch` for `task-batch`. Positions in the text do not change.
fn with_underscores(text: &str) -> String {
    // The caller reports the error of a text that cannot be parsed.
    let Ok(table) = DeTable::parse(text) else { return text.into() };
    let mut rewritten = text.to_owned();
    for span in table.get_ref().keys().map(toml::Spanned::span) {
        let name = text[span.clone()].replace('-', "_");
        rewritten.replace_range(span, &name);
    }
    rewritten
}

/// Describes an error of settings that have no lines.
pub(super) fn described(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let key = text.lines().find_map(|line| line.strip_prefix("in `")?.strip_suffix('`'));
    key.map_or(String::new(), |key| format!("{key}: ")) + &in_short(error.message())
}

/// Adds the most similar name to a message about an unknown one. It replaces the list of all settings.
fn in_short(message: &str) -> String {
    // The message has names in backticks: the unknown one, followed by the known ones.
    let mut names = message.split('`').skip(1).step_by(2);
    let (true, Some(name)) = (message.starts_with("unknown "), names.next()) else { return message.into() };
    let known: Vec<&str> = names.collect();
    if known.len() <= FEW {
        return message.to_owned() + &did_you_mean(name, known);
    }
    match nearest(name, known) {
        Some(meant) => format!("unknown setting `{name}`: did you mean `{meant}`?"),
        None => format!(
            "unknown setting `{name}`; docs/reference/configuration.md lists all, and `ata up --help` their flags"
        ),
    }
}

/// The largest number of names that are listed in full, on one line.
const FEW: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_rewritten_where_they_are() {
        for (text, expected) in [
            ("task-batch = 3 # task-batch\n", "task_batch = 3 # task-batch\n"),
            ("a = '''\ntask-batch = 3'''\nlr-warmup=2", "a = '''\ntask-batch = 3'''\nlr_warmup=2"),
            ("[workers.my-gpu]\nwatts = 3.0", "[workers.my-gpu]\nwatts = 3.0"),
            ("task-batch = ", "task-batch = "),
        ] {
            assert_eq!(with_underscores(text), expected);
        }
    }

    #[test]
    fn an_unknown_setting_is_answered_with_the_one_that_was_meant() {
        for (text, expected) in [
            ("bugdet = 3", "unknown setting `bugdet`: did you mean `budget`?"),
            ("weightdecay = 3", "unknown setting `weightdecay`: did you mean `weight_decay`?"),
            ("zzz = 3", "unknown setting `zzz`; docs/reference/configuration.md lists all"),
        ] {
            let message = in_short(toml::from_str::<Settings>(text).unwrap_err().message());
            assert!(message.starts_with(expected) && message.len() < 120, "{message}");
        }
        for (message, hint) in [
            ("unknown field `watt`, expected `price_per_hour` or `watts`", " (did you mean 'watts'?)"),
            ("unknown variant `adma`, expected one of `adam`, `adamw`, `sgd`", " (did you mean 'adam'?)"),
            ("unknown variant `lion`, expected one of `adam`, `adamw`, `sgd`", ""),
            ("invalid type: string \"`a`\", expected u64", ""),
        ] {
            assert_eq!(in_short(message), message.to_owned() + hint);
        }
    }
}
