//! The policies by name. Each has its entry in its own file.

use super::entry::{PolicyContext, PolicyEntry, PolicyKind};
use super::{Arguments, Policy, PolicyError};

/// Every policy of this crate.
pub const POLICIES: &[PolicyEntry] = &[
    super::ata::ENTRY,
    super::ata_empirical::ENTRY,
    super::ata_auto::ENTRY,
    super::uta::ENTRY,
    super::fta::ENTRY,
    super::ema::ENTRY,
    super::proportional::ENTRY,
    super::controller::ENTRY,
    super::affine::ENTRY,
    super::pull::ENTRY,
    super::gradient_coding::ENTRY,
    super::gta::ENTRY,
    super::k_sync::ENTRY,
    super::adaptive_k_sync::ENTRY,
    super::cmab_lcb::ENTRY,
    super::cmab_kl::ENTRY,
    super::successive::ENTRY,
    super::cmab_oracle::ENTRY,
    super::clairvoyant::ENTRY,
    super::asgd::ENTRY,
    super::ringmaster::ENTRY,
];

/// Builds the policy written `NAME` or `NAME:key=value,…`.
pub fn build_policy(text: &str, context: &PolicyContext) -> Result<Box<dyn Policy>, PolicyError> {
    let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
    let entry = POLICIES
        .iter()
        .find(|entry| entry.name == name.trim())
        .ok_or_else(|| PolicyError::UnknownPolicy { name: name.trim().to_owned(), known: known_policies() })?;
    let mut arguments = Arguments::parse(parameters, context)?;
    let policy = (entry.build)(&mut arguments)?;
    match arguments.into_first_left() {
        Some(key) => Err(PolicyError::UnknownKey { policy: entry.name, key, takes: entry.parameters }),
        None => Ok(policy),
    }
}

/// The kind of a policy, written as for [`build_policy`]; one that is not in [`POLICIES`] counts as a barrier policy.
pub fn policy_kind(text: &str) -> PolicyKind {
    let name = text.split(':').next().unwrap_or_default().trim();
    POLICIES.iter().find(|entry| entry.name == name).map_or(PolicyKind::Barrier, |entry| entry.kind)
}

fn known_policies() -> String {
    let names: Vec<&str> = POLICIES.iter().map(|entry| entry.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::policy::Truth;

    #[test]
    fn every_policy_is_built_by_its_name() {
        let truth = Some(Arc::new(vec![1.0]) as Arc<dyn Truth>);
        let context = PolicyContext { means: Some(vec![1.0]), workers: Some(1), truth };
        for entry in POLICIES {
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
