//! The setting `on_bad_sample`.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The treatment of training samples whose loss or gradient is not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnBadSample {
    /// The run ends and names them.
    #[default]
    Stop,
    /// They are omitted from the mean of their task.
    Skip,
}
