//! Overcommitment: more tasks are allocated than the step needs, and the first results make the step.

use ata_scheduler::{Collect, EngineConfig, Refusal};
use ata_types::TaskRange;

use crate::engine::support::{assigned, begun, cancel, config, holders, step};

#[test]
fn the_first_results_make_the_step() {
    let (mut cluster, leases) = begun("uta", EngineConfig { overcommit: 0.5, ..config(4, 2) });
    assert_eq!(holders(&leases), [1, 1, 1, 2, 2, 2]);
    assert!(leases.iter().all(|(_, lease)| lease.tasks.count == 1), "any task may be among the first");
    cluster.now_s = 2.0;
    for (number, lease) in &leases[..3] {
        assert_eq!(cluster.done(*number, lease), Ok(vec![]), "a worker that has finished its share is idle");
    }
    cluster.now_s = 3.0;
    let [(_, first), (_, begun), (_, waiting)] = leases[3..] else { panic!("three tasks each") };
    let expected = [cancel(2, &begun), cancel(2, &waiting), step(1, vec![TaskRange { first: 0, count: 4 }])];
    assert_eq!(cluster.done(2, &first).unwrap(), expected);
    assert_eq!(cluster.done(2, &begun), Err(Refusal::NotHeld(begun.id)));

    assert_eq!(assigned(&cluster.commit(1)).len(), 6);
    let ledger = cluster.engine.ledger();
    assert_eq!((ledger.tasks_applied, ledger.tasks_wasted), (4, 1), "what was not begun is not wasted");
    assert_eq!(ledger.total_worker_time_s, 4.0 * 0.5 + 2.5, "busy time, and the time since the cancelled one began");
    assert_eq!(ledger.iteration_time_s, 3.0);
}

/// Overcommitment allocates B(1 + x) tasks, rounded up; products that are whole except for rounding count as whole.
#[test]
fn how_many_tasks() {
    for (budget, overcommit, tasks) in
        [(4, 0.0, 4), (4, 0.01, 5), (4, 0.25, 5), (4, 0.26, 6), (100, 0.07, 107), (25, 0.28, 32), (1, 10.0, 11)]
    {
        let (cluster, _) = begun("uta", EngineConfig { overcommit, ..config(budget, 1) });
        let decision = cluster.decision();
        assert_eq!(decision.allocation, [tasks], "{budget} x (1 + {overcommit})");
        let expected = if tasks == budget { Collect::All } else { Collect::Soonest { take: budget } };
        assert_eq!(decision.collect, expected);
    }
    // A race takes B results, as without overcommitment.
    let (cluster, _) = begun("gta", EngineConfig { overcommit: 1.0, ..config(2, 1) });
    assert_eq!(cluster.decision().collect, Collect::First { take: 2, refill: true });
}
