//! Parameters of a policy, written `NAME:key=value,…`.

use std::collections::BTreeMap;

use super::ata::Preset;
use super::registry::{POLICIES, PolicyContext};

/// What is wrong with a policy as written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No policy has that name.
    #[error("unknown policy '{0}': expected one of {known}", known = POLICIES.map(|entry| entry.name).join(", "))]
    UnknownPolicy(String),
    /// Not `key=value`.
    #[error("policy parameter '{0}' is not of the form key=value")]
    NotKeyValue(String),
    /// A key twice.
    #[error("policy parameter '{0}' is given twice")]
    Twice(String),
    /// The policy knows no such parameter.
    #[error("policy '{policy}' has no parameter '{key}'; its parameters: {takes}")]
    UnknownKey {
        /// The policy's name.
        policy: &'static str,
        /// What was given.
        key: String,
        /// What the policy takes.
        takes: &'static str,
    },
    /// A value of the wrong kind.
    #[error("policy parameter {key}={value}: expected {expected}")]
    BadValue {
        /// The parameter.
        key: &'static str,
        /// What was given.
        value: String,
        /// What would be right.
        expected: &'static str,
    },
    /// Fixed allocation without speeds.
    #[error(
        "policy 'fta' needs each worker's mean task time: --policy fta:means=0.1/0.2/0.4 (any unit, worker 1 first)"
    )]
    MeansUnknown,
}

/// The parameters given to a policy; each is taken once, and what is left over is an error.
#[derive(Debug)]
pub struct Arguments<'a> {
    given: BTreeMap<String, String>,
    pub(super) context: &'a PolicyContext,
}

impl<'a> Arguments<'a> {
    pub(super) fn parse(text: &str, context: &'a PolicyContext) -> Result<Self, PolicyError> {
        let mut given = BTreeMap::new();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| PolicyError::NotKeyValue(pair.into()))?;
            if given.insert(key.trim().to_owned(), value.trim().to_owned()).is_some() {
                return Err(PolicyError::Twice(key.into()));
            }
        }
        Ok(Self { given, context })
    }

    /// A positive, finite number.
    pub(super) fn positive(&mut self, key: &'static str) -> Result<Option<f64>, PolicyError> {
        self.take(key, "a positive number", parse_positive)
    }

    /// Positive, finite numbers, separated by `/`.
    pub(super) fn positive_list(&mut self, key: &'static str) -> Result<Option<Vec<f64>>, PolicyError> {
        self.take(key, "positive numbers separated by '/', worker 1 first", |value| {
            value.split('/').map(parse_positive).collect()
        })
    }

    /// `preset=printed|published-runs`; printed if not given.
    pub(super) fn preset(&mut self) -> Result<Preset, PolicyError> {
        let preset = self.take("preset", "'printed' or 'published-runs'", |value| match value {
            "printed" => Some(Preset::Printed),
            "published-runs" => Some(Preset::PublishedRuns),
            _ => None,
        })?;
        Ok(preset.unwrap_or(Preset::Printed))
    }

    pub(super) fn into_first_left(self) -> Option<String> {
        self.given.into_keys().next()
    }

    fn take<T>(
        &mut self,
        key: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, PolicyError> {
        let Some(value) = self.given.remove(key) else { return Ok(None) };
        parse(&value).map(Some).ok_or(PolicyError::BadValue { key, value, expected })
    }
}

fn parse_positive(value: &str) -> Option<f64> {
    value.trim().parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}
