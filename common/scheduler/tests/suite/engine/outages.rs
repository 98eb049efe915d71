//! Failures that many workers share, and machines that fail under ever new names: when a run continues, and when it is given up.

use ata_scheduler::{AbortReason, EngineConfig, Verify};
use ata_types::{Lease, MachineId};

use crate::engine::drill::{Drill, Machine, Nature, Return, config};
use crate::engine::support::{Cluster, assigned, is_aborted};

/// One policy for each way to collect results.
const POLICIES: [&str; 7] = ["uta", "ata", "pull", "ata-auto", "gta", "k-sync:k=2", "asgd"];

const TASK_S: f64 = 0.01;

fn drill(policy: &str, min_workers: usize, iterations: u64) -> Drill {
    Drill::new(policy, EngineConfig { min_workers, ..config(12, iterations) })
}

fn finished(ended: &Drill, what: &str) {
    assert_eq!(ended.aborted, None, "{what}: {} failures until {} s", ended.failures_s.len(), ended.now_s);
}

/// Checks that the run was given up, but not before an outage could have passed, and not long after.
fn given_up(ended: &Drill, what: &str) {
    let what = format!("{what}: {} failures until {} s", ended.failures_s.len(), ended.now_s);
    assert!(matches!(ended.aborted, Some(AbortReason::TasksFailed { .. })), "{what}");
    assert!((120.0..=260.0).contains(&ended.now_s), "{what}");
}

/// Promise 23: an outage that all workers share costs a run its own time, and as much again at most. The same holds if a failure takes as
/// long as a worker keeps trying to read, and if one worker happens to read nothing meanwhile.
#[test]
fn an_outage_does_not_end_the_run() {
    for policy in POLICIES {
        // The run is long enough for the outage to fall into it.
        let iterations = if policy == "asgd" { 24_000 } else { 2000 };
        let undisturbed = drill(policy, 4, iterations).sound(4, TASK_S).run();
        // The outage begins in the first iteration, before any worker has delivered anything, or later.
        for (from_s, lasts_s, is_one_address, fails_s, spared) in [
            (0.0, 0.05, false, 0.001, None),
            (0.0, 60.0, true, 0.001, None),
            (0.3, 1.0, true, 0.001, None),
            (0.3, 10.0, false, 0.001, None),
            (0.3, 60.0, false, 0.001, None),
            (0.3, 3.0, false, 1.27, None),
            (0.3, 60.0, false, 1.27, None),
            (0.3, 0.5, false, 1.27, Some(2)),
            (0.3, 60.0, false, 1.27, Some(2)),
        ] {
            let mut drill = drill(policy, 4, iterations).sound(4, TASK_S);
            (drill.is_one_address, drill.fails_s, drill.spared) = (is_one_address, fails_s, spared);
            drill.outage_s = (from_s, from_s + lasts_s);
            let ended = drill.run();
            let what = format!("{policy}, {lasts_s} s from {from_s} s on, {fails_s} s, spared: {spared:?}");
            finished(&ended, &what);
            assert_eq!(ended.expelled, [], "{what}");
            // Policies that take the first results cancel the attempts of the others before they fail.
            let must_fail = spared.is_none() || ["uta", "ata", "pull"].contains(&policy);
            assert!(!must_fail || !ended.failures_s.is_empty(), "{what}");
            let lost_s = ended.now_s - undisturbed.now_s;
            assert!(lost_s <= 2.0 * (lasts_s + 1.0 + fails_s), "{what}: {lost_s} s longer");
        }
    }
}

/// An outage of minutes ends the run, with its true reason.
#[test]
fn an_outage_without_end_ends_the_run() {
    for policy in POLICIES {
        for (workers, is_one_address) in [(1, false), (4, false), (51, true), (400, false), (400, true)] {
            let mut drill = drill(policy, workers, 500_000).sound(workers as u64, TASK_S);
            (drill.is_one_address, drill.outage_s) = (is_one_address, (0.3, f64::INFINITY));
            let ended = drill.run();
            let what = format!("{policy}, {workers} workers, one address: {is_one_address}");
            given_up(&ended, &what);
            // Attempts become rare, and so do the log entries about them.
            assert!(ended.failures_s.len() <= 40 * 12.max(workers), "{what}: {}", ended.failures_s.len());
        }
    }
}

/// Training that has diverged ends the run soon, if workers can report so, and no worker is expelled for it.
#[test]
fn tasks_that_no_worker_can_compute_end_the_run_soon() {
    for policy in POLICIES {
        for (workers, fails_s) in [(1, 0.001), (2, 1.0), (8, 1.0), (51, 0.001), (400, 0.001)] {
            for is_one_address in [false, true] {
                let mut drill = drill(policy, workers, 500_000).sound(workers as u64, TASK_S);
                (drill.is_one_address, drill.fails_s) = (is_one_address, fails_s);
                (drill.uncomputable, drill.outage_s) = (|_: f64| true, (0.3, f64::INFINITY));
                let ended = drill.run();
                let what = format!("{policy}, {workers} workers, one address: {is_one_address}, {fails_s} s");
                assert!(matches!(ended.aborted, Some(AbortReason::TasksFailed { .. })), "{what}: {} s", ended.now_s);
                // Eight workers at one address that have delivered before have to try, one after the other.
                let longest_s = if fails_s < 1.0 { 40.0 } else { 80.0 };
                assert!(
                    (10.0..=longest_s).contains(&ended.now_s) && ended.expelled.is_empty(),
                    "{what}: {} s",
                    ended.now_s
                );
            }
        }
        // One failure among them that may be temporary is waited for: it could be the only cause that the workers share.
        let mut drill = drill(policy, 4, 500_000).sound(4, TASK_S);
        (drill.uncomputable, drill.outage_s) = (|at_s: f64| at_s > 3.0, (0.3, f64::INFINITY));
        given_up(&drill.run(), policy);
    }
}

/// Workers at one address have failed for two minutes. It is still unknown whether a sound worker at another address could succeed,
/// although it joins during the last attempt.
#[test]
fn a_worker_elsewhere_is_waited_for() {
    let config = EngineConfig { min_workers: 8, expel_after: None, lease_timeout_s: None, ..config(1, 1) };
    let mut cluster = Cluster::with("uta", config);
    let mut attempt: Vec<(u32, Lease)> =
        (1..=8).flat_map(|number| assigned(&cluster.join_on(number, MachineId(9)))).collect();
    for _ in 0..1000 {
        while attempt.is_empty() {
            cluster.now_s = cluster.engine.poll_timeout().unwrap();
            attempt = assigned(&cluster.timeout());
        }
        let (number, lease) = attempt[0];
        let is_last = cluster.now_s > 121.0;
        if is_last {
            assert_eq!(assigned(&cluster.join_on(10, MachineId(1))), []);
        }
        cluster.now_s += 0.001;
        let effects = cluster.fail(number, &lease);
        assert!(!is_aborted(&effects), "{effects:?}");
        if is_last {
            return;
        }
        attempt = assigned(&effects);
    }
    panic!("the failures do not last for two minutes");
}

fn broken(address: u64, nature: Nature, returns: Return) -> Machine {
    Machine { address, nature, returns }
}

fn three(drill: Drill, nature: Nature, returns: Return) -> Drill {
    (101..=103).fold(drill, |drill, address| drill.with(broken(address, nature, returns)))
}

/// Promises 17 and 24: machines that always fail or hang, and come back under new names, as containers do, cost a run
/// very little.
#[test]
fn broken_machines_under_new_names_cost_little() {
    // The run takes an hour, so that the rests of a machine that hangs end as well.
    let (task_s, iterations) = (0.1, 12_000);
    for policy in ["uta", "ata", "pull", "ata-auto"] {
        let alone = drill(policy, 5, iterations).sound(5, task_s).run();
        for nature in [Nature::Fails, Nature::Hangs] {
            for (returns, is_one_address) in [(Return::Same, false), (Return::Renamed, false), (Return::Renamed, true)]
            {
                let mut drill = three(drill(policy, 8, iterations), nature, returns).sound(5, task_s);
                drill.is_one_address = is_one_address;
                let ended = drill.run();
                let what = format!("{policy}, {nature:?}, {returns:?}, one address: {is_one_address}");
                finished(&ended, &what);
                let ratio = ended.pace_s() / alone.pace_s();
                assert!(ratio <= 1.1, "{what}: {ratio:.3} times as long");
            }
        }
    }
}

/// If their address is new as well, they cannot be recognized as the same. The sound workers still finish, even if their first results take
/// longer than any outage.
#[test]
fn broken_machines_at_new_addresses_do_not_end_the_run() {
    for policy in POLICIES {
        for (nature, task_s, iterations) in
            [(Nature::Fails, TASK_S, 30), (Nature::Hangs, TASK_S, 30), (Nature::Fails, 600.0, 3)]
        {
            let lease_timeout_s = Some(if task_s > 1.0 { 7200.0 } else { 60.0 });
            let config = EngineConfig { min_workers: 8, lease_timeout_s, ..config(12, iterations) };
            let drill = three(Drill::new(policy, config), nature, Return::Moved).sound(5, task_s);
            finished(&drill.run(), &format!("{policy}, {nature:?}, {task_s} s"));
        }
    }
}

/// A machine computes its share, but what it sends is refused, or it disappears before its sum arrives.
#[test]
fn a_machine_whose_sums_do_not_arrive_costs_little() {
    for policy in POLICIES {
        let pace_s = drill(policy, 3, 300).sound(3, TASK_S).run().pace_s();
        for returns in [Return::Same, Return::Renamed] {
            // The machine is a little faster than the others, so that it is among the first.
            let refused = broken(99, Nature::Refused(0.9 * TASK_S), returns);
            let ended = drill(policy, 4, 300).sound(3, TASK_S).with(refused).run();
            let what = format!("{policy}, {returns:?}");
            finished(&ended, &what);
            // The machine rests, longer each time.
            let mut failures_s = ended.failures_s.clone();
            failures_s.dedup();
            let expected = if returns == Return::Same { 1..=8 } else { 0..=0 };
            assert!(expected.contains(&failures_s.len()), "{what}: {failures_s:?}");
            assert!(ended.pace_s() < 2.2 * pace_s, "{what}: {} s, {pace_s} s without it", ended.pace_s());
        }
    }
}

#[test]
fn sums_that_are_refused_everywhere_end_the_run() {
    for policy in POLICIES {
        let mut drill = drill(policy, 4, 300);
        for address in 1..=4 {
            drill = drill.with(broken(address, Nature::Refused(TASK_S), Return::Same));
        }
        // Until then the machines rest, longer each time, and none is expelled.
        given_up(&drill.run(), policy);
    }
}

/// A sound worker that joins while all others fail is given work at once.
#[test]
fn a_newcomer_does_not_wait_for_the_next_attempt() {
    let drill = Drill::new("uta", config(12, 10)).with(broken(99, Nature::Fails, Return::Same));
    let ended = drill.later(50.0, broken(1, Nature::Sound(TASK_S), Return::Same)).run();
    finished(&ended, "uta");
    assert!(ended.now_s < 55.0, "it ended at {} s", ended.now_s);
}

/// Runs five sound workers at one address, whose leases are all checked, and possibly a machine at another address.
fn checked(other: Option<Machine>, iterations: u64) -> Drill {
    let verify = Some(Verify { share: 1.0, secret: 7 });
    let min_workers = 5 + usize::from(other.is_some());
    let config = EngineConfig { min_workers, verify, ..config(12, iterations) };
    let sound = broken(1, Nature::Sound(TASK_S), Return::Same);
    [sound; 5].into_iter().chain(other).fold(Drill::new("uta", config), Drill::with).run()
}

/// If the only other machine always fails or hangs, it does not keep the sound workers from confirming each other.
#[test]
fn a_broken_machine_does_not_hold_up_checks() {
    let iterations = 20_000;
    let alone = checked(None, iterations);
    for nature in [Nature::Fails, Nature::Hangs] {
        for returns in [Return::Same, Return::Renamed, Return::Moved] {
            // Under names that look like new machines, each hang costs the time that a new worker may take.
            let is_always_new = returns == Return::Moved && nature != Nature::Fails;
            let iterations = if is_always_new { 100 } else { iterations };
            let ended = checked(Some(broken(2, nature, returns)), iterations);
            let what = format!("{nature:?}, {returns:?}");
            finished(&ended, &what);
            let ratio = ended.now_s / alone.now_s;
            assert!(is_always_new || ratio <= 1.2, "{what}: {ratio:.3} times as long");
        }
    }
}
