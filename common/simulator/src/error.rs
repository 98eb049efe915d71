//! The errors of settings and runs.

use std::fmt::Display;

/// The reason why a simulated run did not reach its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SimulationError(pub(crate) String);

/// The error of an invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {found}, expected {expected}")]
pub struct SettingError {
    setting: String,
    found: String,
    expected: String,
}

impl SettingError {
    /// Creates the error of this setting.
    pub fn new(setting: &str, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { setting: setting.into(), found: found.into(), expected: expected.into() }
    }

    /// Returns an error unless the setting is `good`.
    pub fn check(setting: &str, found: &dyn Display, good: bool, expected: &str) -> Result<(), Self> {
        if good { Ok(()) } else { Err(Self::new(setting, found.to_string(), expected)) }
    }
}
