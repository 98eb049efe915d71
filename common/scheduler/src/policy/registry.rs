//! The registry of policies by name, and their parameters, written `NAME:key=value,…`. Each policy has its entry in its own file.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::Policy;
use ata_types::{WorkerId, did_you_mean};

/// The entries of this crate's policies, for registries.
pub mod entries {
    pub use super::super::affine::ENTRY as AFFINE;
    pub use super::super::ata_auto::ENTRY as ATA_AUTO;
    pub use super::super::controller::ENTRY as CONTROLLER;
    pub use super::super::ema::ENTRY as EMA;
    pub use super::super::gta::ENTRY as GTA;
    pub use super::super::proportional::ENTRY as PROPORTIONAL;
    pub use super::super::pull::ENTRY as PULL;
    pub use super::super::uta::ENTRY as UTA;
}

/// What the caller knows about the workers, for policies that need it.
#[derive(Clone, Debug, Default)]
pub struct PolicyContext {
    /// Each worker's mean task time in any one unit, by slot, if known: positive and finite.
    pub means: Option<Vec<f64>>,
    /// The number of workers n, if known beforehand.
    pub workers: Option<u32>,
    /// The true task times, which only a simulation knows.
    pub truth: Option<Arc<dyn Truth>>,
}

/// Builds a policy from what `--policy` takes.
pub type PolicyResolver = fn(&str, &PolicyContext) -> Result<Box<dyn Policy>, PolicyError>;

/// The way in which a policy's results make steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// The step waits for all allocated tasks.
    Barrier,
    /// The first results make the step.
    Racing,
    /// Each result makes a step.
    Asynchronous,
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Barrier => "barrier",
            Self::Racing => "racing",
            Self::Asynchronous => "asynchronous",
        })
    }
}

/// A policy, as listed and built by name.
#[derive(Clone, Copy, Debug)]
pub struct PolicyEntry {
    /// The policy's name, as `--policy` takes it.
    pub name: &'static str,
    /// A line for help texts.
    pub about: &'static str,
    /// The parameters it takes, with their defaults.
    pub parameters: &'static str,
    /// The way in which its results make steps.
    pub kind: PolicyKind,
    /// Builds the policy from its parameters.
    pub build: fn(&mut Arguments<'_>) -> Result<Box<dyn Policy>, PolicyError>,
}

/// The true speeds of the workers at the moment when an iteration is about to begin.
pub trait Truth: fmt::Debug + Send + Sync {
    /// Returns the current mean time of the worker's tasks, in seconds; positive and finite.
    fn mean_s(&self, worker: WorkerId) -> f64;

    /// Returns the seconds that the worker's next `tasks` tasks will take, including their assignment, if it is idle now. The value does
    /// not decrease with `tasks`, and is positive and finite for at least one task.
    fn coming_s(&self, worker: WorkerId, tasks: u64) -> f64;
}

/// Constant task times, by [`WorkerId::slot`]; a worker beyond the end counts as the slowest.
impl Truth for Vec<f64> {
    fn mean_s(&self, worker: WorkerId) -> f64 {
        let slowest = || self.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        self.get(worker.slot()).copied().unwrap_or_else(slowest)
    }

    fn coming_s(&self, worker: WorkerId, tasks: u64) -> f64 {
        self.mean_s(worker) * tasks as f64
    }
}

/// Policies by name.
#[derive(Clone, Copy, Debug)]
pub struct Registry(pub &'static [PolicyEntry]);

impl Registry {
    /// Returns the entries, in the order in which they are listed.
    pub fn entries(self) -> &'static [PolicyEntry] {
        self.0
    }

    /// Builds the policy written `NAME` or `NAME:key=value,…`.
    pub fn build(self, text: &str, context: &PolicyContext) -> Result<Box<dyn Policy>, PolicyError> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let entry = self.find(name).ok_or_else(|| {
            let known: Vec<&str> = self.0.iter().map(|entry| entry.name).collect();
            let (name, hint) = (name.trim(), did_you_mean(name, known.iter().copied()));
            PolicyError(format!("unknown policy '{name}'{hint}: expected one of {}", known.join(", ")))
        })?;
        let mut arguments = Arguments::parse(parameters, context)?;
        let policy = (entry.build)(&mut arguments)?;
        match arguments.given.into_keys().next() {
            Some(key) => {
                let PolicyEntry { name, parameters, .. } = entry;
                Err(PolicyError(format!("policy '{name}' has no parameter '{key}'; its parameters: {parameters}")))
            }
            None => Ok(policy),
        }
    }

    /// Returns the kind of a policy, written as for [`Self::build`]; one that is not in the registry counts as a barrier policy.
    pub fn kind(self, text: &str) -> PolicyKind {
        self.find(text.split(':').next().unwrap_or_default()).map_or(PolicyKind::Barrier, |entry| entry.kind)
    }

    fn find(self, name: &str) -> Option<&'static PolicyEntry> {
        self.0.iter().find(|entry| entry.name == name.trim())
    }
}

/// The reason why a policy cannot be built as specified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(String);

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
    fn parse(text: &str, context: &'a PolicyContext) -> Result<Self, PolicyError> {
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
