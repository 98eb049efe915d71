//! The state that is saved at any moment, and the continuation of a run from it.

use std::collections::{BTreeMap, VecDeque};

use ata_policies::POLICIES;
use ata_scheduler::{AbortReason, Effect, Engine, EngineConfig, Event, FinishReason, Limits, SavedEngine, StepOutcome};
use ata_types::Lease;

use crate::engine::support::{self, Cluster, assigned, begun, is_aborted, is_start, policy};

fn config() -> EngineConfig {
    EngineConfig { iterations: 6, rest_s: 1.0, ..support::config(7, 3) }
}

fn restored(config: EngineConfig, name: &str, saved: &SavedEngine) -> Cluster {
    let saved = serde_json::from_str(&serde_json::to_string(saved).unwrap()).unwrap();
    Cluster::of(Engine::restore(config, policy(name), saved).unwrap())
}

/// Lets three workers compute until the run is over or `results` have arrived. Returns the tasks of each committed iteration.
fn compute(cluster: &mut Cluster, results: usize) -> BTreeMap<u64, u64> {
    let mut held: VecDeque<(u32, Lease)> = cluster.join_all(3).into();
    let (mut steps, mut left) = (BTreeMap::new(), results);
    while left > 0 {
        let Some((number, lease)) = held.pop_front() else {
            // There is no timeout if the run was over before.
            let Some(at_s) = cluster.engine.poll_timeout() else { break };
            cluster.now_s = at_s;
            held.extend(assigned(&cluster.timeout()));
            continue;
        };
        left -= 1;
        cluster.now_s += 0.25;
        let Ok(mut effects) = cluster.done(number, &lease) else { continue };
        let mut at = 0;
        while at < effects.len() {
            if let Effect::Step { iteration, tasks, .. } = &effects[at] {
                steps.insert(iteration.number(), tasks.iter().map(|range| range.count).sum());
                let committed = cluster.commit(iteration.number());
                effects.extend(committed);
            }
            at += 1;
        }
        held.extend(assigned(&effects));
        if effects.iter().any(|effect| matches!(effect, Effect::Finish { .. })) {
            break;
        }
    }
    steps
}

/// A run that is saved after any number of results, within an iteration or between two, continues with the first iteration
/// that was not committed, and takes all of its tasks again.
#[test]
fn an_iteration_under_way_begins_again() {
    for entry in POLICIES.entries() {
        let takes_all = compute(&mut Cluster::with(entry.name, config()), usize::MAX)
            .values()
            .all(|tasks| *tasks == config().budget);
        for results in 0..30 {
            let mut cluster = Cluster::with(entry.name, config());
            let before = compute(&mut cluster, results);
            let saved = cluster.engine.save();
            let next = before.keys().max().map_or(1, |last| last + 1);
            assert_eq!(saved.next_iteration().number(), next, "{}: {results} results", entry.name);
            let mut again = restored(config(), entry.name, &saved);
            let after = compute(&mut again, usize::MAX);
            let expected = if next > config().iterations { 1..1 } else { next..config().iterations + 1 };
            assert!(after.keys().copied().eq(expected), "{}: {results} results: {after:?}", entry.name);
            let all = after.values().all(|tasks| *tasks == config().budget);
            assert!(all || !takes_all, "{}: {results} results: {after:?}", entry.name);
        }
    }
}

/// A run that is over reports so at once, without any worker, and is not trained further.
#[test]
fn a_run_that_is_over_stays_so() {
    let end = |limits: Limits| {
        let config = EngineConfig { budget: 1, iterations: 4, min_workers: 1, limits, ..config() };
        let mut cluster = Cluster::with("uta", config.clone());
        let mut effects = cluster.join(1);
        for iteration in 1.. {
            let [(number, lease)] = assigned(&effects)[..] else { break };
            cluster.now_s += 1.0;
            cluster.done(number, &lease).unwrap();
            effects = cluster.commit_with(iteration, StepOutcome { loss: Some(0.5), ..StepOutcome::default() });
        }
        (config, cluster.engine.save())
    };
    let limit = Limits { target_loss: Some(0.6), ..Limits::default() };
    for (limits, reason) in [(Limits::default(), FinishReason::Iterations), (limit, FinishReason::TargetLoss)] {
        let (config, saved) = end(limits);
        assert_eq!(saved.finished(&config), Some(reason));
        let mut same = Cluster::of(restored(config.clone(), "uta", &saved).engine);
        // `Cluster::of` has sent Proceed: the engine is over, and a second one changes nothing.
        assert_eq!((same.tell(Event::Proceed), same.join(1)), (vec![], vec![]));
        assert_eq!(same.engine.save(), saved);

        let other = Limits { target_loss: Some(0.1), ..limits };
        let longer = EngineConfig { iterations: 9, limits: other, ..config };
        assert_eq!(saved.finished(&longer), None);
        let mut longer = restored(longer, "uta", &saved);
        assert!(longer.join(1).iter().any(|effect| is_start(effect, saved.next_iteration().number())));
    }
}

/// A restored engine refuses the name of an unknown worker among those that have delivered a result.
#[test]
fn delivered_results_are_checked() {
    let (mut cluster, leases) = begun("uta", EngineConfig { budget: 2, min_workers: 2, ..config() });
    cluster.done(leases[0].0, &leases[0].1).unwrap();
    let mut saved = serde_json::to_value(cluster.engine.save()).unwrap();
    assert_eq!(saved["proven"], serde_json::json!([leases[0].0]));
    saved["proven"] = serde_json::json!([3]);
    let refused = Engine::restore(config(), policy("uta"), serde_json::from_value(saved).unwrap()).err().unwrap();
    assert!(refused.to_string().contains("never seen"));
}

/// A run that must end while a step is being taken ends after it: the saved state contains that step.
#[test]
fn a_step_under_way_is_committed_before_the_run_is_aborted() {
    let config = EngineConfig { budget: 1, min_workers: 4, ..config() };
    let (mut cluster, leases) = begun("asgd", config);
    cluster.done(1, &leases[0].1).unwrap();
    // No other worker has delivered anything.
    cluster.lose(1);
    for (number, lease) in &leases[1..] {
        assert!(!is_aborted(&cluster.fail(*number, lease)));
    }
    assert_eq!(cluster.engine.save().next_iteration().number(), 1);
    let effects = cluster.commit(1);
    let Some(Effect::Abort { reason: AbortReason::TasksFailed { .. } }) = effects.last() else { panic!("{effects:?}") };
    assert_eq!(cluster.engine.save().next_iteration().number(), 2);
}
