//! The name and the tags of a run: `--name baseline --tag team=vision`.

use std::collections::BTreeMap;

use ata_record::Labels;
use serde::{Serialize, Serializer};

use crate::failure::{Failure, require};

pub(super) type Tag = (String, String);

pub(super) fn parse_tag(text: &str) -> Result<Tag, String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, as in team=vision")?;
    Ok((key.into(), value.into()))
}

/// Serializes tags as the setting `tags`. The last tag with the same key wins.
#[expect(clippy::ref_option, reason = "serde's form")]
pub(super) fn as_setting<S: Serializer>(tags: &Option<Vec<Tag>>, serializer: S) -> Result<S::Ok, S::Error> {
    tags.iter().flatten().cloned().collect::<BTreeMap<_, _>>().serialize(serializer)
}

pub(super) fn add_tags(earlier: &toml::Table, over: &mut toml::Table) {
    let tags = |table: &toml::Table| table.get("tags")?.as_table().cloned();
    if let (Some(mut both), Some(new)) = (tags(earlier), tags(over)) {
        both.extend(new);
        over.insert("tags".into(), both.into());
    }
}

/// The largest number of tags, for which there is room wherever a run is shown.
const MOST_TAGS: usize = 16;
const MOST_VALUE: usize = 128;

pub(super) fn check_labels(labels: &Labels) -> Result<(), Failure> {
    if let Some(name) = &labels.name {
        // The name is also used as a file name.
        let has_a_meaning = ["auto", "latest"].contains(&name.as_str()) || name.starts_with('.');
        require(is_word(name, "._-") && !has_a_meaning, || {
            format!(
                "name = {name}: expected 1 to 64 letters, digits, '.', '_' and '-', not a '.' first, and not auto or latest"
            )
        })?;
    }
    let tags = labels.tags.len();
    require(tags <= MOST_TAGS, || format!("tags: expected at most {MOST_TAGS}, found {tags}"))?;
    for (key, value) in &labels.tags {
        // The key is also a label of metrics.
        let message = || format!("tag {key}={value}: expected a key of 1 to 64 letters, digits and '_'");
        require(is_word(key, "_"), message)?;
        let fits = value.chars().count() <= MOST_VALUE && !value.chars().any(char::is_control);
        require(fits, || format!("tag {key}: expected a value of at most {MOST_VALUE} characters in one line"))?;
    }
    Ok(())
}

/// Whether `text` consists of letters, digits, and the `others`.
fn is_word(text: &str, others: &str) -> bool {
    let is_written = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
    (1..=64).contains(&text.len()) && text.chars().all(is_written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: Option<&str>, tags: &[&str]) -> Result<(), String> {
        let tags = tags.iter().map(|tag| parse_tag(tag)).collect::<Result<_, _>>()?;
        let labels = Labels { name: name.map(Into::into), tags };
        check_labels(&labels).map_err(|failure| failure.to_string())
    }

    #[test]
    fn labels_that_cannot_be_shown_are_refused() {
        assert_eq!(check(Some("base-line.2"), &["team=vision", "note=of two: a=b", "empty="]), Ok(()));
        let long = format!("a={}", "x".repeat(129));
        let many: Vec<String> = (0..17).map(|key| format!("k{key}=1")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (name, tags, expected) in [
            (Some("latest"), &[][..], "name = latest"),
            (Some("a/b"), &[], "name = a/b"),
            (None, &["team"], "KEY=VALUE"),
            (None, &["=vision"], "a key of 1 to 64"),
            (None, &["te-am=vision"], "a key of 1 to 64"),
            (None, &["a=b\nc"], "in one line"),
            (None, &[&long], "at most 128"),
            (None, &many, "at most 16, found 17"),
        ] {
            let error = check(name, tags).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
