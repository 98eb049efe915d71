//! Local steps of the next iteration, which are taken while others compute, and while differences travel.

use ata_scheduler::{Effect, EngineConfig, Event, Limits, Report, StepOutcome, TaskChoice};
use ata_types::{Iteration, Lease, LeaseId, TaskOutcome, TaskRange};

use crate::engine::support::{
    self, Cluster, assigned, begun, cancel, discard, indices, is_start, lease_of, outcomes, ranges, steps, worker,
};

/// A cluster of three workers that take local steps, of which the differences of the first iteration travel; and their next leases.
fn travelling(iterations: u64) -> (Cluster, Vec<(u32, Lease)>) {
    travelling_with(EngineConfig { iterations, ..EngineConfig::default() })
}

fn travelling_with(config: EngineConfig) -> (Cluster, Vec<(u32, Lease)>) {
    let config =
        EngineConfig { budget: 6, min_workers: 3, takes_local_steps: true, lease_timeout_s: Some(60.0), ..config };
    let (mut cluster, first) = begun("uta", config);
    let effects = cluster.done_all(&first);
    assert_eq!(steps(&effects).len(), 1);
    (cluster, assigned(&effects))
}

#[test]
fn workers_go_on_while_differences_travel() {
    let (mut cluster, next) = travelling(3);
    assert_eq!((indices(&next), next[0].1.iteration.number()), ((0..6).collect(), 2));
    assert_eq!(cluster.done_all(&next), [], "the step of the next iteration waits for that of the first");
    assert_eq!(cluster.collections().len(), 3, "and so do its vectors");
    let effects = cluster.commit(1);
    assert!(is_start(&effects[0], 2), "{effects:?}");
    assert_eq!(steps(&effects)[0].0, 2, "all of its results are there");
    assert_eq!((indices(&assigned(&effects)), cluster.contributors()), ((0..6).collect(), vec![1, 2, 3]));
    let effects = cluster.commit(2);
    assert_eq!((is_start(&effects[0], 3), assigned(&effects)), (true, vec![]), "the last iteration has begun");
}

/// A cluster of three workers that take local steps, of which the first has done its part of the first iteration; and the leases of that
/// iteration and of the next one.
fn one_is_done(policy: &str) -> (Cluster, [Vec<(u32, Lease)>; 2]) {
    let config =
        EngineConfig { budget: 6, iterations: 3, min_workers: 3, takes_local_steps: true, ..EngineConfig::default() };
    let (mut cluster, mut first) = begun(policy, config);
    while let Some(at) = first.iter().position(|(number, _)| *number == 1) {
        let (_, lease) = first.remove(at);
        let (next, more): (Vec<_>, Vec<_>) = assigned(&cluster.done(1, &lease).unwrap())
            .into_iter()
            .partition(|(_, lease)| lease.iteration.number() == 2);
        first.extend(more);
        if !next.is_empty() {
            return (cluster, [first, next]);
        }
    }
    panic!("nobody goes on")
}

#[test]
fn a_worker_goes_on_while_others_compute() {
    let (mut cluster, [first, next]) = one_is_done("pull");
    assert_eq!((first.len(), indices(&next)), (2, vec![0, 1, 2]), "others take their next task afterwards");
    let effects = cluster.done(1, &lease_of(&next, 1)).unwrap();
    let fourth = lease_of(&assigned(&effects), 1);
    assert_eq!(fourth.tasks, TaskRange::single(3));
    let effects = cluster.done_all(&first);
    assert_eq!((steps(&effects)[0].0, assigned(&effects)), (1, vec![]));
    assert_eq!(cluster.done(1, &fourth).map(|effects| indices(&assigned(&effects))), Ok(vec![4]));
    let effects = cluster.done(2, &lease_of(&next, 2)).unwrap();
    assert_eq!(ranges(&assigned(&effects)), [(2, TaskRange::single(5))]);
    assert!(is_start(&cluster.commit(1)[0], 2));
}

#[test]
fn leases_of_two_iterations_are_done_one_after_the_other() {
    let (mut cluster, [first, next]) = one_is_done("uta");
    assert_eq!((first.len(), indices(&next)), (2, (0..6).collect()), "shares are fixed");
    assert_eq!(cluster.done(1, &lease_of(&next, 1)).unwrap(), []);
    let effects = cluster.done_all(&first);
    assert_eq!((steps(&effects)[0].0, assigned(&effects)), (1, vec![]));
    cluster.done_all(&[(2, lease_of(&next, 2)), (3, lease_of(&next, 3))]);
    assert_eq!(steps(&cluster.commit(1))[0].0, 2);
    assert_eq!(cluster.applied_and_wasted(), (6, 0));
}

/// What is computed again comes before the next iteration.
#[test]
fn a_worker_that_is_lost_while_another_goes_on_gives_up_what_is_ahead() {
    let (mut cluster, [first, next]) = one_is_done("uta");
    let effects = cluster.lose(3);
    assert!([1, 2].into_iter().all(|at| effects.contains(&cancel(at, &lease_of(&next, at)))), "{effects:?}");
    let again = assigned(&effects);
    let lost = lease_of(&first, 3).tasks;
    assert_eq!((indices(&again), again[0].1.iteration.number()), (lost.indices().collect(), 1));
    let (kept, last): (Vec<_>, Vec<_>) = again.into_iter().partition(|(number, _)| *number == 1);
    let effects = cluster.done_all(&kept);
    assert_eq!(indices(&assigned(&effects)), (0..6).collect::<Vec<_>>(), "then all go on");
    let rest = first.into_iter().filter(|(number, _)| *number == 2).chain(last);
    assert_eq!(steps(&cluster.done_all(&rest.collect::<Vec<_>>()))[0].0, 1);
}

#[test]
fn a_lease_says_after_how_many_tasks_its_iteration_begins() {
    let choice = Some(TaskChoice::of_rounds(6, 6));
    let (mut cluster, next) = travelling_with(EngineConfig { iterations: 3, choice, ..EngineConfig::default() });
    let of_third = cluster.done_all(&next).into_iter().chain(cluster.commit(1));
    let position = |effect| if let Effect::Assign { position, .. } = effect { Some(position) } else { None };
    assert_eq!(of_third.filter_map(position).collect::<Vec<_>>(), [12; 3]);
}

#[test]
fn a_lost_difference_gives_up_what_is_ahead() {
    let (mut cluster, next) = travelling(3);
    let [one, two] = [1, 2].map(|number| lease_of(&next, number));
    assert_eq!(cluster.done(1, &one).unwrap(), []);
    let effects = cluster.lose(3);
    assert!(effects.contains(&discard(1, &one)) && effects.contains(&cancel(2, &two)), "{effects:?}");
    let again = assigned(&effects);
    assert_eq!((indices(&again), again[0].1.iteration.number()), (vec![4, 5], 1), "its tasks are computed again");
    let effects = cluster.done_all(&again);
    assert_eq!((steps(&effects)[0].0, indices(&assigned(&effects))), (1, (0..6).collect()), "then all go on");
}

#[test]
fn the_tasks_of_a_worker_that_had_delivered_are_taken_by_others() {
    let (mut cluster, next) = travelling(3);
    for number in 1..=3 {
        cluster.deliver(number);
    }
    let effects = cluster.lose(3);
    let again = assigned(&effects);
    let lost = lease_of(&next, 3).tasks;
    assert_eq!((indices(&again), again[0].1.iteration.number()), (lost.indices().collect(), 2));
    cluster.join(4);
    let computed: Vec<(u32, Lease)> = next.into_iter().filter(|(number, _)| *number != 3).chain(again).collect();
    cluster.done_all(&computed);
    assert_eq!(steps(&cluster.commit(1))[0].0, 2);
    assert_eq!(cluster.applied_and_wasted(), (6, 1), "one of them was begun");
}

#[test]
fn a_lease_ahead_that_fails_or_is_given_back_goes_to_others() {
    for fails in [false, true] {
        let (mut cluster, next) = travelling(3);
        let lease = lease_of(&next, 2);
        let effects = if fails {
            cluster.fail(2, &lease)
        } else {
            cluster.tell(Event::WorkerLeaving { worker: worker(2) });
            cluster.report(2, lease.id, Report::GivenBack).unwrap()
        };
        let again = assigned(&effects);
        assert_eq!((indices(&again), again[0].1.iteration), (lease.tasks.indices().collect(), lease.iteration));
        assert!(again.iter().all(|(number, _)| *number != 2));
    }
}

/// A worker leaves only once the vectors of both iterations are delivered.
#[test]
fn a_worker_that_leaves_delivers_what_it_has_begun() {
    let (mut cluster, next) = travelling(3);
    cluster.tell(Event::WorkerLeaving { worker: worker(1) });
    let lease = lease_of(&next, 1);
    cluster.done(1, &lease).unwrap();
    cluster.deliver(1);
    let effects = cluster.commit(1);
    assert!(!effects.contains(&Effect::Left { worker: worker(1) }), "{effects:?}");
    let asked = cluster.collections().into_iter().find(|asked| asked.leases.contains(&lease)).expect("it is asked");
    let effects = cluster.tell(Event::Delivered { worker: worker(1), collection: asked.id });
    assert!(effects.contains(&Effect::Left { worker: worker(1) }), "{effects:?}");
}

#[test]
fn a_run_that_ends_cancels_what_is_ahead() {
    let limits = Limits { runtime_s: Some(1.0), ..Limits::default() };
    let (mut cluster, next) = travelling_with(EngineConfig { iterations: 9, limits, ..EngineConfig::default() });
    cluster.now_s = 2.0;
    let effects = cluster.tell(Event::StepCommitted { iteration: Iteration(1), outcome: StepOutcome::default() });
    let ended = outcomes(&effects).into_iter().filter(|(_, outcome)| *outcome == TaskOutcome::Cancelled);
    assert_eq!(ended.count(), next.len());
    assert!(matches!(effects.last(), Some(Effect::Finish { .. })));
}

#[test]
fn only_local_steps_are_taken_ahead() {
    let (mut cluster, first) = begun("uta", support::config(6, 3));
    assert_eq!(assigned(&cluster.done_all(&first)), []);
    assert_eq!(ranges(&assigned(&cluster.commit(1))).len(), 3);
    assert_eq!(cluster.report(1, LeaseId(99), Report::GivenBack).ok(), None);
}
