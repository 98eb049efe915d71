//! The registry of policies by name. Each has its entry in its own file.

use std::fmt;
use std::sync::Arc;

use super::{Arguments, Policy, PolicyError};
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
        match arguments.into_first_left() {
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
