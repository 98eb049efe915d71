//! The policies that reproduce papers, on the public interface of `ata-scheduler`, and the registry of all policies.
//!
//! Each policy has a file, named as in its paper; `employment` is shared by the bandit paper's policies.

mod adaptive_k_sync;
mod asgd;
mod ata;
mod ata_empirical;
mod clairvoyant;
mod cmab_kl;
mod cmab_lcb;
mod cmab_oracle;
mod employment;
mod fta;
mod gradient_coding;
mod k_sync;
mod ringmaster;
mod successive;
#[cfg(test)]
mod tests;

use ata_scheduler::policy::entries;
use ata_scheduler::{Policy, PolicyContext, PolicyError, Registry};

/// The registry of every policy that ata has.
pub const POLICIES: Registry = Registry(&[
    ata::ENTRY,
    ata_empirical::ENTRY,
    entries::ATA_AUTO,
    entries::UTA,
    fta::ENTRY,
    entries::EMA,
    entries::PROPORTIONAL,
    entries::CONTROLLER,
    entries::AFFINE,
    entries::PULL,
    gradient_coding::ENTRY,
    entries::GTA,
    k_sync::ENTRY,
    adaptive_k_sync::ENTRY,
    cmab_lcb::ENTRY,
    cmab_kl::ENTRY,
    successive::ENTRY,
    cmab_oracle::ENTRY,
    clairvoyant::ENTRY,
    asgd::ENTRY,
    ringmaster::ENTRY,
]);

/// Builds the policy written `NAME` or `NAME:key=value,…`.
pub fn build_policy(text: &str, context: &PolicyContext) -> Result<Box<dyn Policy>, PolicyError> {
    POLICIES.build(text, context)
}
