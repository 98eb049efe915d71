//! The names of settings: hyphens in place of underscores, and what was meant by an unknown name.

use toml::de::DeTable;

/// The text with underscores in the names of its settings, so that `task-batch` is `task_batch`. Everything stays in its place.
pub(super) fn with_underscores(text: &str) -> String {
    // The error of a text that cannot be read is reported by those who read it.
    let Ok(table) = DeTable::parse(text) else { return text.into() };
    let mut rewritten = text.to_owned();
    for span in table.get_ref().keys().map(toml::Spanned::span) {
        let name = text[span.clone()].replace('-', "_");
        rewritten.replace_range(span, &name);
    }
    rewritten
}

/// A message about a setting, in which a list of all settings is replaced by the one that was meant.
pub(super) fn in_short(message: &str) -> String {
    // Names are between backticks: the unknown one, and then those that are known.
    let mut names = message.split('`').skip(1).step_by(2);
    let (true, Some(name)) = (message.starts_with("unknown field"), names.next()) else { return message.into() };
    let known: Vec<&str> = names.collect();
    if known.len() <= FEW {
        return message.into();
    }
    match nearest(name, &known) {
        Some(meant) => format!("unknown setting `{name}`: did you mean `{meant}`?"),
        None => format!(
            "unknown setting `{name}`; docs/reference/configuration.md lists all, and `ata up --help` their flags"
        ),
    }
}

/// The name that is spelled most like `name`, if any is near.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known.iter().map(|known| (strsim::jaro_winkler(name, known), *known));
    let (likeness, known) = near.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (likeness > NEAR).then_some(known)
}

/// So many names can be read in one line.
const FEW: usize = 8;

/// Below this similarity of Jaro and Winkler, names have little in common.
const NEAR: f64 = 0.8;

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
            ("iteration = 3", "unknown setting `iteration`: did you mean `iterations`?"),
            ("weightdecay = 3", "unknown setting `weightdecay`: did you mean `weight_decay`?"),
            ("zzz = 3", "unknown setting `zzz`; docs/reference/configuration.md lists all"),
        ] {
            let message = in_short(toml::from_str::<Settings>(text).unwrap_err().message());
            assert!(message.starts_with(expected) && message.len() < 120, "{message}");
        }
        let few = "unknown field `watt`, expected `price_per_hour` or `watts`";
        assert_eq!(in_short(few), few);
    }
}
