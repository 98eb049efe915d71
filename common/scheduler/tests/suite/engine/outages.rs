//! Failures that many workers share, and machines that fail under ever new names: when a run continues, and when it is given up.

use ata_scheduler::{AbortReason, Effect, EngineConfig, Verify};
use ata_types::{Lease, MachineId};

use crate::engine::drill::{Drill, Ended, Machine, Nature, Return, config};
use crate::engine::support::{Cluster, assigned};

/// One policy for each way to collect results.
const POLICIES: [&str; 7] = ["uta", "ata", "pull", "ata-auto", "gta", "k-sync:k=2", "asgd"];

/// Seconds that a task takes.
const TASK_S: f64 = 0.01;

fn drill(policy: &str, min_workers: usize, iterations: u64) -> Drill {
    Drill::new(policy, EngineConfig { min_workers, ..config(12, iterations) })
}

fn finished(ended: &Ended, what: &str) {
    assert_eq!(ended.aborted, None, "{what}: {} failures until {} s", ended.failures_s.len(), ended.at_s);
}

/// Checks that the run was given up, but not before an outage could have passed, and not long after.
fn given_up(ended: &Ended, what: &str) {
    let what = format!("{what}: {} failures until {} s", ended.failures_s.len(), ended.at_s);
    assert!(matches!(ended.aborted, Some(AbortReason::TasksFailed { .. })), "{what}");
    assert!((120.0..=260.0).contains(&ended.at_s), "{what}");
}

/// Runs four sound workers that can compute nothing for a while.
fn outage(policy: &str, is_one_address: bool, from_s: f64, lasts_s: f64) -> Ended {
    // The run is long enough for the outage to fall into it.
    let iterations = if policy == "asgd" { 2400 } else { 200 };
    let drill = drill(policy, 4, iterations).sound(4, TASK_S).at_one_address(is_one_address);
    drill.outage(from_s, from_s + lasts_s).run()
}

/// Promise 23: an outage that all workers share costs a run its own time, and as much again at most.
#[test]
fn an_outage_of_all_workers_does_not_end_the_run() {
    for policy in POLICIES {
        let undisturbed = outage(policy, false, 0.0, 0.0);
        for (lasts_s, is_one_address) in [(0.05, false), (1.0, true), (10.0, false), (60.0, false), (60.0, true)] {
            // The outage begins in the first iteration, before any worker has delivered anything, or later.
            for from_s in [0.0, 0.3] {
                let ended = outage(policy, is_one_address, from_s, lasts_s);
                let what = format!("{policy}, {lasts_s} s from {from_s} s on");
                finished(&ended, &what);
                assert!(!ended.failures_s.is_empty() && ended.expelled.is_empty(), "{what}: {ended:?}");
                let lost_s = ended.at_s - undisturbed.at_s;
                println!("{what}: {lost_s:.2} s longer");
                assert!(lost_s <= 2.0 * lasts_s + 2.0, "{what}: {lost_s} s longer");
            }
        }
    }
}

/// The same holds if a failure takes as long as a worker keeps trying to read, and if one worker happens to read nothing meanwhile.
#[test]
fn an_outage_of_most_workers_costs_as_little() {
    for policy in POLICIES {
        for spared in [None, Some(2)] {
            let iterations = if policy == "asgd" { 24_000 } else { 2000 };
            let run = |lasts_s: f64| {
                let drill = drill(policy, 4, iterations).sound(4, TASK_S).fails_after(1.27).sparing(spared);
                drill.outage(0.3, 0.3 + lasts_s).run()
            };
            let undisturbed = run(0.0);
            for lasts_s in [0.5, 3.0, 10.0, 60.0] {
                let ended = run(lasts_s);
                let what = format!("{policy}, {lasts_s} s, spared: {spared:?}");
                finished(&ended, &what);
                assert_eq!(ended.expelled, [], "{what}");
                // Policies that take the first results cancel the attempts of the others before they fail.
                let may_fail = spared.is_none() || ["uta", "ata", "pull"].contains(&policy);
                assert!(!may_fail || ended.failures_s.len() > 2, "{what}: {:?}", ended.failures_s);
                let lost_s = ended.at_s - undisturbed.at_s;
                println!("{what}: {lost_s:.2} s longer");
                assert!(lost_s <= 2.0 * lasts_s + 2.0 + 2.0 * 1.27, "{what}: {lost_s} s longer");
            }
        }
    }
}

/// An outage of minutes ends the run, with its true reason.
#[test]
fn an_outage_without_end_ends_the_run() {
    for policy in POLICIES {
        for workers in [1, 4, 51, 400] {
            for is_one_address in [false, true] {
                let drill = drill(policy, workers, 500_000).sound(workers as u64, TASK_S);
                let ended = drill.at_one_address(is_one_address).outage(0.3, f64::INFINITY).run();
                let what = format!("{policy}, {workers} workers, one address: {is_one_address}");
                println!("{what}: {} s, {} failures", ended.at_s, ended.failures_s.len());
                given_up(&ended, &what);
                // Attempts become rare, and so do the log entries about them.
                assert!(ended.failures_s.len() <= 40 * 12.max(workers), "{what}: {}", ended.failures_s.len());
            }
        }
    }
}

/// Training that has diverged ends the run soon, if workers can report so, and no worker is expelled for it.
#[test]
fn tasks_that_no_worker_can_compute_end_the_run_soon() {
    for policy in POLICIES {
        for (workers, fails_s) in [(1, 0.001), (2, 1.0), (4, 0.001), (8, 1.0), (51, 0.001), (51, 1.0), (400, 0.001)] {
            for is_one_address in [false, true] {
                let drill = drill(policy, workers, 500_000).sound(workers as u64, TASK_S).uncomputable(|_| true);
                let ended = drill.fails_after(fails_s).at_one_address(is_one_address).outage(0.3, f64::INFINITY).run();
                let what = format!("{policy}, {workers} workers, one address: {is_one_address}, {fails_s} s");
                println!("{what}: {} s, {} failures", ended.at_s, ended.failures_s.len());
                assert!(matches!(ended.aborted, Some(AbortReason::TasksFailed { .. })), "{what}: {ended:?}");
                // Eight workers at one address that have delivered before have to try, one after the other.
                let longest_s = if fails_s < 1.0 { 40.0 } else { 80.0 };
                assert!((10.0..=longest_s).contains(&ended.at_s) && ended.expelled.is_empty(), "{what}: {ended:?}");
            }
        }
    }
}

/// One failure among them that may be temporary is reason enough to wait for two minutes: it could be the only cause that the workers
/// share.
#[test]
fn a_failure_that_may_pass_is_waited_for() {
    for policy in POLICIES {
        let drill = drill(policy, 4, 500_000).sound(4, TASK_S).uncomputable(|at_s| at_s > 3.0);
        given_up(&drill.outage(0.3, f64::INFINITY).run(), policy);
    }
}

/// One task fails everywhere, and all others succeed.
#[test]
fn a_task_that_no_worker_can_compute_ends_the_run() {
    for policy in ["uta", "ata", "pull", "ata-auto"] {
        for workers in [5, 51] {
            for is_one_address in [false, true] {
                let drill = drill(policy, workers, 200).sound(workers as u64, TASK_S).cursed(7, 3);
                let ended = drill.at_one_address(is_one_address).run();
                given_up(&ended, &format!("{policy}, {workers} workers, one address: {is_one_address}"));
            }
        }
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
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::Abort { .. })), "{effects:?}");
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

/// One machine under four names counts as one, and has no effect as long as others deliver.
#[test]
fn a_client_with_four_names_does_not_end_the_run() {
    for policy in POLICIES {
        for sound in [1, 5] {
            for is_one_address in [false, true] {
                let mut drill = drill(policy, 4 + sound, 100).at_one_address(is_one_address);
                for _ in 0..4 {
                    drill = drill.with(broken(99, Nature::Fails, Return::Same));
                }
                finished(&drill.sound(sound as u64, TASK_S).run(), &format!("{policy}, {sound} sound workers"));
            }
        }
    }
}

/// Adds three broken machines to a drill.
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
                let drill = drill(policy, 8, iterations).at_one_address(is_one_address);
                let ended = three(drill, nature, returns).sound(5, task_s).run();
                let what = format!("{policy}, {nature:?}, {returns:?}, one address: {is_one_address}");
                finished(&ended, &what);
                let ratio = ended.pace_s() / alone.pace_s();
                println!("{what}: {ratio:.4} times as long, {} names", ended.names);
                assert!(ratio <= 1.1, "{what}: {ratio:.3} times as long");
            }
        }
    }
}

/// If their address is new as well, they cannot be recognized as the same; the sound workers still finish.
#[test]
fn broken_machines_at_new_addresses_do_not_end_the_run() {
    for policy in POLICIES {
        for nature in [Nature::Fails, Nature::Hangs] {
            let drill = three(drill(policy, 8, 30), nature, Return::Moved).sound(5, TASK_S);
            finished(&drill.run(), &format!("{policy}, {nature:?}"));
        }
    }
}

/// The run also continues while the first results of the sound workers take longer than any outage.
#[test]
fn sound_workers_that_are_slow_are_waited_for() {
    for policy in POLICIES {
        let config = EngineConfig { min_workers: 8, lease_timeout_s: Some(7200.0), ..config(12, 3) };
        let drill = three(Drill::new(policy, config), Nature::Fails, Return::Moved).sound(5, 600.0);
        finished(&drill.run(), policy);
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
            println!("{what}: {:.2} times as long", ended.pace_s() / pace_s);
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
    assert!(ended.at_s < 55.0, "it ended at {} s", ended.at_s);
}

/// Runs five sound workers at one address, whose leases are all checked, and possibly a machine at another address.
fn checked(other: Option<Machine>, iterations: u64) -> Ended {
    let verify = Some(Verify { share: 1.0, secret: 7 });
    let min_workers = 5 + usize::from(other.is_some());
    let config = EngineConfig { min_workers, verify, ..config(12, iterations) };
    let sound = broken(1, Nature::Sound(TASK_S), Return::Same);
    let drill = (0..5).fold(Drill::new("uta", config), |drill, _| drill.with(sound));
    other.into_iter().fold(drill, Drill::with).run()
}

/// If the only other machine always fails or hangs, it does not keep the sound workers from confirming each other.
#[test]
fn a_broken_machine_does_not_hold_up_checks() {
    let iterations = 20_000;
    let alone = checked(None, iterations);
    for nature in [Nature::Fails, Nature::Hangs, Nature::Breaks(TASK_S, 1.0)] {
        for returns in [Return::RenamedAfter(3), Return::Same, Return::Renamed, Return::Moved] {
            // Under names that look like new machines, each hang costs the time that a new worker may take.
            let is_always_new = returns == Return::Moved && nature != Nature::Fails;
            let iterations = if is_always_new { 100 } else { iterations };
            let ended = checked(Some(broken(2, nature, returns)), iterations);
            let what = format!("{nature:?}, {returns:?}");
            finished(&ended, &what);
            let ratio = ended.at_s / alone.at_s;
            println!("{what}: {} s, {ratio:.3} times as long, {} names", ended.at_s, ended.names);
            assert!(is_always_new || ratio <= 1.2, "{what}: {ratio:.3} times as long");
        }
    }
}
