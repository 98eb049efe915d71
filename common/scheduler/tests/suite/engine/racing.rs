//! Racing policies: GTA, k-sync and adaptive k-sync.

use ata_scheduler::{Collect, Refusal, StepOutcome};
use ata_types::TaskRange;

use crate::engine::support::{assigned, begun, cancel, config, lease_of, step, worker};

/// Rennala SGD (Tyurin, Richtárik 2023), Method 4: the first B gradients are taken, the rest is cancelled and wasted.
#[test]
fn a_race_takes_the_first_results_and_cancels_the_rest() {
    let (mut cluster, leases) = begun("gta", config(3, 3));
    assert_eq!(leases.len(), 3);
    cluster.now_s = 1.0;
    let next = assigned(&cluster.done(1, &leases[0].1).unwrap());
    assert_eq!((next[0].0, next[0].1.tasks), (1, TaskRange::single(3)), "a worker starts a new task at once");
    cluster.now_s = 2.0;
    let next = assigned(&cluster.done(1, &next[0].1).unwrap());
    let effects = cluster.done(2, &leases[1].1).unwrap();
    let taken = vec![TaskRange { first: 0, count: 2 }, TaskRange::single(3)];
    assert_eq!(effects, [cancel(1, &next[0].1), cancel(3, &leases[2].1), step(1, taken)]);
    assert_eq!(cluster.done(3, &leases[2].1), Err(Refusal::NotHeld(leases[2].1.id)), "too late");

    cluster.commit(1);
    let ledger = cluster.engine.ledger();
    assert_eq!((ledger.tasks_applied, ledger.tasks_wasted), (3, 2));
    assert_eq!(ledger.results, 2, "a vector from each worker");
    assert_eq!(ledger.total_worker_time_s, 6.0, "every worker is busy all the time: n x runtime");
}

/// A worker that comes back within the race still counts as one worker.
#[test]
fn the_time_of_a_returning_worker_counts_once() {
    let (mut cluster, leases) = begun("gta", config(1, 2));
    cluster.lose(2);
    cluster.join(2);
    assert_eq!(cluster.workers(), [worker(1), worker(2)]);
    cluster.now_s = 3.0;
    cluster.done(1, &leases[0].1).unwrap();
    cluster.commit(1);
    assert_eq!(cluster.engine.ledger().total_worker_time_s, 6.0);
}

/// k-sync SGD (Dutta et al., AISTATS 2018): each of n workers gets one task; the first k are taken, the rest is
/// cancelled.
#[test]
fn k_sync_takes_the_first_k() {
    let (mut cluster, leases) = begun("k-sync:k=2", config(99, 3));
    let [(1, a), (2, b), (3, c)] = leases[..] else { panic!("one task each: {leases:?}") };
    cluster.now_s = 2.0;
    assert_eq!(cluster.done(3, &c), Ok(vec![]), "a worker that has finished gets no other task");
    let tasks = vec![TaskRange::single(0), TaskRange::single(2)];
    assert_eq!(cluster.done(1, &a), Ok(vec![cancel(2, &b), step(1, tasks)]));
    assert_eq!(cluster.done(2, &b), Err(Refusal::NotHeld(b.id)));
    assert_eq!(assigned(&cluster.commit(1)).len(), 3);
    assert_eq!(cluster.applied_and_wasted(), (2, 1));
    let ledger = cluster.engine.ledger();
    assert_eq!((ledger.total_worker_time_s, ledger.employments), (6.0, 3));
}

/// Adaptive k-sync hears of each step. Its test shows when k grows.
#[test]
fn k_grows_when_the_gradients_stop_agreeing() {
    let (mut cluster, mut leases) = begun("adaptive-k-sync:k=1,threshold=1,burn_in=1", config(99, 2));
    for iteration in 1..=2 {
        assert_eq!(cluster.decision().collect, Collect::First { take: 1, refill: false });
        cluster.done(1, &lease_of(&leases, 1)).unwrap();
        let outcome = StepOutcome { gradient_product: Some(-1.0), ..StepOutcome::default() };
        leases = assigned(&cluster.commit_with(iteration, outcome));
    }
    assert_eq!(cluster.decision().collect, Collect::First { take: 2, refill: false });
    assert_eq!(cluster.applied_and_wasted(), (2, 2));
}
