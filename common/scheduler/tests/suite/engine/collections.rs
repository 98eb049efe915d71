//! Workers that keep their gradients until their sum is collected.

use std::collections::VecDeque;

use ata_scheduler::{Collection, Effect, EngineConfig, Event, StepOutcome};
use ata_types::{CollectionId, Iteration, Lease, TaskOutcome, WorkerId};

use crate::engine::support::{self, Cluster, assigned, begun, holders, indices, lease_of, outcomes, steps, worker};

/// `fta` gives three workers shares of 4, 2 and 1 tasks, each one lease; they compute them in a second.
fn computed() -> (Cluster, Vec<(u32, Lease)>) {
    let config = EngineConfig { budget: 7, iterations: 3, min_workers: 3, rest_s: 1.0, ..EngineConfig::default() };
    let (mut cluster, leases) = begun("fta", config);
    cluster.now_s = 1.0;
    assert_eq!(steps(&cluster.done_all(&leases)).len(), 1, "the step is ordered, and waits for the collections");
    (cluster, leases)
}

fn asked_of(cluster: &Cluster, number: u32) -> CollectionId {
    cluster.collections().iter().find(|asked| asked.worker.number() == number).unwrap().id
}

fn lost(number: u32) -> Event {
    Event::WorkerLost { worker: worker(number) }
}

/// Lets the workers compute the tasks that they were given again; returns the last effects.
fn compute(cluster: &mut Cluster, leases: &[(u32, Lease)]) -> Vec<Effect> {
    cluster.now_s += 1.0;
    cluster.done_all(leases)
}

fn step_committed() -> Event {
    Event::StepCommitted { iteration: Iteration(1), outcome: StepOutcome::default() }
}

#[test]
fn each_worker_is_asked_once_for_all_that_it_holds() {
    let (mut cluster, leases) = begun("fta", support::config(7, 3));
    let expected = |number: u32| Collection {
        worker: worker(number),
        id: CollectionId(u64::from(number)),
        leases: vec![lease_of(&leases, number)],
    };
    let asked: Vec<Collection> = (1..=3).map(expected).collect();
    assert_eq!(cluster.collections(), asked, "before anything is computed");
    cluster.now_s = 1.0;
    compute(&mut cluster, &leases);
    assert_eq!(cluster.collections(), asked);
}

#[test]
fn a_step_applies_its_collections_once_it_is_taken() {
    let (mut cluster, leases) = computed();
    cluster.deliver(2);
    cluster.deliver(1);
    assert_eq!(cluster.tell(lost(1)), [], "a worker lost after delivery costs nothing");
    let effects = cluster.tell(step_committed());
    let applied: Vec<_> = leases.iter().map(|(number, _)| (*number, TaskOutcome::Applied)).collect();
    assert_eq!(outcomes(&effects), applied, "one that was not said to be delivered counts as well");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Committed { .. })));
    assert_eq!(cluster.engine.ledger().results, 3, "vectors");
    assert!(cluster.tell(step_committed()).is_empty(), "a step is committed once");
}

/// Everything is wasted that was computed by a worker that is lost before delivery, or whose collection fails. The latter rests.
#[test]
fn a_worker_that_does_not_deliver_is_replaced() {
    for fails in [false, true] {
        let (mut cluster, leases) = computed();
        cluster.deliver(3);
        let failed = Event::CollectionFailed { worker: worker(1), collection: asked_of(&cluster, 1) };
        let (event, outcome) = if fails { (failed, TaskOutcome::Failed) } else { (lost(1), TaskOutcome::Lost) };
        let effects = cluster.tell(event);
        assert_eq!(outcomes(&effects), [(1, outcome)]);
        let rests = |effect: &Effect| matches!(effect, Effect::Rest { worker, .. } if worker.number() == 1);
        assert_eq!(effects.iter().any(rests), fails, "{effects:?}");
        let again = assigned(&effects);
        assert_eq!(indices(&again), lease_of(&leases, 1).tasks.indices().collect::<Vec<_>>());
        assert!(again.iter().all(|(number, _)| *number != 1));
        assert!(cluster.tell(event).is_empty(), "it happened once");
        assert!(cluster.tell(step_committed()).is_empty(), "the step was taken back");

        assert_eq!(steps(&compute(&mut cluster, &again)).len(), 1, "the step is ordered again");
        let mut expected = [vec![3, 2], holders(&again)].concat();
        expected.sort_unstable();
        assert_eq!(cluster.contributors(), expected, "worker 2 is asked for two sums, worker 1 for nothing");
        cluster.commit(1);
        assert_eq!(cluster.applied_and_wasted(), (7, 4));
        assert_eq!(cluster.engine.ledger().workers[0].tasks_applied, 0);
    }
}

/// Three workers race for a step. Each of those that were first sends one vector. The tasks of a worker that does not deliver it are
/// computed again, and make the same step.
#[test]
fn what_is_lost_of_a_race_is_computed_again() {
    for (policy, overcommit) in [("gta", 0.0), ("k-sync:k=3", 0.0), ("ata-auto", 0.0), ("uta", 0.5)] {
        for fails in [false, true] {
            let config = EngineConfig { budget: 4, min_workers: 3, rest_s: 1.0, overcommit, ..EngineConfig::default() };
            let (mut cluster, leases) = begun(policy, config);
            let mut leases = VecDeque::from(leases);
            let mut step = Vec::new();
            while step.is_empty() {
                let (number, lease) = leases.pop_front().unwrap();
                cluster.now_s += 1.0;
                let effects = cluster.done(number, &lease).unwrap();
                leases.extend(assigned(&effects));
                step = steps(&effects);
            }
            let [first, .., last] = cluster.contributors()[..] else { panic!("two are among the first") };
            let asked = cluster.collections();
            let [lost_one] = &asked.iter().filter(|asked| asked.worker == worker(last)).collect::<Vec<_>>()[..] else {
                panic!("{policy}: one vector each: {asked:?}")
            };
            cluster.deliver(first);
            let failed = Event::CollectionFailed { worker: worker(last), collection: lost_one.id };
            let effects = cluster.tell(if fails { failed } else { lost(last) });
            let outcome = if fails { TaskOutcome::Failed } else { TaskOutcome::Lost };
            assert_eq!(outcomes(&effects), vec![(last, outcome); lost_one.leases.len()]);
            let again = assigned(&effects);
            let tasks: Vec<(u32, Lease)> = lost_one.leases.iter().map(|lease| (last, *lease)).collect();
            assert_eq!(indices(&again), indices(&tasks), "{policy}");
            assert!(again.iter().all(|(number, _)| *number != last));
            assert!(cluster.tell(step_committed()).is_empty(), "the step was taken back");

            assert_eq!(steps(&compute(&mut cluster, &again)), step, "{policy}");
            cluster.commit(1);
            let tasks: u64 = step[0].1.iter().map(|range| range.count).sum();
            assert_eq!(cluster.engine.ledger().tasks_applied, tasks);
            assert_eq!(cluster.engine.ledger().results, cluster.contributors().len() as u64, "{policy}");
        }
    }
}

/// While a step waits, time passes without any work, and workers that join wait for the next iteration.
#[test]
fn a_step_that_waits_leaves_the_engine_idle() {
    let (mut cluster, _) = computed();
    assert_eq!(cluster.engine.poll_timeout(), None);
    assert_eq!(cluster.join(4), []);
    cluster.now_s = 1000.0;
    assert_eq!(cluster.timeout(), []);
    assert_eq!(assigned(&cluster.commit(1)).len(), 4, "worker 4 takes part from now on");
}

#[test]
fn unknown_collections_change_nothing() {
    let (mut cluster, _) = computed();
    let (first, holder): (CollectionId, WorkerId) = (asked_of(&cluster, 1), worker(2));
    for (worker, collection) in [(holder, first), (worker(9), first), (worker(1), CollectionId(99))] {
        assert!(cluster.tell(Event::Delivered { worker, collection }).is_empty());
        assert!(cluster.tell(Event::CollectionFailed { worker, collection }).is_empty());
    }
    assert_eq!(outcomes(&cluster.tell(lost(1))), [(1, TaskOutcome::Lost)], "it was not delivered");
}
