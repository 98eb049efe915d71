//! Fields of events: what is common to all, and how some are read and written.

use serde::{Deserialize, Deserializer};

use super::RunEvent;

impl RunEvent {
    /// When it was, if it says so.
    pub fn time_s(&self) -> Option<f64> {
        match self {
            Self::Run { .. } => None,
            Self::Task { time_s, .. } => *time_s,
            Self::Resume { time_s, .. }
            | Self::Wait { time_s, .. }
            | Self::Join { time_s, .. }
            | Self::Loss { time_s, .. }
            | Self::Rest { time_s, .. }
            | Self::Expulsion { time_s, .. }
            | Self::Allocation { time_s, .. }
            | Self::Step { time_s, .. }
            | Self::Refusal { time_s, .. }
            | Self::Evaluating { time_s, .. }
            | Self::Evaluation { time_s, .. }
            | Self::Checkpoint { time_s, .. }
            | Self::CheckpointFailed { time_s, .. }
            | Self::End { time_s, .. } => Some(*time_s),
        }
    }
}

/// JSON has null in place of what is no number.
pub(super) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

pub(super) fn numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let numbers: Vec<Option<f64>> = Vec::deserialize(deserializer)?;
    Ok(numbers.into_iter().map(|number| number.unwrap_or(f64::NAN)).collect())
}

pub(super) fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
pub(super) fn is_one(count: &u64) -> bool {
    *count == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}
