//! Values as text.

/// The smallest Jaro-Winkler similarity of a suggestion.
const NEAR: f64 = 0.8;

/// Returns the known name that is most similar to `name`, if any is similar enough.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.trim().to_lowercase();
    let near = known.into_iter().map(|known| {
        let edits = strsim::normalized_damerau_levenshtein(&name, known);
        (strsim::jaro_winkler(&name, known), edits, known)
    });
    let (likeness, _, known) = near.max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)))?;
    (likeness > NEAR && known != name).then_some(known)
}

/// Returns ` (did you mean 'NAME'?)`, to follow an unknown name in a message; empty if no known name is similar.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map_or(String::new(), |known| format!(" (did you mean '{known}'?)"))
}

/// The error of a text that is none of some names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}': expected {expected}")]
pub struct NameError {
    pub(crate) text: String,
    pub(crate) expected: &'static str,
}

/// The most metrics of an evaluation: as many as fit where they are displayed.
pub const MAX_METRICS: usize = 16;

/// The longest name of a metric in bytes, which is displayed on one line with its value.
pub const MAX_METRIC_NAME_BYTES: usize = 64;

/// Formats a time for humans to read: `1.5 ms`, `250 ms`, `2.50 s`, `100 s`.
pub fn seconds(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0} s"),
        value if value >= 1.0 => format!("{value:.2} s"),
        value if value >= 0.1 => format!("{:.0} ms", value * 1e3),
        value => format!("{:.1} ms", value * 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_similar_name_is_suggested() {
        let known = || ["adam", "adamw", "sgd"];
        for (name, hint) in [
            ("adma", " (did you mean 'adam'?)"),
            ("AdamW2", " (did you mean 'adamw'?)"),
            ("sgdm", " (did you mean 'sgd'?)"),
            ("lion", ""),
            ("sgd", ""),
            ("", ""),
        ] {
            assert_eq!(did_you_mean(name, known()), hint, "{name}");
        }
        // Both differ in one character that is elsewhere in the name.
        assert_eq!(nearest("resnet21", ["resnet20", "resnet18"]), Some("resnet20"));
        assert_eq!(did_you_mean("adam", []), "");
    }

    #[test]
    fn times_have_about_three_digits() {
        for (value, text) in [(0.0015, "1.5 ms"), (0.25, "250 ms"), (2.5, "2.50 s"), (100.0, "100 s")] {
            assert_eq!(seconds(value), text);
        }
    }
}
