//! The registry of policies by name. Each has its entry in its own file.

use super::entry::{PolicyContext, PolicyEntry, PolicyKind};
use super::{Arguments, Policy, PolicyError};

/// The entries of this crate's policies, for registries that add to them.
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

/// The policies of this crate.
pub const POLICIES: Registry = Registry(&[
    entries::ATA_AUTO,
    entries::UTA,
    entries::EMA,
    entries::PROPORTIONAL,
    entries::CONTROLLER,
    entries::AFFINE,
    entries::PULL,
    entries::GTA,
]);

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
            PolicyError::UnknownPolicy { name: name.trim().to_owned(), known: known.join(", ") }
        })?;
        let mut arguments = Arguments::parse(parameters, context)?;
        let policy = (entry.build)(&mut arguments)?;
        match arguments.into_first_left() {
            Some(key) => Err(PolicyError::UnknownKey { policy: entry.name, key, takes: entry.parameters }),
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
