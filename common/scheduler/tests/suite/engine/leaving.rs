//! Workers that leave: they finish what they have begun, deliver it, and get no more work.

use std::collections::VecDeque;

use ata_scheduler::{Effect, Event, Refusal, Report};
use ata_types::{Lease, TaskOutcome};

use crate::engine::support::{
    Cluster, assigned, begun, config, holders, indices, is_start, lease_of, outcomes, worker,
};

fn leave(cluster: &mut Cluster, number: u32) -> Vec<Effect> {
    cluster.tell(Event::WorkerLeaving { worker: worker(number) })
}

fn left(number: u32) -> Effect {
    Effect::Left { worker: worker(number) }
}

fn deliver(cluster: &mut Cluster, number: u32) -> Vec<Effect> {
    let of_it = cluster.collections().into_iter().filter(|asked| asked.worker == worker(number));
    let delivered = of_it.map(|asked| Event::Delivered { worker: asked.worker, collection: asked.id });
    delivered.flat_map(|event| cluster.tell(event)).collect()
}

/// `fta` gives three workers shares of 4, 2 and 1 tasks, each one lease.
fn three() -> (Cluster, Vec<(u32, Lease)>) {
    let (mut cluster, leases) = begun("fta", config(7, 3));
    cluster.now_s = 1.0;
    (cluster, leases)
}

#[test]
fn what_was_begun_enters_the_step_and_the_next_iteration_goes_without_the_worker() {
    let (mut cluster, leases) = three();
    assert_eq!(leave(&mut cluster, 1), [], "it has a lease");
    assert_eq!(leave(&mut cluster, 1), [], "it may say so twice");
    assert_eq!(cluster.done(1, &lease_of(&leases, 1)), Ok(Vec::new()), "it has a sum to deliver");
    assert_eq!(deliver(&mut cluster, 1), [left(1)]);
    assert_eq!(cluster.lose(1), [], "it is gone");
    cluster.done_all(&leases[1..]);
    let effects = cluster.commit(1);
    assert!(effects.iter().any(|effect| is_start(effect, 2)));
    assert_eq!((cluster.workers(), cluster.applied_and_wasted()), (&[2, 3].map(worker)[..], (7, 0)));
}

#[test]
fn a_lease_that_was_not_begun_goes_to_others_at_once() {
    let (mut cluster, leases) = three();
    let lease = lease_of(&leases, 1);
    assert_eq!(cluster.report(1, lease.id, Report::GivenBack), Err(Refusal::NotHeld(lease.id)), "it does not leave");
    leave(&mut cluster, 1);
    let effects = cluster.report(1, lease.id, Report::GivenBack).unwrap();
    assert_eq!(outcomes(&effects), [(1, TaskOutcome::Cancelled)]);
    let again = assigned(&effects);
    assert_eq!((indices(&again), holders(&again).contains(&1)), (vec![0, 1, 2, 3], false));
    assert_eq!(effects.last(), Some(&left(1)), "it has nothing to deliver");
    cluster.done_all(&[&leases[1..], &again].concat());
    cluster.commit(1);
    assert_eq!(cluster.applied_and_wasted(), (7, 0));
}

/// The worker may break off at any moment: then it is like any other lost worker.
#[test]
fn a_leaving_worker_that_is_lost_is_replaced() {
    for computes in [false, true] {
        let (mut cluster, leases) = three();
        leave(&mut cluster, 1);
        if computes {
            cluster.done(1, &lease_of(&leases, 1)).unwrap();
        }
        let again = assigned(&cluster.lose(1));
        assert_eq!(indices(&again), [0, 1, 2, 3], "{computes}");
        cluster.done_all(&[&leases[1..], &again].concat());
        assert!(cluster.commit(1).iter().any(|effect| is_start(effect, 2)), "{computes}");
    }
}

/// The last worker that is present leaves between two leases. The run waits for another one.
#[test]
fn an_idle_worker_leaves_at_once() {
    for policy in ["fta", "ata-auto", "pull", "asgd"] {
        let mut cluster = Cluster::new(policy, 7, 3);
        cluster.join(1);
        assert_eq!(leave(&mut cluster, 1), [left(1)], "{policy}");
        cluster.join(2);
        assert!(!cluster.join_all(3).is_empty(), "{policy}: the worker may come back");
    }
}

/// A worker leaves in the middle of an iteration, after a result of its own. Whatever the policy, it is asked for its sum at once, gets
/// nothing more, and nothing that it computed is lost.
#[test]
fn no_policy_gives_a_leaving_worker_more_or_loses_a_result() {
    for policy in ["fta", "uta", "ata-auto", "pull", "asgd"] {
        let (mut cluster, leases) = begun(policy, config(12, 3));
        let mut held = VecDeque::from(leases);
        cluster.now_s = 1.0;
        let first = held.remove(held.iter().position(|(number, _)| *number == 1).unwrap()).unwrap();
        let before = cluster.done(first.0, &first.1).unwrap();
        held.extend(assigned(&before));
        let mut effects = leave(&mut cluster, 1);
        // What is begun is finished, and the rest is given back.
        let own: Vec<Lease> = held.iter().filter(|(number, _)| *number == 1).map(|(_, lease)| *lease).collect();
        held.retain(|(number, _)| *number != 1);
        for lease in own.iter().skip(1) {
            effects.extend(cluster.report(1, lease.id, Report::GivenBack).unwrap());
        }
        cluster.now_s = 2.0;
        effects.extend(own.first().into_iter().flat_map(|lease| cluster.done(1, lease).unwrap()));
        effects.extend(deliver(&mut cluster, 1));
        held.extend(assigned(&effects));
        for round in 3..200 {
            let Some((number, lease)) = held.pop_front() else { break };
            cluster.now_s = f64::from(round);
            // Its task may be done by another worker meanwhile.
            let more = cluster.done(number, &lease).unwrap_or_default();
            held.extend(assigned(&more));
            effects.extend(more);
        }
        assert_eq!(effects.iter().filter(|effect| **effect == left(1)).count(), 1, "{policy}: {effects:?}");
        assert!(!holders(&assigned(&effects)).contains(&1), "{policy}");
        let lost = |(number, outcome): &(u32, TaskOutcome)| *number == 1 && *outcome == TaskOutcome::Lost;
        assert!(!outcomes(&effects).iter().any(lost), "{policy}");
        assert!(before.iter().chain(&effects).any(|effect| matches!(effect, Effect::Step { .. })), "{policy}");
    }
}
