//! Settings that make no sense.

use std::fmt::Display;

/// A setting that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {found}, expected {expected}")]
pub struct SettingError {
    /// The setting.
    pub setting: String,
    /// What was found.
    pub found: String,
    /// What is expected.
    pub expected: String,
}

impl SettingError {
    /// An error of this setting.
    pub fn new(setting: &str, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { setting: setting.into(), found: found.into(), expected: expected.into() }
    }

    /// An error unless the setting is `good`.
    pub fn check(setting: &str, found: &dyn Display, good: bool, expected: &str) -> Result<(), Self> {
        if good { Ok(()) } else { Err(Self::new(setting, found.to_string(), expected)) }
    }
}
