//! Tests of the registry, and a helper for those of policies.

use std::sync::Arc;

use super::*;
use ata_scheduler::{Decision, LinkTimes, Round, SchedulerRng, Truth, WorkerStatistics};
use ata_types::{Iteration, WorkerId};
use rand::SeedableRng;

pub(crate) fn built(text: &str) -> Box<dyn Policy> {
    build_policy(text, &PolicyContext::default()).unwrap()
}

/// Returns the decision of `policy` in iteration `iteration` for workers with these (K_i, T_i).
pub(crate) fn decide(policy: &mut dyn Policy, iteration: u64, budget: u64, observed: &[(u64, f64)]) -> Decision {
    let statistics: Vec<_> = observed
        .iter()
        .map(|&(observed, total_s)| WorkerStatistics { observed, total_s, ..Default::default() })
        .collect();
    let workers: Vec<_> = (0..observed.len()).map(WorkerId::from_slot).collect();
    let round = Round {
        iteration: Iteration(iteration),
        budget,
        workers: &workers,
        statistics: &statistics,
        fuses: &[],
        links: &LinkTimes::default(),
    };
    policy.decide(&round, &mut SchedulerRng::seed_from_u64(5))
}

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
    let context = PolicyContext { workers: Some(5), ..PolicyContext::default() };
    for (text, message) in [
        (
            "atta",
            "unknown policy 'atta' (did you mean 'ata'?): expected one of ata, ata-empirical, ata-auto, uta, fta, ema",
        ),
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
        ("k-sync:k=6", "k=6: there are only 5 workers"),
        ("adaptive-k-sync:k=3,k_max=2", "k = 3 is above k_max = 2"),
        ("gradient-coding:stragglers=6", "stragglers=6: there are only 5 workers"),
        ("cmab-kl:r=1/2,at=5/9", "2 values of r need 1 changes in 'at', found 2"),
        ("cmab-kl:at=9/5", "ascending"),
        ("cmab-kl:r=1/2,lr_decay=0.5", "fixed r"),
        ("cmab-kl:r=6", "r=6: there are only 5 workers"),
        ("cmab-kl:r=0", "whole numbers of at least 1"),
        ("cmab-kl:r=1.5", "whole numbers of at least 1"),
    ] {
        let error = build_policy(text, &context).err().expect(text).to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}
