//! Parses the parameters of a policy, written `NAME:key=value,…`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Truth;
use super::entry::PolicyContext;

/// The reason why a policy cannot be built as specified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No policy has this name.
    #[error("unknown policy '{name}': expected one of {known}")]
    UnknownPolicy {
        /// The name that was given.
        name: String,
        /// The names of all policies.
        known: String,
    },
    /// A parameter is not of the form `key=value`.
    #[error("policy parameter '{0}' is not of the form key=value")]
    NotKeyValue(String),
    /// A parameter is given twice.
    #[error("policy parameter '{0}' is given twice")]
    Twice(String),
    /// The policy has no such parameter.
    #[error("policy '{policy}' has no parameter '{key}'; its parameters: {takes}")]
    UnknownKey {
        /// The policy's name.
        policy: &'static str,
        /// The parameter that was given.
        key: String,
        /// The parameters that the policy takes.
        takes: &'static str,
    },
    /// A parameter has an invalid value.
    #[error("policy parameter {key}={value}: expected {expected}")]
    BadValue {
        /// The parameter.
        key: &'static str,
        /// The value that was given.
        value: String,
        /// What is expected.
        expected: &'static str,
    },
    /// Parameters contradict each other.
    #[error("policy parameters: {reason}")]
    Conflict {
        /// The parameters that contradict each other, and the reason.
        reason: String,
    },
    /// A parameter asks for more workers than there are.
    #[error("policy parameter {key}={value}: there are only {workers} workers")]
    TooFewWorkers {
        /// The parameter.
        key: &'static str,
        /// The value that was given.
        value: u64,
        /// The number of workers, n.
        workers: u32,
    },
    /// An oracle was specified without speeds.
    #[error(
        "policy '{0}' needs each worker's mean task time: --policy {0}:means=0.1/0.2/0.4 (any unit, worker 1 first)"
    )]
    MeansUnknown(&'static str),
    /// An oracle was requested outside a simulation.
    #[error("policy '{0}' knows what only a simulation knows: use `ata simulate`")]
    OnlyInSimulation(&'static str),
}

/// The parameters given to a policy. Each is taken once; parameters that are left over are an error.
#[derive(Debug)]
pub struct Arguments<'a> {
    given: BTreeMap<String, String>,
    context: &'a PolicyContext,
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

    /// Returns whether a parameter is given and was not taken yet.
    pub fn has(&self, key: &str) -> bool {
        self.given.contains_key(key)
    }

    /// Takes a positive, finite number.
    pub fn positive(&mut self, key: &'static str) -> Result<Option<f64>, PolicyError> {
        self.take(key, "a positive number", parse_positive)
    }

    /// Takes a number above 0 and at most 1.
    pub fn fraction(&mut self, key: &'static str) -> Result<Option<f64>, PolicyError> {
        self.take(key, "a number above 0 and at most 1", |value| parse_positive(value).filter(|number| *number <= 1.0))
    }

    /// Takes a whole number of at least 1.
    pub fn count(&mut self, key: &'static str) -> Result<Option<u64>, PolicyError> {
        self.take(key, "a whole number of at least 1", parse_count)
    }

    /// Takes whole numbers of at least 1, separated by `/`.
    pub fn count_list(&mut self, key: &'static str) -> Result<Option<Vec<u64>>, PolicyError> {
        self.take(key, "whole numbers of at least 1, separated by '/'", |value| {
            value.split('/').map(parse_count).collect()
        })
    }

    /// Takes `on` or `off`.
    pub fn switch(&mut self, key: &'static str) -> Result<Option<bool>, PolicyError> {
        self.take(key, "'on' or 'off'", |value| match value {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        })
    }

    /// Refuses a value above the number of workers, if that number is known.
    pub fn at_most_workers(&self, key: &'static str, value: Option<u64>) -> Result<(), PolicyError> {
        match (value, self.context.workers) {
            (Some(value), Some(workers)) if value > u64::from(workers) => {
                Err(PolicyError::TooFewWorkers { key, value, workers })
            }
            _ => Ok(()),
        }
    }

    /// Takes each worker's mean task time: `means`, or else what the caller knows. `policy` is the name of the policy.
    pub fn means(&mut self, policy: &'static str) -> Result<Vec<f64>, PolicyError> {
        let expected = "positive numbers separated by '/', worker 1 first";
        let given = self.take("means", expected, |value| value.split('/').map(parse_positive).collect())?;
        // A law may have no finite mean: that of a lognormal law overflows long before its median does.
        let usable = |means: &Vec<f64>| !means.is_empty() && means.iter().all(|mean| mean.is_finite() && *mean > 0.0);
        given.or_else(|| self.context.means.clone()).filter(usable).ok_or(PolicyError::MeansUnknown(policy))
    }

    /// Returns the true task times. `policy` is the name of the policy.
    pub fn truth(&self, policy: &'static str) -> Result<Arc<dyn Truth>, PolicyError> {
        self.context.truth.clone().ok_or(PolicyError::OnlyInSimulation(policy))
    }

    /// Takes a parameter if it has exactly this value, such as a keyword in place of a number.
    pub fn accept(&mut self, key: &str, value: &str) -> bool {
        let found = self.given.get(key).is_some_and(|given| given == value);
        if found {
            self.given.remove(key);
        }
        found
    }

    pub(super) fn into_first_left(self) -> Option<String> {
        self.given.into_keys().next()
    }

    /// Returns what the caller knows about the workers.
    pub fn context(&self) -> &'a PolicyContext {
        self.context
    }

    /// Takes a parameter and parses it; an error says what is `expected`.
    pub fn take<T>(
        &mut self,
        key: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, PolicyError> {
        let Some(value) = self.given.remove(key) else { return Ok(None) };
        parse(&value).map(Some).ok_or(PolicyError::BadValue { key, value, expected })
    }
}

fn parse_count(value: &str) -> Option<u64> {
    // A larger number is hardly meant as a count, and sums of counts would overflow.
    value.trim().parse().ok().filter(|number: &u64| (1..=1 << 32).contains(number))
}

fn parse_positive(value: &str) -> Option<f64> {
    value.trim().parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}
