//! The ways in which workers exchange vectors.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::NameError;

/// The most workers that exchange vectors among each other in one step. Each connects to all others, and the time of such a step
/// hardly falls beyond a dozen workers.
pub const MAX_SHARDS: usize = 32;

/// The way in which workers exchange vectors. The bits of a run do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExchangeChoice {
    /// Workers use shards where that takes less time, and otherwise the coordinator's link.
    #[default]
    Auto,
    /// Workers use the coordinator's link.
    Star,
    /// Workers use shards wherever they can reach each other; each sums a part of the vector.
    Shards,
}

impl ExchangeChoice {
    /// Returns the name, as `--exchange` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Star => "star",
            Self::Shards => "shards",
        }
    }
}

impl fmt::Display for ExchangeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ExchangeChoice {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let choice = [Self::Auto, Self::Star, Self::Shards].into_iter().find(|choice| choice.name() == text);
        choice.ok_or_else(|| NameError { text: text.into(), expected: "auto, star or shards" })
    }
}
