//! What becomes of bad samples.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What becomes of training samples that give no finite loss or gradient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnBadSample {
    /// The run ends, and names them.
    #[default]
    Stop,
    /// They are left out of the mean of their task.
    Skip,
}
