//! Warm start: what an earlier run learned about a worker counts until it has faded or is contradicted.

use ata_scheduler::{Effect, Engine, EngineConfig, Event, Report, Rule, WorkerStatistics};
use ata_types::MachineId;

use crate::engine::support::{BUSY_S, Cluster, assigned, policy, worker};

/// Returns statistics of `observed` tasks with this mean time and standard deviation, in seconds.
fn learned(observed: u64, mean_s: f64, deviation_s: f64) -> WorkerStatistics {
    let count = observed as f64;
    let squares_s2 = count * (mean_s * mean_s + deviation_s * deviation_s);
    WorkerStatistics { observed, total_s: count * mean_s, squares_s2, ..WorkerStatistics::default() }
}

fn cluster(policy: &str, budget: u64, min_workers: usize) -> Cluster {
    Cluster::with(policy, EngineConfig { budget, iterations: 20_000, min_workers, ..EngineConfig::default() })
}

#[test]
fn the_first_decision_uses_it() {
    let mut cluster = cluster("ata-empirical", 4, 2);
    cluster.join_known(1, learned(200, 1.0, 0.5));
    cluster.join_known(2, learned(200, 3.0, 1.5));
    let decision = cluster.decision();
    assert_eq!((decision.rule, &decision.allocation[..]), (Rule::Ras, &[3, 1][..]));
}

#[test]
fn own_observations_are_added_to_it() {
    let mut cluster = cluster("uta", 2, 1);
    let lease = assigned(&cluster.join_known(1, learned(100, 0.5, 0.1)))[0].1;
    cluster.now_s = 1.0;
    cluster.done(1, &lease).unwrap();
    cluster.commit(1);
    let known = cluster.engine.statistics()[0];
    assert_eq!((known.observed, known.assignments), (102, 0), "the first assignment counts apart");
    assert!(known.first_overhead_s.is_some());
    assert!((known.total_s - 51.0).abs() < 1e-9);
}

/// Lets a worker fail and leave; returns whether another one, which joins at its address, inherits the failure.
fn takes_over(cluster: &mut Cluster, fails: u32, number: u32, prior: WorkerStatistics) -> bool {
    let machine = MachineId(77);
    let joined = |number, prior| Event::WorkerJoined { worker: worker(number), machine, prior, fuses: false };
    cluster.tell(joined(fails, WorkerStatistics::default()));
    cluster.tell(Event::Violation { worker: worker(fails) });
    cluster.lose(fails);
    cluster.tell(joined(number, prior)).iter().any(|effect| matches!(effect, Effect::Rest { .. }))
}

/// What an earlier run learned does not show that a worker works now; a result does, even one from before the run was resumed.
#[test]
fn only_a_result_proves_that_a_worker_is_sound() {
    let config = EngineConfig { budget: 1, iterations: 9, min_workers: 1, rest_s: 1.0, ..EngineConfig::default() };
    let mut cluster = Cluster::with("uta", config.clone());
    let (number, lease) = assigned(&cluster.join_on(1, MachineId(77)))[0];
    assert!(takes_over(&mut cluster, 2, 3, learned(200, 1.0, 0.5)), "it delivered nothing");
    cluster.report(number, lease.id, Report::Done { busy_s: &[BUSY_S], waited_s: 0.0 }).unwrap();
    cluster.commit(1);
    assert!(!takes_over(&mut cluster, 4, 1, WorkerStatistics::default()), "it delivered a result");

    let mut resumed = Cluster::of(Engine::restore(config, policy("uta"), cluster.engine.save()).unwrap());
    assert!(!takes_over(&mut resumed, 5, 1, WorkerStatistics::default()), "it delivered a result before");
    assert!(takes_over(&mut resumed, 6, 7, learned(200, 1.0, 0.5)), "it delivered nothing");
}

/// An unused prior halves every thousand iterations, and disappears eventually.
#[test]
fn it_fades() {
    let mut cluster = cluster("fta:means=1/1000", 1, 2);
    cluster.join(1);
    let mut effects = cluster.join_known(2, learned(200, 7.0, 1.0));
    let mut known = Vec::new();
    for iteration in 1..=9000 {
        cluster.now_s += 1.0;
        cluster.done(1, &assigned(&effects)[0].1).unwrap();
        effects = cluster.commit(iteration);
        if iteration % 1000 == 999 {
            known.push(cluster.engine.statistics()[1].observed);
        }
    }
    assert_eq!(known, [100, 50, 25, 12, 6, 3, 1, 0, 0], "from iterations 1000, 2000, ... on");
    assert_eq!(cluster.engine.statistics()[1], WorkerStatistics::default());
    assert_eq!(cluster.engine.statistics()[0].observed, 9000, "observations do not fade");
}

#[test]
fn it_is_dropped_when_observations_contradict_it() {
    for (mean_s, remembered) in [(0.5, 101), (0.9, 1), (9.0, 1)] {
        let mut cluster = cluster("uta", 1, 1);
        let lease = assigned(&cluster.join_known(1, learned(100, mean_s, 0.1)))[0].1;
        cluster.now_s = 1.0;
        cluster.done(1, &lease).unwrap();
        cluster.commit(1);
        assert_eq!(cluster.engine.statistics()[0].observed, remembered, "{BUSY_S} s against {mean_s} s");
    }
}

/// If two of three priors were wrong, the third is dropped as well, although it was never tested.
#[test]
fn when_most_are_wrong_all_are_dropped() {
    for (mean_s, remembered) in [(0.5, 100), (9.0, 0)] {
        let mut cluster = cluster("fta:means=1/1/1000", 2, 3);
        cluster.join_known(1, learned(100, mean_s, 0.1));
        cluster.join_known(2, learned(100, mean_s, 0.1));
        let leases = assigned(&cluster.join_known(3, learned(100, 7.0, 0.1)));
        cluster.now_s = 1.0;
        cluster.done_all(&leases);
        cluster.commit(1);
        assert_eq!(cluster.engine.statistics()[2].observed, remembered, "{BUSY_S} s against {mean_s} s");
    }
}

#[test]
fn what_cannot_have_been_observed_is_ignored() {
    let good = learned(10, 1.0, 0.1);
    for nonsense in [
        WorkerStatistics { total_s: f64::NAN, ..good },
        WorkerStatistics { total_s: -1.0, ..good },
        WorkerStatistics { total_s: 0.0, ..good },
        WorkerStatistics { squares_s2: f64::INFINITY, ..good },
        WorkerStatistics { overhead_s: -1.0, ..good },
        WorkerStatistics { observed: 0, ..good },
    ] {
        let mut cluster = cluster("ata", 2, 1);
        cluster.join_known(1, nonsense);
        assert_eq!(cluster.engine.statistics()[0], WorkerStatistics::default(), "{nonsense:?}");
        let decision = cluster.decision();
        assert_eq!(decision.rule, Rule::WarmUp { never_observed: 1, zero_score: 0 });
    }
}
