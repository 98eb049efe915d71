//! The kinds of refused results.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The reason why a result does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RefusalKind {
    /// A gradient for a lease that ended before the gradient arrived. This also happens to honest workers.
    #[serde(rename = "stale lease")]
    Stale,
    /// A gradient for a lease that the worker never held, or for a different iteration than the lease's.
    #[serde(rename = "foreign lease")]
    Foreign,
    /// A gradient that has already arrived, or is already arriving.
    #[serde(rename = "replayed lease")]
    Replayed,
    /// A gradient whose length differs from the model's.
    #[serde(rename = "wrong size")]
    WrongSize,
    /// A gradient that does not match its checksum.
    #[serde(rename = "wrong checksum")]
    WrongChecksum,
    /// A gradient or a loss that is infinite or not a number.
    #[serde(rename = "not finite")]
    NotFinite,
    /// Reported times that are impossible.
    #[serde(rename = "wrong times")]
    WrongTimes,
    /// A gradient whose transfer was interrupted.
    #[serde(rename = "not received")]
    NotReceived,
    /// A lease that the worker failed to compute.
    #[serde(rename = "not computed")]
    NotComputed,
    /// A lease that, as far as its worker can tell, no worker can compute: its gradient is not finite, or the problem's own code
    /// raises an error.
    #[serde(rename = "uncomputable")]
    Uncomputable,
    /// A gradient that differs from the one on which two other workers agree.
    #[serde(rename = "mismatched")]
    Mismatched,
    /// A gradient that differs from those of other workers, no two of which agree.
    #[serde(rename = "disputed")]
    Disputed,
    /// A measurement of test data that cannot be right. Its worker measures no more in this run.
    #[serde(rename = "wrong measurement")]
    WrongMeasurement,
}

impl RefusalKind {
    /// All kinds of refusals.
    pub const ALL: [Self; 13] = [
        Self::Stale,
        Self::Foreign,
        Self::Replayed,
        Self::WrongSize,
        Self::WrongChecksum,
        Self::NotFinite,
        Self::WrongTimes,
        Self::NotReceived,
        Self::NotComputed,
        Self::Uncomputable,
        Self::Mismatched,
        Self::Disputed,
        Self::WrongMeasurement,
    ];

    /// Returns the kind's name, as in the journal.
    pub fn name(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(name)) => name,
            other => unreachable!("a kind is serialized as its name, not as {other:?}"),
        }
    }

    /// Returns whether the tasks are to blame, so that they fail in the same way on any correct worker.
    pub fn is_uncomputable(self) -> bool {
        matches!(self, Self::NotFinite | Self::Uncomputable)
    }

    /// Returns whether it is a protocol violation that no honest worker commits, and by which no lease fails.
    pub fn is_violation(self) -> bool {
        matches!(self, Self::Foreign | Self::Replayed)
    }
}
