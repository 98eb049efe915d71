//! What a run is called by its user.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name and the tags of a run, which the user gave it to find it again; both may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Labels {
    /// The name, in addition to the run's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Values by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

impl fmt::Display for Labels {
    /// As in `baseline, data=small, team=vision`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tags = self.tags.iter().map(|(key, value)| format!("{key}={value}"));
        let labels: Vec<String> = self.name.clone().into_iter().chain(tags).collect();
        f.write_str(&labels.join(", "))
    }
}

impl Labels {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.name.is_none() && self.tags.is_empty()
    }
}
