//! Asynchronous policies: each result makes its own step.

use ata_scheduler::{Effect, EngineConfig, Refusal};
use ata_types::{Lease, TaskRange};

use crate::engine::support::{self, BUSY_S, Cluster, assigned, cancel, config, discard, is_start, step};

/// Returns a cluster of as many workers as leases, each of which has begun one task, in order.
fn begun<const N: usize>(policy: &str) -> (Cluster, [Lease; N]) {
    let (cluster, leases) = support::begun(policy, EngineConfig { iterations: 20, rest_s: 1.0, ..config(1, N) });
    assert!(leases.iter().zip(1..).all(|((number, lease), at)| *number == at && lease.tasks.count == 1), "{leases:?}");
    (cluster, std::array::from_fn(|at| leases[at].1))
}

fn step_of(iteration: u64, lease: &Lease) -> Effect {
    step(iteration, vec![lease.tasks])
}

fn commit_and_assign(cluster: &mut Cluster, iteration: u64) -> (u32, Lease) {
    let leases = assigned(&cluster.commit(iteration));
    assert_eq!(leases.len(), 1, "{leases:?}");
    leases[0]
}

#[test]
fn each_result_makes_a_step() {
    let (mut cluster, [a, b]) = begun("asgd");
    assert_eq!([a.tasks, b.tasks], [TaskRange::single(0), TaskRange::single(1)]);
    cluster.now_s = 1.0;
    assert_eq!(cluster.done(1, &a), Ok(vec![step_of(1, &a)]));
    let (number, next) = commit_and_assign(&mut cluster, 1);
    assert_eq!((number, next.iteration.number(), next.tasks), (1, 2, TaskRange::single(0)), "at the new parameters");

    cluster.now_s = 2.0;
    assert_eq!(cluster.done(2, &b), Ok(vec![step_of(2, &b)]), "a task of iteration 1 in the second step");
    assert_eq!(commit_and_assign(&mut cluster, 2).0, 2);
    assert_eq!(cluster.applied_and_wasted(), (2, 0));
    assert_eq!(cluster.engine.ledger().employments, 2 + 1, "the step that a task is begun in counts it");
}

/// Ringmaster ASGD (arXiv 2501.16168), Algorithm 4: a gradient of delay δ is applied if δ < R, and ignored otherwise.
#[test]
fn a_result_of_delay_r_is_discarded() {
    let (mut cluster, [a, b, c]) = begun("ringmaster:R=2");
    cluster.done(1, &a).unwrap();
    commit_and_assign(&mut cluster, 1);
    assert_eq!(cluster.done(2, &b), Ok(vec![step_of(2, &b)]), "its delay is 1");
    commit_and_assign(&mut cluster, 2);
    let effects = cluster.done(3, &c).unwrap();
    assert_eq!(effects[0], discard(3, &c), "its delay is 2");
    let [(3, next)] = assigned(&effects)[..] else { panic!("a new task at once: {effects:?}") };
    assert_eq!((next.iteration.number(), effects.len()), (3, 2), "at the current parameters");
    assert_eq!(cluster.done(3, &next), Ok(vec![step_of(3, &next)]));
    cluster.commit(3);
    assert_eq!(cluster.applied_and_wasted(), (3, 1));
    assert_eq!(cluster.engine.statistics()[2].observed, 2, "its time is observed all the same");
}

/// Ringmaster ASGD, Algorithm 5: a computation is stopped when its delay reaches R.
#[test]
fn with_stops_a_computation_is_cancelled_when_its_delay_reaches_r() {
    let (mut cluster, [first, late]) = begun("ringmaster:R=2,stops=on");
    cluster.done(1, &first).unwrap();
    let (_, next) = commit_and_assign(&mut cluster, 1);
    cluster.done(1, &next).unwrap();
    let effects = cluster.commit(2);
    assert!(is_start(&effects[0], 3));
    assert_eq!(effects[1], cancel(2, &late));
    let again = assigned(&effects).into_iter().map(|(number, lease)| (number, lease.iteration.number()));
    assert_eq!(again.collect::<Vec<_>>(), [(1, 3), (2, 3)]);
    assert_eq!(cluster.done(2, &late), Err(Refusal::NotHeld(late.id)));
}

/// A result counts once it is delivered, in the order of delivery. Until then its worker waits, without a deadline.
#[test]
fn a_result_counts_once_it_is_delivered() {
    let (mut cluster, [a, b]) = begun("asgd");
    assert_eq!(cluster.computed(1, &a), Ok(vec![]));
    assert_eq!(cluster.computed(2, &b), Ok(vec![]));
    assert_eq!(cluster.engine.poll_timeout(), None);
    assert_eq!(cluster.deliver_own(2, &b), [step_of(1, &b)]);
    assert_eq!(commit_and_assign(&mut cluster, 1).0, 2, "the other one still sends");
    assert_eq!(cluster.deliver_own(1, &a), [step_of(2, &a)]);
    assert_eq!(cluster.deliver_own(1, &a), [], "it is delivered once");
    assert_eq!((cluster.engine.ledger().results, cluster.applied_and_wasted().0), (1, 1));
}

#[test]
fn results_wait_for_the_step_under_way_and_enter_in_order() {
    let (mut cluster, [a, b, c]) = begun("asgd");
    cluster.done(1, &a).unwrap();
    assert_eq!(cluster.done(3, &c), Ok(vec![]));
    assert_eq!(cluster.done(2, &b), Ok(vec![]));
    for (iteration, lease, employed) in [(2, c, 1), (3, b, 3)] {
        let effects = cluster.commit(iteration - 1);
        let [(who, next)] = assigned(&effects)[..] else { panic!("only the idle worker gets a task: {effects:?}") };
        assert_eq!((who, next.iteration.number()), (employed, iteration));
        assert_eq!(effects[2..], [step_of(iteration, &lease)]);
    }
    let (number, next) = commit_and_assign(&mut cluster, 3);
    assert_eq!((number, next.iteration.number()), (2, 4));
}

/// Total worker time of the ATA paper (arXiv 2502.00775): every worker is busy all the time, so it is n × runtime. Under load, results wait
/// for their step; the time that passed still counts.
#[test]
fn every_worker_costs_the_whole_runtime() {
    let (mut cluster, leases) = begun::<3>("asgd");
    for (number, lease) in (1..).zip(&leases) {
        cluster.now_s = f64::from(number);
        cluster.done(number, lease).unwrap();
    }
    for iteration in 1..=3 {
        cluster.now_s = 3.0 + iteration as f64;
        cluster.commit(iteration);
    }
    let ledger = cluster.engine.ledger();
    assert_eq!(ledger.iteration_time_s, 5.0, "from the start to the third step");
    assert_eq!(ledger.total_worker_time_s, 15.0);
    assert!(ledger.workers.iter().all(|worker| worker.busy_s == BUSY_S));
}
