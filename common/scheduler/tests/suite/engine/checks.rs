//! Spot checks and expulsion.

use ata_scheduler::{AbortReason, Effect, EngineConfig, Event, Verify};
use ata_types::{CollectionId, Lease, MachineId, TaskOutcome, TaskRange};

use crate::engine::support::{
    Cluster, assigned, begun, holders, indices, is_aborted, lease_of, outcomes, steps, worker,
};

const ALL: Verify = Verify { share: 1.0, secret: 7 };

fn config(budget: u64, min_workers: usize) -> EngineConfig {
    EngineConfig { budget, iterations: 9, min_workers, rest_s: 1.0, expel_after: Some(3), ..EngineConfig::default() }
}

fn checked(min_workers: usize) -> EngineConfig {
    EngineConfig { verify: Some(ALL), ..config(1, min_workers) }
}

fn join_on_one_machine(cluster: &mut Cluster, workers: u32) -> Vec<(u32, Lease)> {
    (1..=workers).flat_map(|number| assigned(&cluster.join_on(number, MachineId(9)))).collect()
}

fn pairs(effects: &[Effect]) -> Vec<(TaskRange, CollectionId, CollectionId)> {
    let pair = |effect: &Effect| match *effect {
        Effect::Compare { tasks, first, second } => Some((tasks, first, second)),
        _ => None,
    };
    effects.iter().filter_map(pair).collect()
}

fn say(cluster: &mut Cluster, pair: (TaskRange, CollectionId, CollectionId), agree: bool) -> Vec<Effect> {
    let (tasks, first, second) = pair;
    cluster.tell(Event::Compared { tasks, first, second, agree })
}

#[test]
fn two_workers_compute_what_is_checked_and_one_result_is_taken() {
    let (mut cluster, leases) = begun("uta", checked(2));
    assert_eq!(indices(&leases), [0, 0], "the same task for both");
    let [(first, one), (second, two)] = leases[..] else { panic!("{leases:?}") };
    assert_ne!(first, second);
    assert_eq!(cluster.done(first, &one).unwrap(), [], "it is not taken before it is confirmed");
    let pair = pairs(&cluster.done(second, &two).unwrap())[0];
    assert_eq!(pair, (one.tasks, one.own.unwrap(), two.own.unwrap()));
    let effects = say(&mut cluster, pair, true);
    assert_eq!(outcomes(&effects), [(second, TaskOutcome::Ignored)]);
    assert_eq!(steps(&effects), [(1, vec![TaskRange { first: 0, count: 1 }])]);
    assert!(say(&mut cluster, pair, true).is_empty(), "an answer counts once");
}

/// Results are compared once both are delivered. If one is not, because its worker is lost or its collection fails, another worker is
/// asked.
#[test]
fn a_result_that_is_not_delivered_is_replaced() {
    for (fails, reports) in [(false, true), (true, true), (true, false)] {
        let (mut cluster, leases) = begun("uta", checked(3));
        let [(first, one), (second, two)] = leases[..] else { panic!("{leases:?}") };
        assert_eq!(cluster.computed(first, &one).unwrap(), []);
        if reports {
            assert_eq!(cluster.computed(second, &two).unwrap(), []);
        }
        assert_eq!(cluster.deliver_own(first, &one), []);
        let effects = if fails { cluster.fail_own(second, &two) } else { cluster.lose(second) };
        let [(third, three)] = assigned(&effects)[..] else { panic!("a third worker is asked: {effects:?}") };
        assert!(third != first && third != second && three.tasks == one.tasks);
        assert_eq!(cluster.deliver_own(second, &two), [], "too late");
        cluster.computed(third, &three).unwrap();
        let pair = pairs(&cluster.deliver_own(third, &three))[0];
        assert_eq!((Some(pair.1), Some(pair.2)), (one.own, three.own));
        assert_eq!(steps(&say(&mut cluster, pair, true)).len(), 1);
    }
}

/// The third worker decides; the byzantine one rests, and others get the tasks that it holds.
#[test]
fn a_third_worker_decides() {
    let (mut cluster, leases) = begun("uta", checked(3));
    let [(correct, one), (byzantine, two)] = leases[..] else { panic!("{leases:?}") };
    cluster.done(byzantine, &two).unwrap();
    let pair = pairs(&cluster.done(correct, &one).unwrap())[0];
    let third = assigned(&say(&mut cluster, pair, false));
    let [(witness, three)] = third[..] else { panic!("{third:?}") };
    assert!(witness != correct && witness != byzantine && three.tasks == one.tasks);
    // Its result is compared with the first, which differs, and then with the second.
    let pair = pairs(&cluster.done(witness, &three).unwrap())[0];
    assert_eq!((Some(pair.1), Some(pair.2)), (two.own, three.own));
    let pair = pairs(&say(&mut cluster, pair, false))[0];
    assert_eq!((Some(pair.1), Some(pair.2)), (one.own, three.own));
    let effects = say(&mut cluster, pair, true);
    assert_eq!(outcomes(&effects), [(byzantine, TaskOutcome::Mismatched), (witness, TaskOutcome::Ignored)]);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Rest { worker, .. } if worker.number() == byzantine)));
    assert_eq!(steps(&effects).len(), 1);
}

/// A byzantine machine does not confirm itself under other names, neither at first nor once its results are found to differ.
#[test]
fn a_machine_does_not_confirm_itself() {
    let mut cluster = Cluster::with("uta", checked(4));
    let mut leases = join_on_one_machine(&mut cluster, 3);
    leases.extend(assigned(&cluster.join(4)));
    let [(other, two)] = leases.extract_if(.., |(number, _)| *number == 4).collect::<Vec<_>>()[..] else {
        panic!("{leases:?}: the only other machine confirms")
    };
    let [(first, one)] = leases[..] else { panic!("{leases:?}") };
    cluster.done(first, &one).unwrap();
    let pair = pairs(&cluster.done(other, &two).unwrap())[0];
    let effects = say(&mut cluster, pair, false);
    assert_eq!(outcomes(&effects), [(first, TaskOutcome::Disputed), (other, TaskOutcome::Disputed)]);
    let again = assigned(&effects);
    assert!(again.iter().any(|(number, _)| *number == other), "{again:?}: begun anew, by both machines");
    assert_eq!(again.len(), 2);
}

/// A machine does not outvote another machine that has answered and rests after a failure since.
#[test]
fn a_machine_does_not_outvote_one_that_has_failed() {
    let mut cluster = Cluster::with("uta", checked(3));
    let mut leases = join_on_one_machine(&mut cluster, 2);
    leases.extend(assigned(&cluster.join(3)));
    let [(first, one), (second, two)] = leases[..] else { panic!("{leases:?}") };
    cluster.done(first, &one).unwrap();
    let pair = pairs(&cluster.done(second, &two).unwrap())[0];
    cluster.tell(Event::Violation { worker: worker(3) });
    let effects = say(&mut cluster, pair, false);
    assert_eq!(outcomes(&effects), [(first, TaskOutcome::Disputed), (second, TaskOutcome::Disputed)]);
}

/// With two byzantine workers that answer in different ways, five workers are enough to find the two that agree.
#[test]
fn two_byzantine_do_not_outvote_the_correct() {
    let (mut cluster, mut out) = begun("uta", checked(5));
    let byzantine = [out[0].0, out[1].0];
    let mut mismatched = Vec::new();
    let mut waiting: Vec<(TaskRange, CollectionId, CollectionId)> = Vec::new();
    let mut holders = std::collections::BTreeMap::new();
    while mismatched.is_empty() {
        let effects = if let Some(pair) = waiting.pop() {
            let differs = |collection| byzantine.contains(&holders[&Some(collection)]);
            say(&mut cluster, pair, !differs(pair.1) && !differs(pair.2))
        } else {
            let (number, lease) = out.remove(0);
            holders.insert(lease.own, number);
            cluster.done(number, &lease).unwrap()
        };
        out.extend(assigned(&effects));
        waiting.extend(pairs(&effects));
        mismatched =
            outcomes(&effects).into_iter().filter(|(_, outcome)| *outcome == TaskOutcome::Mismatched).collect();
    }
    assert_eq!(mismatched.iter().map(|(number, _)| *number).collect::<Vec<_>>(), byzantine);
}

/// With two workers it is unknown which one is wrong: both get a strike, and if they differ again, the run ends.
#[test]
fn two_that_disagree_are_both_struck() {
    let (mut cluster, mut leases) = begun("uta", checked(2));
    for round in 1..=2 {
        let [(a, one), (b, two)] = leases[..] else { panic!("{leases:?}") };
        cluster.done(a, &one).unwrap();
        let pair = pairs(&cluster.done(b, &two).unwrap())[0];
        let effects = say(&mut cluster, pair, false);
        assert_eq!(outcomes(&effects), [(a, TaskOutcome::Disputed), (b, TaskOutcome::Disputed)]);
        leases = assigned(&effects);
        assert_eq!(is_aborted(&effects), round == 2, "{effects:?}");
    }
}

/// Each lease of a share is drawn independently, with the requested probability, and the secret determines which.
#[test]
fn about_the_share_asked_for_is_checked() {
    let copies = |share, secret| {
        let verify = Some(Verify { share, secret });
        let (_, leases) = begun("uta", EngineConfig { verify, ..config(4096, 4096) });
        let mut indices = indices(&leases);
        indices.dedup();
        assert_eq!(indices.len(), 4096, "every task is assigned");
        leases.len() - 4096
    };
    assert_eq!(copies(0.0, 1), 0);
    assert!((150..260).contains(&copies(0.05, 1)), "{}", copies(0.05, 1));
    assert_ne!(copies(0.05, 1), copies(0.05, 2));
    assert_eq!(copies(1.0, 1), 4096);
}

/// Checks require it to be known which worker computes a task.
#[test]
fn strangers_do_not_race_under_checks() {
    let (cluster, _) = begun("ata-auto", EngineConfig { verify: Some(ALL), ..config(6, 3) });
    assert_eq!(cluster.decision().allocation, [2, 2, 2]);
    let mut racing = Cluster::with("gta", EngineConfig { verify: Some(ALL), ..config(6, 1) });
    let effects = racing.join(1);
    assert!(matches!(&effects[..], [Effect::Abort { reason: AbortReason::BadDecision { .. } }]), "{effects:?}");
}

/// A worker that fails repeatedly without a result in between is expelled, and its tasks go to others.
#[test]
fn failures_in_a_row_expel() {
    let (mut cluster, mut leases) = begun("uta", config(3, 3));
    for strike in 1..=3 {
        let lease = lease_of(&leases, 2);
        let effects = cluster.fail(2, &lease);
        let expelled = Effect::Expel { worker: worker(2), strikes: 3, mismatches: 0 };
        assert_eq!(effects.contains(&expelled), strike == 3, "{effects:?}");
        let retried = assigned(&effects);
        assert_eq!(indices(&retried), [lease.tasks.first], "its task goes to another");
        // The others finish the iteration.
        leases.retain(|(number, _)| *number != 2);
        cluster.done_all(&[leases, retried].concat());
        cluster.now_s += 9.0;
        cluster.timeout();
        leases = assigned(&cluster.commit(strike));
    }
    assert_eq!(cluster.engine.present().count(), 2);
}

/// The operator ends a rest and clears a worker of its failures: it gets work at once.
#[test]
fn a_forgiven_worker_gets_work() {
    let (mut cluster, mut leases) = begun("uta", config(3, 3));
    let failed = lease_of(&leases, 2);
    assert!(cluster.engine.is_clear(worker(2)));
    let retried = assigned(&cluster.fail(2, &failed));
    assert!(!cluster.engine.is_clear(worker(2)));
    leases.retain(|(number, _)| *number != 2);
    cluster.tell(Event::Forgiven { worker: worker(2) });
    // A number that no worker has had changes nothing.
    cluster.tell(Event::Forgiven { worker: worker(99) });
    assert!(cluster.engine.is_clear(worker(2)));
    cluster.done_all(&[leases, retried].concat());
    assert_eq!(holders(&assigned(&cluster.commit(1))), [1, 2, 3]);
}

/// A result that waits for a comparison may turn out to be wrong.
#[test]
fn a_worker_with_a_result_under_check_is_not_clear() {
    let (mut cluster, leases) = begun("uta", checked(2));
    let (first, lease) = leases[0];
    cluster.done(first, &lease).unwrap();
    cluster.lose(first);
    assert!(!cluster.engine.is_clear(worker(first)));
}

/// A worker that has delivered results, and comes back from another machine, has delivered none from there.
#[test]
fn results_of_another_machine_prove_nothing() {
    let [here, there] = [71, 72].map(MachineId);
    for (from, rests) in [(here, false), (there, true)] {
        let mut cluster = Cluster::with("uta", config(2, 2));
        let leases = [cluster.join_on(1, here), cluster.join_on(2, there)].concat();
        cluster.done_all(&assigned(&leases));
        cluster.tell(Event::Violation { worker: worker(2) });
        cluster.lose(2);
        cluster.lose(1);
        let effects = cluster.join_on(1, from);
        assert_eq!(effects.iter().any(|effect| matches!(effect, Effect::Rest { .. })), rests, "{effects:?}");
    }
}

/// A result in between resets failures, but not mismatches.
#[test]
fn violations_count_even_during_a_rest() {
    let (mut cluster, leases) = begun("uta", config(2, 2));
    let violation = Event::Violation { worker: worker(2) };
    cluster.tell(violation);
    cluster.tell(violation);
    cluster.done(2, &lease_of(&leases, 2)).unwrap();
    cluster.deliver(2);
    cluster.tell(violation);
    cluster.tell(violation);
    assert_eq!(cluster.engine.present().count(), 2, "its result forgave the first two");
    let effects = cluster.tell(violation);
    assert!(matches!(effects[..], [Effect::Expel { strikes: 3, mismatches: 0, .. }]), "{effects:?}");
    assert!(cluster.tell(violation).is_empty(), "it is gone");
}
