//! Parses the parameters of a policy, written `NAME:key=value,…`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{PolicyContext, Truth};

/// The reason why a policy cannot be built as specified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(pub(super) String);

impl PolicyError {
    /// Says which parameters contradict each other, and why.
    pub fn conflict(reason: impl fmt::Display) -> Self {
        Self(format!("policy parameters: {reason}"))
    }
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
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| PolicyError(format!("policy parameter '{pair}' is not of the form key=value")))?;
            if given.insert(key.trim().to_owned(), value.trim().to_owned()).is_some() {
                return Err(PolicyError(format!("policy parameter '{key}' is given twice")));
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
                Err(PolicyError(format!("policy parameter {key}={value}: there are only {workers} workers")))
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
        given.or_else(|| self.context.means.clone()).filter(usable).ok_or_else(|| {
            PolicyError(format!(
                "policy '{policy}' needs each worker's mean task time: --policy {policy}:means=0.1/0.2/0.4 (any unit, worker 1 first)"
            ))
        })
    }

    /// Returns the true task times. `policy` is the name of the policy.
    pub fn truth(&self, policy: &'static str) -> Result<Arc<dyn Truth>, PolicyError> {
        self.context.truth.clone().ok_or_else(|| {
            PolicyError(format!("policy '{policy}' knows what only a simulation knows: use `ata simulate`"))
        })
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
        let bad = || PolicyError(format!("policy parameter {key}={value}: expected {expected}"));
        parse(&value).map(Some).ok_or_else(bad)
    }
}

fn parse_count(value: &str) -> Option<u64> {
    // A larger number is hardly meant as a count, and sums of counts would overflow.
    value.trim().parse().ok().filter(|number: &u64| (1..=1 << 32).contains(number))
}

fn parse_positive(value: &str) -> Option<f64> {
    value.trim().parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}
