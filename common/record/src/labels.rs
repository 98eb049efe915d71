//! The user's name and tags for a run.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name and tags that the user gave a run to find it again; both may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Labels {
    /// The name, in addition to the run's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The tags: values by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

impl fmt::Display for Labels {
    /// Formats the labels as in `baseline, data=small, team=vision`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tags = self.tags.iter().map(|(key, value)| format!("{key}={value}"));
        let labels: Vec<String> = self.name.clone().into_iter().chain(tags).collect();
        f.write_str(&labels.join(", "))
    }
}

impl Labels {
    /// Returns whether there are neither a name nor tags.
    pub fn is_empty(&self) -> bool {
        self.name.is_none() && self.tags.is_empty()
    }
}
