//! Tests the shares of workers that step together.

use ata_policies::POLICIES;
use ata_scheduler::Lockstep;

/// The cost of a worker's share, (o, s): a tasks take o + a·s seconds.
type Cost = (f64, f64);

fn lockstep(workers: usize, budget: u64, policy: &str) -> Lockstep {
    Lockstep::new(workers as u32, budget, POLICIES, policy, 1).unwrap()
}

/// Runs an iteration with these costs. Returns the shares, and the time that the step takes.
fn iterate(lockstep: &mut Lockstep, costs: &[Cost]) -> (Vec<u64>, f64) {
    let shares = lockstep.next().unwrap();
    let mut longest_s = 0.0_f64;
    let computed = shares.iter().zip(costs).enumerate().filter(|(_, (tasks, _))| **tasks > 0);
    for (worker, (&tasks, &(fixed_s, per_task_s))) in computed {
        let seconds = fixed_s + tasks as f64 * per_task_s;
        longest_s = longest_s.max(seconds);
        lockstep.observe(worker, tasks, seconds).unwrap();
    }
    (shares, longest_s)
}

fn accepted() -> Vec<String> {
    let named = Lockstep::policies(POLICIES).map(|entry| match entry.name {
        "fta" | "cmab-oracle" => format!("{}:means=1/2/4/8", entry.name),
        name => name.to_owned(),
    });
    named.collect()
}

#[test]
fn policies_that_do_not_wait_for_whole_shares_are_refused() {
    let names = "ata ata-empirical ata-auto uta fta:means=1/2/4/8 ema proportional controller affine cmab-lcb cmab-kl \
                 successive cmab-oracle:means=1/2/4/8";
    assert_eq!(accepted(), names.split_whitespace().collect::<Vec<_>>());
    let others = POLICIES.entries().iter().filter(|entry| !names.contains(entry.name));
    assert!(others.into_iter().all(|entry| Lockstep::new(4, 16, POLICIES, entry.name, 0).is_err()));
    for (policy, message) in [
        ("gta", "policy 'gta' is racing: it takes the first results"),
        ("k-sync", "is racing"),
        ("asgd", "policy 'asgd' is asynchronous"),
        ("pull", "policy 'pull' hands out tasks while an iteration runs"),
        ("gradient-coding", "hands out tasks"),
        ("clairvoyant", "knows what only a simulation knows"),
        ("best", "unknown policy 'best': expected one of ata"),
    ] {
        let error = Lockstep::new(4, 16, POLICIES, policy, 0).err().expect(policy).to_string();
        assert!(error.contains(message), "{policy}: {error}");
    }
}

/// A worker that is too slow for a single task is left out, and found again when it has become faster.
#[test]
fn a_worker_without_a_share_is_probed() {
    let mut lockstep = lockstep(3, 8, "ata-auto");
    let slow = [(0.0, 1.0), (0.0, 1.0), (0.0, 30.0)];
    let all: Vec<(Vec<u64>, f64)> = (0..2000).map(|_| iterate(&mut lockstep, &slow)).collect();
    let employed = all[10..].iter().filter(|(shares, _)| shares[2] > 0).count();
    let lost_s = all[10..].iter().map(|(_, longest_s)| longest_s / 4.0 - 1.0).sum::<f64>();
    assert!((1..=5).contains(&employed) && lost_s < 0.02 * 2000.0, "{employed} times, {lost_s} iterations");
    let equal = [(0.0, 1.0); 3];
    let found = (0..2000).position(|_| iterate(&mut lockstep, &equal).0[2] > 1);
    assert!(found.is_some());
}

#[test]
fn workers_leave_and_come_back() {
    let mut lockstep = lockstep(2, 12, "ata-auto");
    let costs = [(0.0, 1.0), (0.0, 2.0), (0.0, 1.0)];
    for _ in 0..5 {
        iterate(&mut lockstep, &costs);
    }
    assert_eq!(lockstep.next().unwrap(), [8, 4]);
    lockstep.leave(0).unwrap();
    assert_eq!(lockstep.next().unwrap(), [0, 12]);
    assert_eq!(lockstep.join().unwrap(), 2);
    lockstep.rejoin(0).unwrap();
    assert_eq!(lockstep.present().collect::<Vec<_>>(), [0, 1, 2]);
    for _ in 0..5 {
        iterate(&mut lockstep, &costs);
    }
    assert_eq!(lockstep.next().unwrap(), [5, 2, 5]);
    for (error, text) in [
        (lockstep.rejoin(1), "worker 1 is present already"),
        (lockstep.leave(7), "worker 7 is unknown: there are 3 workers, numbered from 0"),
        (lockstep.observe(3, 1, 1.0), "worker 3 is unknown"),
        (lockstep.observe(0, 0, 1.0), "0 tasks: expected 1 to 16777216"),
        (lockstep.observe(0, 1, f64::NAN), "NaN seconds: expected a finite number of at least 0"),
        (lockstep.observe(0, 1, -1.0), "-1 seconds"),
    ] {
        assert!(error.unwrap_err().to_string().contains(text), "{text}");
    }
    let many = (0..1 << 21).find_map(|_| lockstep.observe(0, 1, 1.0).err()).unwrap();
    assert_eq!(many.to_string(), "1048576 observations since the last decision: begin the next iteration first");
    (0..3).for_each(|worker| lockstep.leave(worker).unwrap());
    assert_eq!(lockstep.leave(0).unwrap_err().to_string(), "worker 0 is not present");
    assert_eq!(lockstep.next().unwrap_err().to_string(), "no worker is present: one has to join first");
}

/// Shares add up to the budget, except for the bandits of Egger et al., which employ r workers with a task each.
#[test]
fn shares_are_of_the_budget_and_what_is_saved_continues() {
    let costs = [(0.0, 1.0), (0.5, 2.0), (0.0, 4.0), (3.0, 8.0)];
    for policy in accepted() {
        let mut first = lockstep(4, 50, &policy);
        let chooses = policy.starts_with("cmab") || policy == "successive";
        for _ in 0..51 {
            let (shares, _) = iterate(&mut first, &costs);
            assert!(chooses || shares.iter().sum::<u64>() == 50, "{policy}: {shares:?}");
        }
        let saved = serde_json::to_string(&first.save()).unwrap();
        let mut second = lockstep(4, 50, &policy);
        second.next().unwrap();
        second.restore(serde_json::from_str(&saved).unwrap()).unwrap();
        for _ in 0..9 {
            assert_eq!(iterate(&mut first, &costs), iterate(&mut second, &costs), "{policy}");
        }
        assert_eq!(first.iteration(), 60);
    }
}

/// A policy other than the saved one knows the workers' speeds.
#[test]
fn another_policy_begins_with_what_is_known() {
    let costs = [(0.0, 1.0), (0.0, 3.0)];
    let mut first = lockstep(2, 40, "affine");
    (0..9).for_each(|_| drop(iterate(&mut first, &costs)));
    for policy in ["ata-auto", "ema", "proportional"] {
        let mut second = lockstep(2, 40, policy);
        second.restore(first.save()).unwrap();
        assert_eq!(second.next().unwrap(), [30, 10], "{policy}");
    }
}

#[test]
fn a_damaged_state_is_refused_and_changes_nothing() {
    let mut lockstep = lockstep(2, 9, "ata-auto");
    (0..4).for_each(|_| drop(iterate(&mut lockstep, &[(0.0, 1.0), (0.0, 2.0)])));
    let text = serde_json::to_string(&lockstep.save()).unwrap();
    for (good, bad) in [
        ("\"version\":1", "\"version\":9"),
        ("\"next_iteration\":5", "\"next_iteration\":0"),
        ("\"total_s\":", "\"total_s\":-"),
        ("\"tasks\":3,\"seconds\"", "\"tasks\":0,\"seconds\""),
        ("\"worker\":2", "\"worker\":3"),
        ("\"probes\":0.0", "\"probes\":-1.0"),
        ("\"policy_state\":[", "\"policy_state\":[0,"),
    ] {
        let damaged = text.replace(good, bad);
        assert_ne!(damaged, text, "{good} is not in {text}");
        assert!(lockstep.restore(serde_json::from_str(&damaged).unwrap()).is_err(), "{bad}");
    }
    assert_eq!(serde_json::to_string(&lockstep.save()).unwrap(), text);
}

/// Three workers that compute 100 tasks a second together, and rounds of 24 to `most` tasks.
fn rounds(most: u64) -> Lockstep {
    let mut lockstep = lockstep(3, 24, "ata-auto").with_rounds(most).unwrap();
    lockstep.next().unwrap();
    lockstep
}

/// Returns the tasks of the rounds that follow ones with these waits and exchanges, in which each worker computes a third.
fn lengths(lockstep: &mut Lockstep, measured: &[(f64, f64)]) -> Vec<u64> {
    let each = measured.iter().map(|(waited_s, beside_s)| {
        // In two parts, which count as one.
        for (worker, part) in (0..3).flat_map(|worker| [(worker, 2), (worker, 6)]) {
            lockstep.observe(worker, part, part as f64 * 0.03).unwrap();
        }
        lockstep.observe_exchange(*waited_s, *beside_s).unwrap();
        let shares = lockstep.next().unwrap();
        assert_eq!(shares.iter().sum::<u64>(), lockstep.budget());
        lockstep.budget()
    });
    each.collect()
}

#[test]
fn rounds_hide_waits_and_exchanges() {
    // 180 tasks take 1.8 s of 2 s.
    assert_eq!(lengths(&mut rounds(960), &[(0.2, 0.0); 3]), [180; 3]);
    // While 2 s pass that nobody waits for, workers compute 200 tasks, and 222 with the tenth that is left.
    assert_eq!(lengths(&mut rounds(960), &[(0.01, 2.0); 3]), [192, 222, 222]);
    assert_eq!(lengths(&mut rounds(960), &[(9.0, 0.0); 3]), [192, 960, 960]);
    assert_eq!(lengths(&mut rounds(100), &[(0.2, 2.0); 2]), [100; 2]);
    // Two of five rounds are odd, and then the link is free. In a round that was not measured, nothing changes.
    let mut lockstep = rounds(960);
    lengths(&mut lockstep, &[(0.2, 0.0); 5]);
    assert_eq!(lengths(&mut lockstep, &[(60.0, 0.0), (0.2, 60.0), (0.2, 0.0)]), [180; 3]);
    lockstep.observe_exchange(1.0, 1.0).unwrap();
    lockstep.next().unwrap();
    assert_eq!((lockstep.budget(), lengths(&mut lockstep, &[(0.0, 0.0); 6])[3..].to_vec()), (180, vec![45, 24, 24]));
}

#[test]
fn rounds_go_on_where_they_were() {
    let mut first = rounds(960);
    lengths(&mut first, &[(0.2, 0.0); 3]);
    let saved = first.save();
    for (most, tasks) in [(960, 180), (100, 100)] {
        let mut second = rounds(most);
        second.restore(saved.clone()).unwrap();
        assert_eq!(
            (second.budget(), lengths(&mut second, &[(9.0, 0.0); 2])),
            (tasks, vec![tasks; 2]),
            "medians of five"
        );
    }
    let mut steps = lockstep(3, 24, "ata-auto");
    steps.restore(saved.clone()).unwrap();
    assert_eq!(steps.budget(), 24);
    let text = serde_json::to_string(&saved).unwrap();
    for (good, bad) in [("\"tasks\":180", "\"tasks\":0"), ("\"exchange_s\":0.2", "\"exchange_s\":-1.0")] {
        let damaged = text.replace(good, bad);
        assert_ne!(damaged, text, "{good} is not in {text}");
        assert!(first.restore(serde_json::from_str(&damaged).unwrap()).is_err(), "{bad}");
    }
    assert!(steps.observe_exchange(1.0, 0.0).unwrap_err().to_string().contains("no rounds"));
    for seconds in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(first.observe_exchange(0.0, seconds).is_err() && first.observe_exchange(seconds, 0.0).is_err());
    }
    let refused = lockstep(3, 24, "ata-auto").with_rounds(23).err().unwrap().to_string();
    assert!(refused.contains("23 tasks per round: expected 24, the least number, to"), "{refused}");
}
