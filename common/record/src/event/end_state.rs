//! The state in which a run ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state in which a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndState {
    /// All iterations are done, or a limit was reached.
    Finished,
    /// The run was stopped before it was done.
    Stopped,
    /// Something went wrong.
    Failed,
}
