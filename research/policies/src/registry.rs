//! The registry of all policies by name.

use ata_scheduler::policy::entries;
use ata_scheduler::{Policy, PolicyContext, PolicyError, Registry};

/// The registry of every policy that ata has.
pub const POLICIES: Registry = Registry(&[
    crate::ata::ENTRY,
    crate::ata_empirical::ENTRY,
    entries::ATA_AUTO,
    entries::UTA,
    crate::fta::ENTRY,
    entries::EMA,
    entries::PROPORTIONAL,
    entries::CONTROLLER,
    entries::AFFINE,
    entries::PULL,
    crate::gradient_coding::ENTRY,
    entries::GTA,
    crate::k_sync::ENTRY,
    crate::adaptive_k_sync::ENTRY,
    crate::cmab_lcb::ENTRY,
    crate::cmab_kl::ENTRY,
    crate::successive::ENTRY,
    crate::cmab_oracle::ENTRY,
    crate::clairvoyant::ENTRY,
    crate::asgd::ENTRY,
    crate::ringmaster::ENTRY,
]);

/// Builds the policy written `NAME` or `NAME:key=value,…`.
pub fn build_policy(text: &str, context: &PolicyContext) -> Result<Box<dyn Policy>, PolicyError> {
    POLICIES.build(text, context)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use ata_scheduler::Truth;

    #[test]
    fn every_policy_is_built_by_its_name() {
        let truth = Some(Arc::new(vec![1.0]) as Arc<dyn Truth>);
        let context = PolicyContext { means: Some(vec![1.0]), workers: Some(1), truth };
        for entry in POLICIES.entries() {
            assert_eq!(build_policy(entry.name, &context).unwrap().name(), entry.name);
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, message) in [
            ("atta", "unknown policy 'atta': expected one of ata, ata-empirical, ata-auto, uta, fta, ema"),
            ("", "unknown policy ''"),
            ("ata:alpha", "'alpha' is not of the form key=value"),
            ("ata:alpha=1,alpha=2", "'alpha' is given twice"),
            ("ata:alpha=-1", "alpha=-1: expected a positive number"),
            ("ata:alpha=NaN", "expected a positive number"),
            ("ata:preset=mine", "expected 'printed' or 'published-runs'"),
            ("ema:weight=1.5", "weight=1.5: expected a number above 0 and at most 1"),
            ("proportional:weight=0.5,window=9", "either 'weight' or 'window'"),
            ("uta:alpha=1", "policy 'uta' has no parameter 'alpha'; its parameters: none"),
            ("ata-empirical:preset=published-runs,eta=2", "has no parameter 'eta'"),
            ("fta", "needs each worker's mean"),
            ("fta:means=1/x", "positive numbers separated by '/'"),
            ("fta:means=current", "policy 'fta:means=current' knows what only a simulation knows"),
            ("clairvoyant", "policy 'clairvoyant' knows what only a simulation knows: use `ata simulate`"),
        ] {
            let error = build_policy(text, &PolicyContext::default()).err().expect(text).to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
