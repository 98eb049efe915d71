//! Barrier policies, and the behaviour that all policies share: membership, refusals, failures, evictions.

use ata_scheduler::policy::stateless;
use ata_scheduler::{AbortReason, Decision, Effect, Engine, EngineConfig, Event, Refusal, Report, Rule};
use ata_types::{Iteration, Lease, LeaseId, TaskRange};

use crate::engine::support::{
    BUSY_S, Cluster, assigned, begun, config, evicted, holders, indices, is_start, lease_of, ranges, step, steps,
    worker,
};

#[test]
fn a_barrier_iteration_waits_for_every_task() {
    let (mut cluster, leases) = begun("fta", config(7, 3));
    assert_eq!(indices(&leases), (0..7).collect::<Vec<_>>());
    assert!(leases.iter().all(|(_, lease)| lease.iteration == Iteration(1)));
    assert_eq!([1, 2, 3].map(|number| lease_of(&leases, number).tasks.count), [4, 2, 1]);

    cluster.now_s = 10.0;
    let (last, others) = leases.split_last().unwrap();
    assert_eq!(cluster.done_all(others), [], "the workers keep their gradients");
    assert_eq!(cluster.done(last.0, &last.1), Ok(vec![step(1, vec![TaskRange { first: 0, count: 7 }])]));

    assert!(is_start(&cluster.commit(1)[0], 2));
    let ledger = cluster.engine.ledger();
    assert_eq!((ledger.tasks_applied, ledger.tasks_wasted, ledger.employments), (7, 0, 3));
    assert_eq!((ledger.iteration_time_s, ledger.total_worker_time_s), (10.0, 3.5));
    assert_eq!(ledger.allocation_mean(), [4.0, 2.0, 1.0]);
}

/// The first iteration waits for `min_workers`, and later ones if nobody is left.
#[test]
fn a_run_waits_for_workers_and_says_so_once() {
    let mut cluster = Cluster::new("uta", 2, 2);
    let waiting = |present, needed| Effect::Wait { present, needed };
    assert_eq!(cluster.join(1), [waiting(1, 2)]);
    assert_eq!(cluster.join(1), [], "a worker that joins again changes nothing");
    assert_eq!(assigned(&cluster.join(2)).len(), 2);
    cluster.lose(1);
    assert_eq!(cluster.lose(2), [waiting(0, 1)]);
    assert_eq!(indices(&assigned(&cluster.join(3))), [0, 1]);
}

#[test]
fn a_lost_workers_tasks_go_to_the_others_within_the_iteration() {
    let mut cluster = Cluster::new("fta", 7, 3);
    let (lost, kept): (Vec<_>, Vec<_>) = cluster.join_all(3).into_iter().partition(|(number, _)| *number == 1);
    cluster.now_s = 1.0;
    let again = assigned(&cluster.lose(1));
    assert_eq!(indices(&again), indices(&lost));
    assert!(again.iter().all(|(number, lease)| *number != 1 && lease.iteration == Iteration(1)));

    // The old lease is void, even if the worker comes back with its result.
    assert_eq!(cluster.join(1), []);
    assert_eq!(cluster.done(1, &lost[0].1), Err(Refusal::NotHeld(lost[0].1.id)));

    cluster.now_s = 20.0;
    let effects = cluster.done_all(&[kept, again].concat());
    assert_eq!(steps(&effects), [(1, vec![TaskRange { first: 0, count: 7 }])]);
    cluster.commit(1);
    assert!(cluster.engine.ledger().tasks_wasted >= 1);
}

/// Invariant 4: a task enters a step at most once.
#[test]
fn duplicates_foreign_and_invented_leases_are_refused() {
    let mut cluster = Cluster::new("uta", 2, 2);
    let [(a, lease_a), (b, lease_b)] = cluster.join_all(2)[..] else { panic!("one lease each") };
    assert_eq!(cluster.done(b, &lease_a), Err(Refusal::NotHeld(lease_a.id)), "another worker's lease");
    assert_eq!(cluster.done(a, &lease_a), Ok(vec![]));
    assert_eq!(cluster.done(a, &lease_a), Err(Refusal::NotHeld(lease_a.id)), "a duplicate");
    let invented = Lease { id: LeaseId(99), ..lease_b };
    assert_eq!(cluster.done(b, &invented), Err(Refusal::NotHeld(LeaseId(99))));
    let stranger = cluster.report(9, lease_b.id, Report::Done { busy_s: &[1.0], waited_s: 0.0 });
    assert_eq!(stranger, Err(Refusal::NotHeld(lease_b.id)));
    assert_eq!(steps(&cluster.done(b, &lease_b).unwrap()).len(), 1);
    assert_eq!(cluster.done(b, &lease_b), Err(Refusal::NotHeld(lease_b.id)), "late, while the step is committed");
}

#[test]
fn times_must_be_numbers_one_per_task() {
    let mut cluster = Cluster::new("uta", 2, 1);
    let lease = assigned(&cluster.join(1))[0].1;
    for busy_s in [&[1.0][..], &[1.0, f64::NAN], &[1.0, -1.0], &[1.0, f64::INFINITY], &[1.0; 3]] {
        let told = cluster.report(1, lease.id, Report::Done { busy_s, waited_s: 0.0 });
        assert_eq!(told, Err(Refusal::BadTimes { lease: lease.id, times: 2 }));
    }
    assert!(cluster.done(1, &lease).is_ok(), "a refused report leaves the lease open");
}

/// Invariant 8: the coordinator's clock bounds every reported time.
#[test]
fn reported_times_cannot_exceed_the_time_that_passed() {
    let (mut cluster, mut leases) = begun("uta", config(2, 2));
    leases[1] = assigned(&cluster.lose(2))[0];
    cluster.now_s = 2.0;
    cluster.report(1, leases[0].1.id, Report::Done { busy_s: &[40.0], waited_s: 0.0 }).unwrap();
    assert_eq!(cluster.engine.statistics()[0].total_s, 2.0);
    cluster.now_s = 3.0;
    cluster.report(1, leases[1].1.id, Report::Done { busy_s: &[0.25], waited_s: 0.0 }).unwrap();
    assert_eq!(cluster.engine.statistics()[0].total_s, 2.25);
    cluster.commit(1);
    assert_eq!(cluster.engine.ledger().workers[0].overhead_s, 0.75);
}

/// A worker waits for the parameters also after a step to which it contributed, and its wait is as long as all sets take on the link.
#[test]
fn waiting_for_parameters_is_no_overhead() {
    let (mut cluster, mut leases) = begun("uta", config(2, 2));
    for iteration in 1..=2 {
        let began_s = cluster.now_s;
        for ((number, lease), waited_s) in leases.iter().zip([1.0, 2.0]) {
            cluster.now_s = began_s + waited_s + 0.25 + BUSY_S;
            cluster.computed_after(*number, lease, waited_s).unwrap();
            let known = cluster.engine.statistics()[worker(*number).slot()];
            let overhead_s = if iteration == 1 { known.first_overhead_s } else { Some(known.overhead_s) };
            assert_eq!(overhead_s, Some(0.25), "worker {number} in iteration {iteration}");
        }
        cluster.deliver(1);
        cluster.deliver(2);
        leases = assigned(&cluster.commit(iteration));
    }
    let of_each = [0, 1].map(|slot| cluster.engine.ledger().workers[slot].overhead_s);
    assert_eq!(of_each, [2.0 * 1.25, 2.0 * 2.25], "the ledger counts all that was not computation");
}

#[test]
fn failed_tasks_go_to_another_worker_and_end_the_run_when_all_have_failed() {
    let mut cluster = Cluster::new("uta", 2, 2);
    let mut holder = cluster.join_all(2)[0];
    for attempt in 1..=2 {
        let next = assigned(&cluster.fail(holder.0, &holder.1))[0];
        assert_ne!(next.0, holder.0, "attempt {attempt} goes to another worker");
        assert_eq!(next.1.tasks, holder.1.tasks);
        holder = next;
    }
    let tasks = holder.1.tasks;
    let reason = AbortReason::TasksFailed { iteration: Iteration(1), tasks, attempts: 3, workers: 2, lasted_s: 0.0 };
    assert_eq!(cluster.fail(holder.0, &holder.1), [Effect::Abort { reason }]);
}

#[test]
fn tasks_that_hang_everywhere_end_the_run() {
    let mut cluster = Cluster::new("uta", 1, 1);
    cluster.join(1);
    // The limit doubles with each attempt: 60 s, 120 s, 240 s.
    for waited_s in [61.0, 121.0] {
        cluster.now_s += waited_s;
        assert_eq!(evicted(&cluster.timeout()), [1]);
        assert_eq!(assigned(&cluster.join(1)).len(), 1, "it comes back, and tries again");
    }
    cluster.now_s += 241.0;
    let aborted =
        |effect: &Effect| matches!(effect, Effect::Abort { reason: AbortReason::TasksFailed { attempts: 3, .. } });
    assert!(aborted(&cluster.timeout()[1]));
}

#[test]
fn a_newcomer_works_from_the_next_iteration_and_a_returning_worker_is_remembered() {
    let mut cluster = Cluster::new("uta", 2, 1);
    let leases = assigned(&cluster.join(1));
    assert_eq!(cluster.join(2), []);
    cluster.now_s = 2.0;
    cluster.done_all(&leases);
    assert_eq!(holders(&assigned(&cluster.commit(1))), [1, 2]);
    cluster.lose(1);
    cluster.join(1);
    assert_eq!(cluster.engine.statistics()[0].observed, 2);
}

#[test]
fn a_lease_remembers_all_who_failed_it() {
    let mut cluster = Cluster::new("uta", 5, 5);
    let first = lease_of(&cluster.join_all(5), 1);
    let second = assigned(&cluster.fail(1, &first))[0];
    let third = assigned(&cluster.fail(second.0, &second.1))[0];
    assert!(second.0 != 1 && ![1, second.0].contains(&third.0) && third.1.tasks == first.tasks);
    assert_eq!(cluster.done(third.0, &third.1), Ok(vec![]), "two broken workers do not end the run");
}

/// A worker that failed gets no share of the next iterations, for times that double.
#[test]
fn a_worker_that_failed_rests() {
    let config = EngineConfig { iterations: 99, rest_s: 1.0, lease_timeout_s: None, ..config(3, 3) };
    let (mut cluster, mut leases) = begun("uta", config);
    for rest_s in [1.0, 2.0, 4.0] {
        let iteration = leases[0].1.iteration;
        assert_eq!(holders(&leases), [1, 2, 3]);
        let failed = leases.pop().unwrap();
        leases.extend(assigned(&cluster.fail(3, &failed.1)));
        cluster.done_all(&leases);
        leases = assigned(&cluster.commit(iteration.number()));
        assert!(!holders(&leases).contains(&3), "{leases:?}");
        assert_eq!(cluster.engine.poll_timeout(), Some(cluster.now_s + rest_s));
        cluster.now_s += rest_s;
        assert_eq!(cluster.timeout(), []);
        cluster.done_all(&leases);
        leases = assigned(&cluster.commit(iteration.number() + 1));
    }
}

/// A lease's deadline follows from its worker's own times: ten times what is expected, or a tenth of the timeout.
#[test]
fn a_worker_that_was_timed_is_evicted_in_its_own_time() {
    for (busy_s, allowed_s) in [(0.5, 5.0), (0.01, 2.0)] {
        let (mut cluster, leases) = begun("uta", config(2, 2));
        cluster.now_s = 0.5;
        for (number, lease) in leases {
            cluster.now_s += busy_s / 2.0;
            cluster.report(number, lease.id, Report::Done { busy_s: &[busy_s], waited_s: 0.0 }).unwrap();
        }
        cluster.now_s = 100.0;
        let leases = assigned(&cluster.commit(1));
        cluster.now_s = 100.0 + allowed_s - 0.1;
        cluster.done(1, &leases[0].1).unwrap();
        assert_eq!(cluster.timeout(), []);
        let overhead_s = cluster.engine.statistics()[1].first_overhead_s.unwrap();
        cluster.now_s += 10.0 * overhead_s + 0.2;
        assert_eq!(evicted(&cluster.timeout()), [2]);
    }
}

/// In a lease of several tasks, only the first is known to have begun.
#[test]
fn an_eviction_blames_only_the_task_that_was_begun() {
    let mut cluster = Cluster::new("uta", 8, 1);
    let lease = assigned(&cluster.join(1))[0].1;
    assert_eq!(lease.tasks.count, 8);
    cluster.join(2);
    cluster.now_s = 61.0;
    let mut again = ranges(&assigned(&cluster.timeout()));
    again.sort_by_key(|(_, tasks)| tasks.first);
    assert_eq!(again, [(2, TaskRange::single(0)), (2, TaskRange { first: 1, count: 7 })]);
}

#[test]
fn a_decision_that_cannot_be_carried_out_ends_the_run() {
    let lazy = stateless("lazy", |round, _| Decision::barrier(vec![0; round.workers.len()], Vec::new(), Rule::Uniform));
    let mut cluster = Cluster::of(Engine::new(EngineConfig::default(), lazy));
    let [Effect::Abort { reason }] = &cluster.join(1)[..] else { panic!("the run goes on") };
    let said = reason.to_string();
    assert!(said.contains("'lazy'") && said.contains("no worker gets a task"), "{said}");
}

/// A number may be given to another worker: nothing known about the old one is left.
#[test]
fn a_forgotten_worker_is_unknown() {
    let (mut cluster, leases) = begun("uta", config(2, 2));
    cluster.now_s = 1.0;
    cluster.done_all(&leases);
    cluster.tell(Event::WorkerForgotten { worker: worker(2) });
    assert_eq!(cluster.engine.statistics()[1].observed, 1, "not while it is present");
    cluster.lose(2);
    cluster.tell(Event::WorkerForgotten { worker: worker(2) });
    assert_eq!([0, 1].map(|slot| cluster.engine.statistics()[slot].observed), [1, 0]);
}
