//! Racing policies: GTA, k-sync and adaptive k-sync.

use ata_scheduler::{AbortReason, Collect, Effect, EngineConfig, Refusal, StepOutcome};
use ata_types::{Iteration, TaskRange};

use crate::engine::support::{Cluster, assigned, cancel, step, steps, worker};

/// Rennala SGD (Tyurin, Richtárik 2023), Method 4: the first B gradients are taken, the rest is cancelled and wasted.
#[test]
fn a_race_takes_the_first_results_and_cancels_the_rest() {
    let mut cluster = Cluster::new("gta", 3, 3);
    cluster.join(1);
    cluster.join(2);
    let leases = assigned(&cluster.join(3));
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

#[test]
fn a_race_goes_on_when_workers_come_and_go() {
    let mut cluster = Cluster::new("gta", 3, 1);
    cluster.join(1);
    let joined = assigned(&cluster.join(2));
    assert_eq!((joined[0].0, joined[0].1.tasks), (2, TaskRange::single(1)));
    assert_eq!(cluster.lose(1), []);
    assert!(matches!(cluster.lose(2)[..], [Effect::Wait { .. }]));
    assert_eq!(assigned(&cluster.join(2))[0].1.tasks, TaskRange::single(2));
}

#[test]
fn a_race_whose_last_runner_failed_before_goes_on() {
    let mut cluster = Cluster::new("gta", 2, 2);
    cluster.join(1);
    let leases = assigned(&cluster.join(2));
    let failed = cluster.fail(1, &leases[0].1);
    assert_eq!(assigned(&failed)[0].0, 2, "another worker tries");
    assert_eq!(assigned(&cluster.lose(2))[0].0, 1, "and the first again, when it is the only one left");
}

/// Failed tasks of a race are retried, so that failures on all workers are noticed: the limits are 60 s, 120 s, 240 s.
#[test]
fn a_race_in_which_everybody_hangs_ends() {
    let mut cluster = Cluster::new("gta", 2, 1);
    let tasks = assigned(&cluster.join(1))[0].1.tasks;
    for waited_s in [61.0, 121.0] {
        cluster.now_s += waited_s;
        assert!(matches!(cluster.timeout()[..], [Effect::Evict { .. }, Effect::Wait { .. }]));
        assert_eq!(assigned(&cluster.join(1))[0].1.tasks, tasks);
    }
    cluster.now_s += 241.0;
    let reason = AbortReason::TasksFailed { iteration: Iteration(1), tasks, attempts: 3, workers: 1, lasted_s: 362.0 };
    assert_eq!(cluster.timeout()[1..], [Effect::Abort { reason }]);
}

/// A worker that comes back within the race still counts as one worker.
#[test]
fn the_time_of_a_returning_worker_counts_once() {
    let mut cluster = Cluster::new("gta", 1, 2);
    let leases = cluster.join_all(2);
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
    let mut cluster = Cluster::new("k-sync:k=2", 99, 3);
    let leases = cluster.join_all(3);
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

#[test]
fn in_k_sync_the_task_of_a_lost_worker_goes_to_another() {
    let mut cluster = Cluster::new("k-sync:k=2", 99, 2);
    let leases = cluster.join_all(2);
    assert_eq!(cluster.join(3), [], "a newcomer works from the next iteration");
    let again = assigned(&cluster.lose(1));
    assert_eq!((again[0].0, again[0].1.tasks), (3, leases[0].1.tasks), "unless there is a lost task");
    cluster.now_s = 2.0;
    cluster.done(3, &again[0].1).unwrap();
    assert_eq!(steps(&cluster.done(2, &leases[1].1).unwrap()), [(1, vec![TaskRange { first: 0, count: 2 }])]);
}

/// With fewer workers than k, all of them make the step.
#[test]
fn k_shrinks_with_the_cluster() {
    let mut cluster = Cluster::new("k-sync:k=3", 99, 1);
    let lease = assigned(&cluster.join(1))[0].1;
    assert_eq!(steps(&cluster.done(1, &lease).unwrap()).len(), 1);
}

/// Kas Hanna et al. (arXiv 2002.11005), Algorithm 1: ⟨g_j, g_{j−1}⟩ < 0 counts +1; above the threshold, after the
/// burn-in, k grows.
#[test]
fn k_grows_when_the_gradients_stop_agreeing() {
    let config = EngineConfig { iterations: 9, min_workers: 3, ..EngineConfig::default() };
    let mut cluster = Cluster::with("adaptive-k-sync:k=1,k_max=2,threshold=1,burn_in=1", config);
    let mut leases = cluster.join_all(3);
    let mut taken = Vec::new();
    for (iteration, gradient_product) in (1..).zip([None, Some(0.5), Some(-1.0), Some(-1.0), Some(-1.0), None]) {
        let decision = cluster.decision();
        let Collect::First { take, refill: false } = decision.collect else { panic!("{decision:?}") };
        taken.push(take);
        for (number, lease) in &leases[..take as usize] {
            cluster.done(*number, lease).unwrap();
        }
        leases = assigned(&cluster.commit_with(iteration, StepOutcome { gradient_product, ..StepOutcome::default() }));
    }
    assert_eq!(taken, [1, 1, 1, 1, 1, 2], "the counts are 0, -1, 0, 1 and 2");
    assert_eq!(cluster.applied_and_wasted(), (7, 5 * 2 + 1));
}

/// A worker that fails rests, while the others race on.
#[test]
fn a_broken_runner_rests() {
    let config = EngineConfig { budget: 4, iterations: 9, min_workers: 2, rest_s: 3.0, ..EngineConfig::default() };
    let mut cluster = Cluster::with("gta", config);
    let leases = cluster.join_all(2);
    let again = assigned(&cluster.fail(1, &leases[0].1));
    assert_eq!((again[0].0, again[0].1.tasks), (2, leases[0].1.tasks), "its task goes to the other one");
    cluster.now_s = 1.0;
    assert_eq!(assigned(&cluster.done(2, &leases[1].1).unwrap()), [], "which it still has to do");
    cluster.now_s = 3.0;
    assert_eq!(assigned(&cluster.timeout())[0].0, 1, "it works again");
}
