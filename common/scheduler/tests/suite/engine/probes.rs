//! Probes and races: tasks that no step waits for, and copies of the same task.

use std::sync::{Arc, Mutex};

use ata_scheduler::policy::{Round, SchedulerRng};
use ata_scheduler::{Collect, Decision, Engine, EngineConfig, Policy, Rule};
use ata_types::{Lease, TaskRange, WorkerId};

use crate::engine::support::{
    BUSY_S, Cluster, assigned, cancel, config, discard, evicted, indices, ranges, step, steps,
};

/// Workers and their task times; negative times belong to cancelled tasks.
type Heard = Arc<Mutex<Vec<(u32, f64)>>>;

/// A policy that gives worker 1 the budget, and every other worker a probe; or it lets all of them race.
struct Probing {
    race: bool,
    heard: Heard,
}

impl Policy for Probing {
    fn name(&self) -> &'static str {
        "probing"
    }

    fn decide(&mut self, round: &Round<'_>, _rng: &mut SchedulerRng) -> Decision {
        let n = round.workers.len();
        if self.race {
            return Decision::new(vec![1; n], Collect::Race { tasks: round.budget }, Rule::Uniform);
        }
        let mut allocation = vec![0; n];
        allocation[0] = round.budget;
        Decision { probes: (1..n).collect(), ..Decision::new(allocation, Collect::All, Rule::Uniform) }
    }

    fn observe(&mut self, worker: WorkerId, busy_s: f64) {
        self.heard.lock().unwrap().push((worker.number(), busy_s));
    }

    fn censored(&mut self, worker: WorkerId, _tasks: u64, elapsed_s: f64) {
        self.heard.lock().unwrap().push((worker.number(), -elapsed_s));
    }
}

fn begun(race: bool, overcommit: f64) -> (Cluster, Vec<(u32, Lease)>, Heard) {
    let config = EngineConfig { rest_s: 1.0, overcommit, ..config(2, 3) };
    let heard: Heard = Arc::default();
    let probing = Probing { race, heard: Arc::clone(&heard) };
    let mut cluster = Cluster::of(Engine::new(config, Box::new(probing)));
    let leases = cluster.join_all(3);
    (cluster, leases, heard)
}

const BOTH: TaskRange = TaskRange { first: 0, count: 2 };

#[test]
fn a_probe_is_observed_and_not_waited_for() {
    let (mut cluster, leases, heard) = begun(false, 0.0);
    assert_eq!(ranges(&leases), [(1, BOTH), (2, TaskRange::single(2)), (3, TaskRange::single(3))]);
    cluster.now_s = BUSY_S;
    assert_eq!(cluster.done(2, &leases[1].1), Ok(vec![discard(2, &leases[1].1)]));
    cluster.now_s = 2.0 * BUSY_S;
    let ended = cluster.done(1, &leases[0].1).unwrap();
    assert_eq!(ended, [cancel(3, &leases[2].1), step(1, vec![BOTH])]);
    assert_eq!(*heard.lock().unwrap(), [(2, BUSY_S), (1, BUSY_S), (1, BUSY_S), (3, -2.0 * BUSY_S)]);
    assert_eq!(cluster.engine.statistics()[1].observed, 1);
    cluster.commit(1);
    assert_eq!(cluster.applied_and_wasted(), (2, 2));
    assert_eq!(cluster.engine.ledger().total_worker_time_s, 5.0 * BUSY_S);
}

/// The time before a cancelled worker has the parameters says nothing about its speed: here half as long again as two of three waited.
#[test]
fn a_worker_that_waits_for_parameters_is_not_slow() {
    for (receives_s, cut) in [(2.0, None), (0.5, Some(-0.75))] {
        let (mut cluster, leases, heard) = begun(false, 0.0);
        cluster.now_s = receives_s + BUSY_S;
        cluster.computed_after(2, &leases[1].1, receives_s).unwrap();
        cluster.now_s = receives_s + 2.0 * BUSY_S;
        cluster.computed_after(1, &leases[0].1, receives_s).unwrap();
        let of_third = heard.lock().unwrap().iter().find(|(worker, _)| *worker == 3).map(|(_, seconds)| *seconds);
        assert_eq!(of_third, cut, "received after {receives_s} s");
    }
}

/// However often a probe fails, is lost or is overdue, no other worker is affected.
#[test]
fn a_probe_that_comes_to_nothing_is_nobody_elses() {
    let (mut cluster, leases, _) = begun(false, 0.0);
    assert_eq!(cluster.fail(2, &leases[1].1), []);
    assert_eq!(cluster.lose(3), []);
    cluster.now_s = 1.0;
    assert_eq!(steps(&cluster.done(1, &leases[0].1).unwrap()), [(1, vec![BOTH])]);

    cluster.join(3);
    assert_eq!(cluster.timeout(), [], "worker 2 has rested");
    let leases = assigned(&cluster.commit(1));
    cluster.now_s = 50.0;
    cluster.done(2, &leases[1].1).unwrap();
    cluster.now_s = 62.0;
    let overdue = cluster.timeout();
    assert!(evicted(&overdue).contains(&3), "{overdue:?}");
    assert!(assigned(&overdue).iter().all(|(_, lease)| lease.tasks.end() <= 2), "{overdue:?}");
}

#[test]
fn who_is_needed_stops_probing() {
    let (mut cluster, leases, heard) = begun(false, 0.0);
    cluster.now_s = 4.0;
    let effects = cluster.lose(1);
    assert!(effects.contains(&cancel(2, &leases[1].1)) && effects.contains(&cancel(3, &leases[2].1)));
    let again = assigned(&effects);
    assert_eq!(indices(&again), [0, 1]);
    let mut cut = heard.lock().unwrap().clone();
    cut.sort_by_key(|(number, _)| *number);
    assert_eq!(cut, [(2, -4.0), (3, -4.0)]);
    cluster.now_s = 5.0;
    assert_eq!(steps(&cluster.done_all(&again)), [(1, vec![BOTH])]);
}

#[test]
fn in_a_race_the_first_result_of_each_task_counts() {
    for overcommit in [0.0, 1.0] {
        let (mut cluster, leases, heard) = begun(true, overcommit);
        assert_eq!(indices(&leases), [0, 0, 1], "a copy of each, in turn");
        cluster.now_s = 1.0;
        let [(a, first), (b, copy), (c, last)] = [leases[0], leases[2], leases[1]];
        let effects = cluster.done(a, &first).unwrap();
        let next = assigned(&effects);
        assert_eq!(indices(&next), [1], "what is not done yet");
        let effects = cluster.done(b, &copy).unwrap();
        assert_eq!(effects[0], discard(b, &copy));
        assert_eq!(indices(&assigned(&effects)), [1]);
        cluster.now_s = 2.0;
        assert_eq!(steps(&cluster.done(c, &last).unwrap()), [(1, vec![BOTH])]);
        assert_eq!(heard.lock().unwrap()[3..], [(a, -1.0), (b, -1.0)]);
        cluster.commit(1);
        assert_eq!(cluster.applied_and_wasted(), (2, 3));
        assert_eq!(cluster.engine.ledger().total_worker_time_s, 3.0 * 2.0);
    }
}
