//! Tasks that are handed out in parts: the policy's actions within the iteration, and what becomes of copies.

use std::sync::{Arc, Mutex};

use ata_scheduler::policy::{Actions, Activity, IterationView, Round, SchedulerRng};
use ata_scheduler::{Collect, Decision, Engine, EngineConfig, Policy, Rule};
use ata_types::{Lease, TaskRange, WorkerId};

use crate::engine::support::{Cluster, assigned, cancel, holders, indices, lease_of, ranges, step, steps, worker};

/// The policy's next actions, and the activity of each worker when it was last asked.
#[derive(Default)]
struct Script {
    next: Actions,
    asked: u32,
    left: u64,
    doing: Vec<Activity>,
    idle: Vec<u32>,
}

/// A policy that takes the actions that the test specifies, once.
struct Scripted {
    script: Arc<Mutex<Script>>,
    probes: bool,
}

impl Policy for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn decide(&mut self, round: &Round<'_>, _rng: &mut SchedulerRng) -> Decision {
        let n = round.workers.len();
        let probes = if self.probes { (1..n).collect() } else { Vec::new() };
        Decision { probes, ..Decision::new(vec![0; n], Collect::InParts { tasks: round.budget }, Rule::Uniform) }
    }

    fn replan(&mut self, view: &IterationView<'_>, actions: &mut Actions) {
        let mut script = self.script.lock().unwrap();
        *actions = std::mem::take(&mut script.next);
        script.asked += 1;
        script.left = view.left;
        script.doing = (1..=4).map(|number| view.activity(worker(number))).collect();
        script.idle = view.idle().into_iter().map(WorkerId::number).collect();
    }
}

struct Play {
    cluster: Cluster,
    script: Arc<Mutex<Script>>,
}

impl Play {
    /// Begins with three workers and this many tasks, of which worker 1 begins `first`.
    fn begin(budget: u64, first: u64) -> (Self, Vec<(u32, Lease)>) {
        let mut play = Self::new(budget, false);
        play.order(&[(1, first)], &[], &[]);
        let leases = play.cluster.join_all(3);
        (play, leases)
    }

    fn new(budget: u64, probes: bool) -> Self {
        Self::with(EngineConfig { budget, ..EngineConfig::default() }, probes)
    }

    fn with(config: EngineConfig, probes: bool) -> Self {
        let config = EngineConfig { iterations: 2, min_workers: 3, lease_timeout_s: Some(60.0), rest_s: 1.0, ..config };
        let script: Arc<Mutex<Script>> = Arc::default();
        let policy = Scripted { script: Arc::clone(&script), probes };
        Self { cluster: Cluster::of(Engine::new(config, Box::new(policy))), script }
    }

    /// Sets the policy's actions for the next time that it is asked.
    fn order(&mut self, begin: &[(u32, u64)], copy: &[(u32, u32)], stop: &[u32]) {
        let begin = begin.iter().map(|&(number, tasks)| (worker(number), tasks)).collect();
        let copy = copy.iter().map(|&(copier, holder)| (worker(copier), worker(holder))).collect();
        let stop = stop.iter().map(|&number| worker(number)).collect();
        self.script.lock().unwrap().next = Actions { begin, copy, stop, ask_again_s: None };
    }

    /// Lets worker 2 begin to copy what worker 1 computes; returns its leases.
    fn copy(&mut self) -> Vec<(u32, Lease)> {
        self.ask(|play| play.order(&[], &[(2, 1)], &[]))
    }

    /// Asks the policy, at a time that means nothing to the engine.
    fn ask(&mut self, order: impl FnOnce(&mut Self)) -> Vec<(u32, Lease)> {
        order(self);
        assigned(&self.cluster.timeout())
    }

    fn left(&self) -> u64 {
        self.script.lock().unwrap().left
    }

    fn doing(&self, number: u32) -> Activity {
        self.script.lock().unwrap().doing[number as usize - 1]
    }
}

fn range(first: u64, count: u64) -> TaskRange {
    TaskRange { first, count }
}

fn busy(tasks: u64, elapsed_s: f64, is_copied: bool) -> Activity {
    Activity::Busy { tasks, elapsed_s, has_more: false, is_copied }
}

#[test]
fn while_local_steps_are_ahead_the_policy_hands_out_those() {
    let mut play = Play::with(EngineConfig { budget: 3, takes_local_steps: true, ..EngineConfig::default() }, false);
    play.order(&[(1, 1), (2, 1), (3, 1)], &[], &[]);
    let first = play.cluster.join_all(3);
    assert_eq!(assigned(&play.cluster.done(1, &lease_of(&first, 1)).unwrap()), []);
    let activity = play.script.lock().unwrap().doing.clone();
    assert!(matches!(activity[..2], [Activity::Idle, Activity::Busy { tasks: 1, .. }]), "{activity:?}");
    play.order(&[(2, 2)], &[], &[]);
    let next = assigned(&play.cluster.done(2, &lease_of(&first, 2)).unwrap());
    assert_eq!((holders(&next), next[0].1.iteration.number()), (vec![2], 2), "as soon as a worker is free");
}

#[test]
fn tasks_are_begun_as_ordered_and_each_result_is_a_question() {
    let (mut play, leases) = Play::begin(6, 2);
    assert_eq!((ranges(&leases), play.left()), (vec![(1, range(0, 2))], 6));
    assert_eq!(play.ask(|_| ()), [], "no other worker is to begin, and worker 1 computes");
    assert_eq!((play.left(), play.doing(1), play.doing(2)), (4, busy(2, 0.0, false), Activity::Idle));
    assert_eq!(play.script.lock().unwrap().idle, [2, 3]);
    play.cluster.now_s = 2.0;
    play.order(&[(2, 3), (1, 9)], &[], &[]);
    let more = assigned(&play.cluster.done(1, &leases[0].1).unwrap());
    assert_eq!(ranges(&more), [(2, range(2, 3)), (1, range(5, 1))], "no more than are left");
    play.cluster.now_s = 9.0;
    assert_eq!(steps(&play.cluster.done_all(&more)), [(1, vec![range(0, 6)])]);
}

/// If the policy takes no action and no worker computes, the remaining tasks go to the workers as lost tasks do.
#[test]
fn without_orders_the_run_goes_on() {
    let mut play = Play::new(6, false);
    let leases = play.cluster.join_all(3);
    assert_eq!(indices(&leases), [0, 1, 2, 3, 4, 5]);
    assert_eq!(holders(&leases).into_iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
}

#[test]
fn the_policy_is_asked_again_when_it_wants() {
    let mut play = Play::new(6, false);
    play.order(&[(1, 6)], &[], &[]);
    play.script.lock().unwrap().next.ask_again_s = Some(7.0);
    let leases = play.cluster.join_all(3);
    assert_eq!(play.cluster.engine.poll_timeout(), Some(7.0));
    play.cluster.now_s = 7.0;
    for at_s in [6.0, f64::NAN, f64::INFINITY] {
        play.script.lock().unwrap().next.ask_again_s = Some(at_s);
        play.cluster.timeout();
        assert_eq!(play.cluster.engine.poll_timeout(), Some(60.0), "only the deadline: {at_s} is not to come");
    }
    assert_eq!(play.script.lock().unwrap().asked, 4);
    play.script.lock().unwrap().next.ask_again_s = Some(9.0);
    play.cluster.timeout();
    play.cluster.done_all(&leases);
    assert_eq!(play.cluster.engine.poll_timeout(), None, "nothing is planned while the step waits");
}

#[test]
fn of_two_copies_the_first_result_counts() {
    for first in [1, 2] {
        let (mut play, leases) = Play::begin(2, 2);
        play.cluster.now_s = 1.0;
        let copy = play.copy();
        assert_eq!(ranges(&copy), [(2, range(0, 2))]);
        play.ask(|_| ());
        assert_eq!((play.doing(1), play.doing(2)), (busy(2, 1.0, true), busy(2, 0.0, false)));
        play.cluster.now_s = 3.0;
        let (one, other) = if first == 1 { (leases[0], copy[0]) } else { (copy[0], leases[0]) };
        let ended = play.cluster.done(first, &one.1).unwrap();
        assert_eq!(ended, [cancel(other.0, &other.1), step(1, vec![range(0, 2)])]);
        assert!(play.cluster.done(other.0, &other.1).is_err(), "what comes later is refused");
        play.cluster.commit(1);
        assert_eq!(play.cluster.applied_and_wasted().0, 2);
        assert_eq!(play.cluster.engine.ledger().results, 1);
    }
}

#[test]
fn a_copy_covers_a_holder_that_is_lost_and_the_other_way_round() {
    for lost in [1, 2] {
        let (mut play, _leases) = Play::begin(2, 2);
        let _copy = play.copy();
        assert_eq!(play.cluster.lose(lost), [], "the other one computes them");
        let other = 3 - lost;
        play.ask(|_| ());
        assert!(matches!(play.doing(other), Activity::Busy { is_copied: false, .. }));
        let again = assigned(&play.cluster.lose(other));
        assert_eq!(indices(&again), [0, 1], "once both are lost, worker 3 computes them");
        assert!(holders(&again).iter().all(|number| *number == 3), "{again:?}");
        play.cluster.now_s = 3.0;
        assert_eq!(steps(&play.cluster.done_all(&again)), [(1, vec![range(0, 2)])]);
    }
}

#[test]
fn who_gets_something_else_stops_its_probe_and_so_does_who_is_told_to() {
    let mut play = Play::new(4, true);
    play.order(&[(1, 2)], &[], &[]);
    let leases = play.cluster.join_all(3);
    assert_eq!(ranges(&leases), [(2, range(4, 1)), (3, range(5, 1)), (1, range(0, 2))]);
    assert_eq!(play.ask(|_| ()), []);
    assert_eq!(play.doing(2), Activity::Idle, "a probe stops for other work");
    assert_eq!(play.script.lock().unwrap().idle, [0; 0], "but it is something to do");
    play.cluster.now_s = 1.0;
    play.order(&[(2, 2)], &[], &[3]);
    let effects = play.cluster.timeout();
    let begun = assigned(&effects);
    assert_eq!(ranges(&begun), [(2, range(2, 2))]);
    assert!(effects.contains(&cancel(2, &leases[0].1)) && effects.contains(&cancel(3, &leases[1].1)), "{effects:?}");
    let copy = play.ask(|play| play.order(&[], &[(3, 1)], &[2, 1]));
    assert_eq!(ranges(&copy), [(3, range(0, 2))], "worker 3 is idle now");
    play.cluster.now_s = 2.0;
    let ended = play.cluster.done(2, &begun[0].1).unwrap();
    assert_eq!(ended, []);
}

/// If all workers are lost, the tasks wait for the policy and not for the first worker that joins.
#[test]
fn the_policy_decides_whether_to_employ_a_worker_that_joins() {
    let (mut play, _) = Play::begin(4, 1);
    for number in [2, 3, 1] {
        play.cluster.lose(number);
    }
    let lost = assigned(&play.cluster.join(4));
    assert_eq!((indices(&lost), play.left()), (vec![0], 3), "only what was lost is the engine's to hand out");
    play.cluster.now_s = 1.0;
    play.order(&[(4, 2)], &[], &[]);
    let leases = assigned(&play.cluster.done(4, &lost[0].1).unwrap());
    assert_eq!(leases.iter().map(|(_, lease)| lease.tasks.count).sum::<u64>(), 2);
}

/// Nobody could take over what a worker has been given, so the policy hands out lost tasks in parts, and the engine only if nobody computes.
#[test]
fn without_copies_lost_tasks_are_the_policys() {
    let mut play = Play::with(EngineConfig { budget: 6, takes_local_steps: true, ..EngineConfig::default() }, false);
    play.order(&[(1, 4), (2, 2)], &[], &[]);
    let leases = play.cluster.join_all(3);
    assert_eq!(assigned(&play.cluster.lose(1)), []);
    assert_eq!(play.left(), 4);
    let more = play.ask(|play| play.order(&[(3, 1)], &[], &[]));
    assert_eq!(ranges(&more), [(3, range(0, 1))]);
    let done = play.cluster.done(2, &lease_of(&leases, 2)).unwrap();
    assert_eq!((assigned(&done), play.left()), (vec![], 3), "worker 3 computes");
    let rest = assigned(&play.cluster.done(3, &more[0].1).unwrap());
    assert_eq!(indices(&rest), [1, 2, 3], "nobody does");
    assert_eq!(steps(&play.cluster.done_all(&rest)), [(1, vec![range(0, 6)])]);
    play.order(&[(3, 1)], &[], &[]);
    let again = assigned(&play.cluster.lose(2));
    assert_eq!((ranges(&again), play.left()), (vec![(3, range(4, 1))], 3), "the step waits for what worker 2 had");
}
