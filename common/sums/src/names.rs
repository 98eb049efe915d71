//! Patterns of tensor names.

use crate::table::{ParameterTable, TensorEntry};

/// Patterns of the names of tensors, separated by spaces, in which `*` stands for any characters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamePatterns(Vec<String>);

impl From<&str> for NamePatterns {
    fn from(text: &str) -> Self {
        Self(text.split_whitespace().map(String::from).collect())
    }
}

impl NamePatterns {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a pattern matches a name.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| matches(pattern, name))
    }

    /// Returns whether a pattern matches a name of the tensor.
    pub(crate) fn has(&self, entry: &TensorEntry) -> bool {
        entry.names().any(|name| self.has_name(name))
    }

    /// Refuses a pattern that matches no tensor of the model, so that no mistake goes unnoticed.
    pub(crate) fn check(&self, table: &ParameterTable) -> Result<(), String> {
        let names = || table.tensors.iter().flat_map(TensorEntry::names);
        match self.0.iter().find(|pattern| !names().any(|name| matches(pattern, name))) {
            None => Ok(()),
            Some(unused) => {
                let some: Vec<&str> = names().take(5).collect();
                Err(format!("'{unused}' matches no parameter: the names begin with {}", some.join(", ")))
            }
        }
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| matches(rest, &name[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("a*", "abc", true),
            ("a", "abc", false),
            ("*c", "abc", true),
            ("*b", "abc", false),
            ("*a*b*", "xaybz", true),
            ("**", "", true),
            ("a*b*c", "abbc", true),
            ("é*", "éa", true),
            ("x *b y", "ab", true),
        ] {
            let patterns = NamePatterns::from(pattern);
            assert_eq!(patterns.has_name(name), expected, "{pattern} {name}");
        }
    }
}
