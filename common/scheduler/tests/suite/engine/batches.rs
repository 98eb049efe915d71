//! Workers that compute a lease as one batch.

use ata_scheduler::{AbortReason, CostLine, Effect, Engine, EngineConfig, Refusal, Report, SavedEngine};
use ata_types::{Lease, TaskRange};

use crate::engine::support::{Cluster, assigned, indices, policy, ranges, step};

fn range(first: u64, count: u64) -> TaskRange {
    TaskRange { first, count }
}

/// `fta` gives workers 1 to 3 shares of 12, 6 and 3; those in `fusing` compute batches.
fn cluster(fusing: &[u32]) -> (Cluster, Vec<(u32, Lease)>) {
    let mut cluster = Cluster::new("fta", 21, 3);
    let mut leases = Vec::new();
    for number in 1..=3 {
        let effects = if fusing.contains(&number) { cluster.join_fusing(number) } else { cluster.join(number) };
        leases.extend(assigned(&effects));
    }
    assert_eq!(indices(&leases), (0..21).collect::<Vec<_>>());
    (cluster, leases)
}

/// What is learned about batches is saved.
#[test]
fn a_share_is_one_batch_whose_cost_outlives_the_process() {
    let (mut cluster, leases) = cluster(&[1, 3]);
    assert_eq!(ranges(&leases), [(1, range(0, 12)), (2, range(12, 6)), (3, range(18, 3))]);
    cluster.now_s = 10.0;
    assert_eq!(cluster.done_all(&leases), [step(1, vec![range(0, 21)])]);
    cluster.commit(1);
    assert_eq!(cluster.applied_and_wasted(), (21, 0));
    let text = serde_json::to_string(&cluster.engine.save()).unwrap();
    let saved: SavedEngine = serde_json::from_str(&text).unwrap();
    let again = Engine::restore(EngineConfig::default(), policy("uta"), saved).unwrap();
    assert_eq!(again.statistics(), cluster.engine.statistics());
}

/// A batch is one observation of (tasks, seconds), limited by the engine's clock; for policies without batches, each task counts with an
/// equal share.
#[test]
fn a_batch_is_one_observation() {
    let (mut cluster, leases) = cluster(&[1]);
    let (number, lease) = leases[0];
    cluster.now_s = 4.0;
    for wrong in [&[][..], &[1.0; 12], &[-1.0], &[f64::NAN]] {
        let told = cluster.report(number, lease.id, Report::Done { busy_s: wrong, waited_s: 0.0 });
        assert_eq!(told, Err(Refusal::BadTimes { lease: lease.id, times: 1 }), "{wrong:?}");
    }
    cluster.report(number, lease.id, Report::Done { busy_s: &[6.0], waited_s: 0.0 }).unwrap();
    let known = cluster.engine.statistics()[0];
    assert_eq!((known.observed, known.total_s, known.batches.count, known.batches.total_s), (12, 4.0, 1.0, 4.0));
    assert_eq!(known.line(), Some(CostLine { fixed_s: 4.0, per_task_s: 0.0, has_slope: false }));
    assert_eq!(cluster.engine.statistics()[1].batches.count, 0.0);
}

/// A worker that computes batches gets each lost lease as one piece.
#[test]
fn a_lost_batch_stays_one_if_it_can() {
    let (mut cluster, leases) = cluster(&[1, 2, 3]);
    cluster.lose(3);
    cluster.done(1, &leases[0].1).unwrap();
    let again = ranges(&assigned(&cluster.lose(2)));
    assert_eq!(again, [(1, range(12, 6)), (1, range(18, 3))]);
}

/// All tasks of a batch are blamed if it fails, and the run ends once it has failed everywhere.
#[test]
fn a_batch_that_fails_everywhere_ends_the_run() {
    let (mut cluster, leases) = cluster(&[1, 2, 3]);
    let mut again = cluster.fail(1, &leases[0].1);
    for _ in 0..40 {
        let Some(&(number, lease)) = assigned(&again).first() else { break };
        assert!(number != 1 && lease.tasks.first < 12);
        again = cluster.fail(number, &lease);
    }
    let hopeless = |reason: &AbortReason| matches!(reason, AbortReason::TasksFailed { attempts: 3, workers: 3, .. });
    assert!(matches!(&again[..], [Effect::Abort { reason }] if hopeless(reason)), "{again:?}");
}
