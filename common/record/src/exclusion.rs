//! What workers are excluded from because of what they did.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The largest number of exclusions that are kept: as many as a run may have workers.
pub const MAX_EXCLUSIONS: usize = 16_384;

/// Something that a worker may not do any more, or not for a while. It holds for a name on one machine, because every worker may use
/// any name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exclusion {
    /// The worker's name.
    pub name: String,
    /// The machine that used the name: the address that it connected from, or the names in its certificate.
    pub machine: String,
    /// What it is excluded from.
    pub from: ExcludedFrom,
    /// The reason, in words.
    pub why: String,
}

/// What a worker is excluded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExcludedFrom {
    /// The worker gets no tasks for a while, after a failure.
    Tasks,
    /// The worker measures no batches of evaluations for the rest of the run.
    Evaluations,
    /// The worker was expelled: it may not join again.
    Run,
}

/// The text is the name in JSON.
impl fmt::Display for ExcludedFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tasks => "tasks",
            Self::Evaluations => "evaluations",
            Self::Run => "run",
        })
    }
}
