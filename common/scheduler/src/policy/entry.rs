//! A policy's entry in the registry, written in the policy's own file.

use std::fmt;
use std::sync::Arc;

use super::{Arguments, Policy, PolicyError, Truth};

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
