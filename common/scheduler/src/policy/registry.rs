//! The policies by name.

use super::{Arguments, Ata, AtaEmpirical, Fta, Gta, Policy, PolicyError, Uta};

/// What the caller knows that a policy may fall back on.
#[derive(Clone, Debug, Default)]
pub struct PolicyContext {
    /// Each worker's mean task time in any one unit, by slot, if known: positive and finite.
    pub means: Option<Vec<f64>>,
}

/// One policy, as listed and built by name.
#[derive(Debug)]
pub struct PolicyEntry {
    /// As `--policy` takes it.
    pub name: &'static str,
    /// One line for help texts.
    pub about: &'static str,
    /// The parameters it takes, with their defaults.
    pub parameters: &'static str,
    build: fn(&mut Arguments<'_>) -> Result<Box<dyn Policy>, PolicyError>,
}

/// Every policy.
pub const POLICIES: [PolicyEntry; 5] = [
    PolicyEntry {
        name: "ata",
        about: "ATA: lower confidence bounds for a common noise level alpha",
        parameters: "alpha=SECONDS (default: 0.766 x the largest mean seen), preset=printed|published-runs",
        build: |arguments| Ok(Box::new(Ata::from_arguments(arguments)?)),
    },
    PolicyEntry {
        name: "ata-empirical",
        about: "ATA with bounds relative to each worker's mean",
        parameters: "eta=NUMBER (default: 0.766), or preset=printed|published-runs",
        build: |arguments| Ok(Box::new(AtaEmpirical::from_arguments(arguments)?)),
    },
    PolicyEntry {
        name: "uta",
        about: "uniform: equal shares, all are waited for",
        parameters: "none",
        build: |_| Ok(Box::new(Uta)),
    },
    PolicyEntry {
        name: "fta",
        about: "fixed: the best allocation for means given by the user",
        parameters: "means=M1/M2/... (default: the means of the emulated task times)",
        build: |arguments| Ok(Box::new(Fta::from_arguments(arguments)?)),
    },
    PolicyEntry {
        name: "gta",
        about: "greedy (Rennala SGD): all compute, the first B gradients are taken",
        parameters: "none",
        build: |_| Ok(Box::new(Gta)),
    },
];

/// Builds the policy written `NAME` or `NAME:key=value,…`.
pub fn build_policy(text: &str, context: &PolicyContext) -> Result<Box<dyn Policy>, PolicyError> {
    let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
    let entry = POLICIES
        .iter()
        .find(|entry| entry.name == name.trim())
        .ok_or_else(|| PolicyError::UnknownPolicy(name.trim().to_owned()))?;
    let mut arguments = Arguments::parse(parameters, context)?;
    let policy = (entry.build)(&mut arguments)?;
    match arguments.into_first_left() {
        Some(key) => Err(PolicyError::UnknownKey { policy: entry.name, key, takes: entry.parameters }),
        None => Ok(policy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_built_by_its_name() {
        let context = PolicyContext { means: Some(vec![1.0]) };
        for entry in POLICIES {
            assert_eq!(build_policy(entry.name, &context).unwrap().name(), entry.name);
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, message) in [
            ("atta", "unknown policy 'atta': expected one of ata, ata-empirical, uta, fta, gta"),
            ("", "unknown policy ''"),
            ("ata:alpha", "'alpha' is not of the form key=value"),
            ("ata:alpha=1,alpha=2", "'alpha' is given twice"),
            ("ata:alpha=-1", "alpha=-1: expected a positive number"),
            ("ata:alpha=NaN", "expected a positive number"),
            ("ata:preset=mine", "expected 'printed' or 'published-runs'"),
            ("uta:alpha=1", "policy 'uta' has no parameter 'alpha'; its parameters: none"),
            ("ata-empirical:preset=published-runs,eta=2", "has no parameter 'eta'"),
            ("fta", "needs each worker's mean"),
            ("fta:means=1/x", "positive numbers separated by '/'"),
        ] {
            let error = build_policy(text, &PolicyContext::default()).err().expect(text).to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
