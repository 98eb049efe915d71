//! How a run ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndState {
    /// All iterations are done, or a limit is reached.
    Finished,
    /// It was stopped before it was done.
    Stopped,
    /// Something went wrong.
    Failed,
}

impl EndState {
    /// Its name in `summary.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}
