//! The policies that reproduce papers, on the public interface of `ata-scheduler`, and the registry of all policies.
//!
//! # Layout
//! - `registry`: [`POLICIES`] and [`build_policy`], all policies by name
//! - a file per policy, named as in its paper; `employment`, `kl`: code shared by the bandit paper's policies; `exploration`: code shared
//!   by ATA and ATA-Empirical

mod adaptive_k_sync;
mod asgd;
mod ata;
mod ata_empirical;
mod clairvoyant;
mod cmab_kl;
mod cmab_lcb;
mod cmab_oracle;
mod employment;
mod exploration;
mod fta;
mod gradient_coding;
mod k_sync;
mod kl;
mod registry;
mod ringmaster;
mod successive;
#[cfg(test)]
mod testing;

pub use adaptive_k_sync::AdaptiveKSync;
pub use asgd::Asgd;
pub use ata::Ata;
pub use ata_empirical::AtaEmpirical;
pub use clairvoyant::Clairvoyant;
pub use cmab_kl::CmabKl;
pub use cmab_lcb::CmabLcb;
pub use cmab_oracle::CmabOracle;
pub use fta::Fta;
pub use gradient_coding::GradientCoding;
pub use k_sync::KSync;
pub use registry::{POLICIES, build_policy};
pub use ringmaster::Ringmaster;
pub use successive::Successive;
