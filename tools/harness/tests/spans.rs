//! The spans of an iteration on coordinator and workers, through the real wire.

use std::collections::BTreeSet;
use std::time::Duration;

use ata_harness::{Cluster, Condition, FaultProxy, KeptSpan, Settings, SpanKeeper, UNSAMPLED, WorkerSettings};

const ITERATIONS: u64 = 4;

fn children<'a>(spans: &'a [KeptSpan], parent: &KeptSpan, name: &str) -> Vec<&'a KeptSpan> {
    spans.iter().filter(|span| span.parent == Some(parent.id) && span.name == name).collect()
}

/// A lease of the coordinator, and what its worker did with it. Returns the worker's name.
fn check_lease(spans: &[KeptSpan], lease: &KeptSpan) -> String {
    assert_eq!(lease.field("outcome"), "applied", "{lease:?}");
    let at_worker = children(spans, lease, "lease");
    assert_eq!(at_worker.len(), 1, "{lease:?}: {at_worker:?}");
    let at_worker = at_worker[0];
    for field in ["lease", "iteration", "first_task", "tasks"] {
        assert_eq!(at_worker.field(field), lease.field(field), "{field}");
    }
    assert_eq!(at_worker.field("outcome"), "kept", "its gradient is sent in a vector: {at_worker:?}");
    let compute = children(spans, at_worker, "compute");
    assert_eq!(compute.len(), 1, "{at_worker:?}");
    assert!(compute[0].field("busy_s").parse::<f64>().unwrap() > 0.0);
    at_worker.field("worker").to_owned()
}

/// One test only: a process has one subscriber.
#[tokio::test(flavor = "multi_thread")]
async fn an_iteration_is_one_trace_across_coordinator_and_workers() {
    SpanKeeper::start();
    let span_links = SpanKeeper::links();
    let settings = Settings {
        model: "toy:100000",
        budget: 6,
        iterations: ITERATIONS,
        min_workers: 2,
        checkpoint_every: Some(1),
        span_links,
        ..Settings::default()
    };
    let mut cluster = Cluster::start(&settings).await;
    // Parameters take a fifth of a second to reach one of the workers, whose leases come at once on a connection of their own.
    let link = FaultProxy::to(cluster.address).await;
    link.set(Condition { bytes_per_s: Some(2_000_000), ..Condition::default() });
    for (name, through) in [("one", None), ("two", Some(link.address))] {
        let task_time = Duration::from_millis(2);
        cluster.worker(WorkerSettings { task_time, span_links, through, ..WorkerSettings::new(name) });
    }
    assert!(cluster.end().await.report.ended.is_ok());

    let spans = SpanKeeper::kept();
    let open: Vec<&KeptSpan> = spans.iter().filter(|span| !span.is_over()).collect();
    assert!(open.is_empty(), "{open:?}");
    let iterations: Vec<&KeptSpan> = spans.iter().filter(|span| span.parent.is_none()).collect();
    assert_eq!(iterations.len() as u64, ITERATIONS, "{iterations:?}");
    for iteration in iterations {
        assert_eq!((iteration.name, iteration.field("policy"), iteration.field("tasks")), ("iteration", "uta", "6"));
        let count = |name| children(&spans, iteration, name).len();
        if iteration.field("iteration") == UNSAMPLED {
            assert!(
                !spans.iter().any(|span| span.parent == Some(iteration.id)),
                "a trace that nobody keeps has children"
            );
            continue;
        }
        assert_eq!((count("step"), count("checkpoint")), (1, 1), "{iteration:?}");
        assert_eq!(count("evaluation"), usize::from(iteration.field("iteration") == ITERATIONS.to_string()));
        let leases = children(&spans, iteration, "lease");
        let workers: BTreeSet<String> = leases.iter().map(|lease| check_lease(&spans, lease)).collect();
        assert_eq!(workers, BTreeSet::from(["one".to_owned(), "two".to_owned()]));
        let tasks: u64 = leases.iter().map(|lease| lease.field("tasks").parse::<u64>().unwrap()).sum();
        assert_eq!(tasks, settings.budget);
    }
    let waits = spans.iter().filter(|span| span.name == "parameters").count();
    assert!(waits > 0, "leases come before their parameters");
}
