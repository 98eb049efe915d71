//! The time that events share, and how their numbers are parsed.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::{RunEvent, StepEvent};

impl RunEvent {
    /// Returns the time of the event; `None` for the beginning of the run.
    pub fn time_s(&self) -> Option<f64> {
        match self {
            Self::Run { .. } => None,
            Self::Resume { time_s, .. }
            | Self::Folded { time_s, .. }
            | Self::Wait { time_s, .. }
            | Self::Join { time_s, .. }
            | Self::Loss { time_s, .. }
            | Self::Rest { time_s, .. }
            | Self::Expulsion { time_s, .. }
            | Self::Forgive { time_s, .. }
            | Self::Allocation { time_s, .. }
            | Self::Task { time_s, .. }
            | Self::Step(StepEvent { time_s, .. })
            | Self::Links { time_s, .. }
            | Self::Resources { time_s, .. }
            | Self::Refusal { time_s, .. }
            | Self::Evaluating { time_s, .. }
            | Self::Evaluation { time_s, .. }
            | Self::Checkpoint { time_s, .. }
            | Self::CheckpointFailed { time_s, .. }
            | Self::End { time_s, .. } => Some(*time_s),
        }
    }
}

/// Parses a number. JSON has null in place of NaN.
pub(crate) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

pub(super) fn numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let numbers: Vec<Option<f64>> = Vec::deserialize(deserializer)?;
    Ok(numbers.into_iter().map(|number| number.unwrap_or(f64::NAN)).collect())
}

pub(crate) fn named_numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let numbers: BTreeMap<String, Option<f64>> = BTreeMap::deserialize(deserializer)?;
    Ok(numbers.into_iter().map(|(name, number)| (name, number.unwrap_or(f64::NAN))).collect())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}
