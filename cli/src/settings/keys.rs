//! The names of settings: hyphens in place of underscores, and suggestions for unknown names.

use ata_types::{did_you_mean, nearest};
use toml::de::DeTable;

/// Replaces hyphens by underscores in the names of settings, as in `task_batch` for `task-batch`. Positions in the text do not change.
pub(super) fn with_underscores(text: &str) -> String {
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
pub(super) fn in_short(message: &str) -> String {
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
    use crate::settings::Settings;

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
