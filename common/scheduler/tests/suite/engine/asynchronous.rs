//! Asynchronous policies: each result makes its own step.

use ata_scheduler::{AbortReason, Collect, Effect, EngineConfig, Refusal, WaitReason};
use ata_types::{Iteration, Lease, TaskRange};

use crate::engine::support::{BUSY_S, Cluster, assigned, cancel, discard, is_start, step, steps, worker};

fn cluster(policy: &str, min_workers: usize) -> Cluster {
    let config = EngineConfig {
        iterations: 20,
        min_workers,
        lease_timeout_s: Some(60.0),
        rest_s: 1.0,
        ..EngineConfig::default()
    };
    Cluster::with(policy, config)
}

/// Returns the step that one lease makes.
fn step_of(iteration: u64, lease: &Lease) -> Effect {
    step(iteration, vec![lease.tasks])
}

/// Commits a step, and returns the one lease assigned after it.
fn commit_and_assign(cluster: &mut Cluster, iteration: u64) -> (u32, Lease) {
    let leases = assigned(&cluster.commit(iteration));
    assert_eq!(leases.len(), 1, "{leases:?}");
    leases[0]
}

#[test]
fn each_result_makes_a_step() {
    let mut cluster = cluster("asgd", 2);
    let leases = cluster.join_all(2);
    let [(1, a), (2, b)] = leases[..] else { panic!("one task each: {leases:?}") };
    assert_eq!([a.tasks, b.tasks], [TaskRange::single(0), TaskRange::single(1)]);
    cluster.now_s = 1.0;
    assert_eq!(cluster.done(1, &a), Ok(vec![step_of(1, &a)]));
    let (number, next) = commit_and_assign(&mut cluster, 1);
    assert_eq!(
        (number, next.iteration.number(), next.tasks),
        (1, 2, TaskRange::single(0)),
        "at the current parameters"
    );

    cluster.now_s = 2.0;
    assert_eq!(cluster.done(2, &b), Ok(vec![step_of(2, &b)]), "a task of iteration 1 in the second step");
    assert_eq!(commit_and_assign(&mut cluster, 2).0, 2);
    assert_eq!(cluster.applied_and_wasted(), (2, 0));
    assert_eq!(cluster.engine.ledger().employments, 2 + 1, "the step that a task is begun in counts it");
}

/// Ringmaster ASGD (arXiv 2501.16168), Algorithm 4: a gradient of delay δ is applied if δ < R, and ignored otherwise.
#[test]
fn a_result_of_delay_r_is_discarded() {
    let mut cluster = cluster("ringmaster:R=2", 3);
    let leases = cluster.join_all(3);
    let [(1, a), (2, b), (3, c)] = leases[..] else { panic!("one task each: {leases:?}") };
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
    let mut cluster = cluster("ringmaster:R=2,stops=on", 2);
    let leases = cluster.join_all(2);
    let late = leases[1].1;
    cluster.done(1, &leases[0].1).unwrap();
    let (_, next) = commit_and_assign(&mut cluster, 1);
    cluster.done(1, &next).unwrap();
    let effects = cluster.commit(2);
    assert!(is_start(&effects[0], 3));
    assert_eq!(effects[1], cancel(2, &late));
    let again = assigned(&effects);
    assert_eq!(
        again.iter().map(|(number, lease)| (*number, lease.iteration.number())).collect::<Vec<_>>(),
        [(1, 3), (2, 3)]
    );
    assert_eq!(cluster.done(2, &late), Err(Refusal::NotHeld(late.id)));

    // The engine does not wait for a gradient that is on its way, either.
    let late = again[1].1;
    cluster.computed(2, &late).unwrap();
    let mut next = again[0].1;
    for iteration in 3..=4 {
        cluster.done(1, &next).unwrap();
        let effects = cluster.commit(iteration);
        assert_eq!(effects.contains(&cancel(2, &late)), iteration == 4);
        let leases = assigned(&effects);
        assert_eq!(leases.len() as u64, iteration - 2);
        next = leases[0].1;
    }
    assert_eq!(cluster.deliver_own(2, &late), []);
    assert_eq!(cluster.applied_and_wasted(), (4, 1), "the second one counts with the next step");
}

/// A result counts once it is delivered, in the order of delivery. Until then its worker waits, without a deadline.
#[test]
fn a_result_counts_once_it_is_delivered() {
    let mut cluster = cluster("asgd", 2);
    let leases = cluster.join_all(2);
    let [(1, a), (2, b)] = leases[..] else { panic!("one task each: {leases:?}") };
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
fn a_result_that_is_lost_on_its_way_is_wasted() {
    let mut cluster = cluster("asgd", 2);
    let leases = cluster.join_all(2);
    let [(1, a), (2, b)] = leases[..] else { panic!("one task each: {leases:?}") };
    cluster.computed(1, &a).unwrap();
    assert_eq!(cluster.lose(1), []);
    assert_eq!(cluster.deliver_own(1, &a), []);
    assert_eq!(assigned(&cluster.join(1)).len(), 1, "it begins anew");
    cluster.computed(2, &b).unwrap();
    assert_eq!(cluster.deliver_own(2, &b), [step_of(1, &b)]);
    cluster.commit(1);
    assert_eq!(cluster.applied_and_wasted(), (1, 1));
}

/// If a worker's collection fails, its lease fails, whether it has reported it or not, and the worker rests. If all collections fail,
/// the run ends.
#[test]
fn a_worker_whose_collection_fails_rests() {
    let mut cluster = cluster("asgd", 3);
    let leases = cluster.join_all(3);
    let [(1, a), (2, b), (3, c)] = leases[..] else { panic!("one task each: {leases:?}") };
    cluster.computed(1, &a).unwrap();
    for (number, lease) in [(1, a), (2, b)] {
        assert_eq!(cluster.fail_own(number, &lease), []);
        assert_eq!(cluster.done(number, &lease), Err(Refusal::NotHeld(lease.id)));
        assert_eq!(cluster.fail_own(number, &lease), [], "it fails once");
    }
    assert_eq!(cluster.engine.poll_timeout(), Some(1.0), "they rest");
    cluster.computed(3, &c).unwrap();
    assert!(matches!(cluster.fail_own(3, &c)[..], [Effect::Abort { .. }]));
}

#[test]
fn results_wait_for_the_step_under_way_and_enter_in_order() {
    let mut cluster = cluster("asgd", 3);
    let leases = cluster.join_all(3);
    let [(1, a), (2, b), (3, c)] = leases[..] else { panic!("one task each: {leases:?}") };
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

#[test]
fn a_result_may_become_too_late_while_it_waits() {
    let mut cluster = cluster("ringmaster:R=1", 2);
    let leases = cluster.join_all(2);
    cluster.done(1, &leases[0].1).unwrap();
    assert_eq!(cluster.done(2, &leases[1].1), Ok(vec![]));
    let effects = cluster.commit(1);
    assert_eq!((effects.len(), &effects[2]), (4, &discard(2, &leases[1].1)));
    let again: Vec<u32> = assigned(&effects).iter().map(|(number, _)| *number).collect();
    assert_eq!(again, [1, 2]);
}

/// By default, Ringmaster's R is the number of workers when the iteration begins.
#[test]
fn r_follows_the_number_of_workers() {
    let mut cluster = cluster("ringmaster", 3);
    let leases = cluster.join_all(3);
    let collect = |cluster: &Cluster| cluster.decision().collect;
    assert_eq!(collect(&cluster), Collect::Each { max_delay: 3, cancel: false });
    cluster.lose(3);
    cluster.done(1, &leases[0].1).unwrap();
    cluster.commit(1);
    assert_eq!(collect(&cluster), Collect::Each { max_delay: 2, cancel: false });
}

#[test]
fn workers_come_and_go_in_the_middle() {
    let mut cluster = cluster("asgd", 1);
    let first = assigned(&cluster.join(1))[0].1;
    let second = assigned(&cluster.join(2))[0].1;
    assert_eq!(second.tasks, TaskRange::single(1), "a newcomer computes at once, a task of its own");
    assert_eq!(cluster.lose(2), [], "no step needs that task in particular");
    assert_eq!(cluster.done(2, &second), Err(Refusal::NotHeld(second.id)));
    let wait = Effect::Wait { reason: WaitReason::Workers { present: 0, needed: 1 } };
    assert_eq!(cluster.lose(1), [wait]);
    let third = assigned(&cluster.join(2))[0].1;
    assert_eq!((third.iteration.number(), third.tasks), (1, TaskRange::single(2)), "no index is given out twice");
    cluster.done(2, &third).unwrap();
    cluster.commit(1);
    assert_eq!(cluster.applied_and_wasted(), (1, 2));
    assert_ne!(first.id, third.id);
}

#[test]
fn workers_come_and_go_while_a_step_is_under_way() {
    let mut cluster = cluster("asgd", 3);
    let leases = cluster.join_all(3);
    let [(1, a), (2, b), (3, _)] = leases[..] else { panic!("one task each: {leases:?}") };
    cluster.done(1, &a).unwrap();
    cluster.done(2, &b).unwrap();
    assert_eq!(cluster.lose(3), []);
    assert_eq!(cluster.lose(2), []);
    assert_eq!(cluster.join(2), [], "back, while its result waits");
    assert_eq!(cluster.join(4), []);
    let effects = cluster.commit(1);
    let employed: Vec<u32> = assigned(&effects).iter().map(|(number, _)| *number).collect();
    assert_eq!(employed, [1, 4], "and not employed before that is in a step");
    assert_eq!(steps(&effects), [(2, vec![b.tasks])], "which it enters although its worker was lost");
    assert_eq!(commit_and_assign(&mut cluster, 2).0, 2);
    assert_eq!(cluster.applied_and_wasted(), (2, 1), "worker 3 was lost during the first step");
}

#[test]
fn with_nobody_left_after_a_step_the_run_waits() {
    let mut cluster = cluster("asgd", 1);
    let lease = assigned(&cluster.join(1))[0].1;
    cluster.done(1, &lease).unwrap();
    assert_eq!(cluster.lose(1), []);
    assert!(matches!(cluster.commit(1)[..], [Effect::Wait { .. }]));
    assert_eq!(assigned(&cluster.join(2))[0].1.iteration.number(), 2);
}

/// One broken worker among good ones costs only its own work, and does so less and less often.
#[test]
fn one_failing_worker_does_not_end_the_run() {
    let mut cluster = cluster("asgd", 2);
    let mut leases = cluster.join_all(2);
    for (iteration, rest_s) in (1..).zip([1.0, 2.0, 4.0, 8.0, 16.0]) {
        assert_eq!(cluster.fail(1, &leases[0].1), [], "it rests");
        assert_eq!(steps(&cluster.done(2, &leases[1].1).unwrap()).len(), 1);
        let other = assigned(&cluster.commit(iteration));
        assert_eq!(other.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2]);
        assert_eq!(cluster.engine.poll_timeout(), Some(cluster.now_s + rest_s));
        cluster.now_s += rest_s;
        leases = [assigned(&cluster.timeout()), other].concat();
        assert_eq!(leases.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2]);
    }
    assert_eq!(cluster.applied_and_wasted(), (5, 5));
}

/// Under load, results wait for their step; the time that passed still counts.
#[test]
fn steps_of_results_that_waited_book_their_runtime() {
    let mut cluster = cluster("asgd", 3);
    let leases = cluster.join_all(3);
    for (seconds, (number, lease)) in (1..).zip(&leases) {
        cluster.now_s = f64::from(seconds);
        cluster.done(*number, lease).unwrap();
    }
    for iteration in 1..=3 {
        cluster.now_s = 3.0 + iteration as f64;
        cluster.commit(iteration);
    }
    let ledger = cluster.engine.ledger();
    assert_eq!(ledger.iteration_time_s, 5.0, "from the start to the third step");
    assert_eq!(ledger.total_worker_time_s, 15.0);
}

#[test]
fn three_failures_without_a_step_end_the_run() {
    let mut cluster = cluster("asgd", 3);
    let leases = cluster.join_all(3);
    assert_eq!(cluster.fail(1, &leases[0].1), []);
    assert_eq!(cluster.fail(2, &leases[1].1), []);
    let tasks = leases[2].1.tasks;
    let reason = AbortReason::TasksFailed { iteration: Iteration(1), tasks, attempts: 3, workers: 3, lasted_s: 0.0 };
    assert_eq!(cluster.fail(3, &leases[2].1), [Effect::Abort { reason }]);
}

#[test]
fn whoever_is_alone_tries_again() {
    let mut cluster = cluster("asgd", 1);
    let mut lease = assigned(&cluster.join(1))[0].1;
    for _ in 0..2 {
        let again = assigned(&cluster.fail(1, &lease));
        assert_eq!(again.len(), 1);
        lease = again[0].1;
    }
    assert!(matches!(cluster.fail(1, &lease)[..], [Effect::Abort { .. }]));
}

/// A worker that failed rests only as long as another one computes.
#[test]
fn the_idle_are_employed_when_the_last_one_computing_goes() {
    let mut cluster = cluster("asgd", 2);
    let leases = cluster.join_all(2);
    cluster.fail(1, &leases[0].1);
    assert_eq!(assigned(&cluster.lose(2))[0].0, 1);
}

#[test]
fn a_hung_worker_is_evicted_and_the_others_go_on() {
    let mut cluster = cluster("asgd", 2);
    let leases = cluster.join_all(2);
    cluster.now_s = 59.0;
    cluster.done(1, &leases[0].1).unwrap();
    let (_, next) = commit_and_assign(&mut cluster, 1);
    cluster.now_s = 60.5;
    assert_eq!(cluster.timeout(), [Effect::Evict { worker: worker(2), silent_s: 60.5 }]);
    cluster.done(1, &next).unwrap();
    cluster.commit(2);
    assert_eq!(cluster.applied_and_wasted(), (2, 1));
}

/// As for a barrier, the limit doubles with each attempt: 60 s, 120 s, 240 s.
#[test]
fn a_worker_that_always_hangs_alone_ends_the_run() {
    let mut cluster = cluster("asgd", 1);
    cluster.join(1);
    for waited_s in [61.0, 121.0] {
        cluster.now_s += waited_s - 2.0;
        assert_eq!(cluster.timeout(), []);
        cluster.now_s += 2.0;
        assert!(matches!(cluster.timeout()[..], [Effect::Evict { .. }, Effect::Wait { .. }]));
        assert_eq!(assigned(&cluster.join(1)).len(), 1, "it comes back, and tries again");
    }
    cluster.now_s += 241.0;
    let effects = cluster.timeout();
    assert!(
        matches!(
            effects[..],
            [Effect::Evict { .. }, Effect::Abort { reason: AbortReason::TasksFailed { attempts: 3, .. } }]
        ),
        "{effects:?}"
    );
}

/// Total worker time of the ATA paper (arXiv 2502.00775): every worker is busy all the time, so it is n × runtime.
#[test]
fn every_worker_costs_the_whole_runtime() {
    let mut cluster = cluster("asgd", 2);
    let leases = cluster.join_all(2);
    cluster.now_s = 3.0;
    cluster.done(1, &leases[0].1).unwrap();
    cluster.commit(1);
    cluster.now_s = 4.0;
    cluster.done(2, &leases[1].1).unwrap();
    cluster.commit(2);
    let ledger = cluster.engine.ledger();
    assert_eq!((ledger.iteration_time_s, ledger.total_worker_time_s), (4.0, 8.0));
    assert_eq!(ledger.workers.iter().map(|worker| worker.busy_s).collect::<Vec<_>>(), [BUSY_S; 2]);
}
