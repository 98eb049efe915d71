//! A client that violates the contract gets the documented answer, and nothing changes.

use std::net::SocketAddr;
use std::time::Duration;

use ata_harness::{Cluster, Ended, Link, Peer, Session, Settings, WorkerSettings, soon};
use ata_record::{RefusalKind, RunEvent};
use ata_wire::proto::{GradientPart, WorkerMessage, gradient_part, worker_message};
use ata_wire::{Assignment, FromWorker, GradientHeader, Receipt, SessionToken, gradient_parts};
use tokio_stream::StreamExt;
use tonic::Code;

const SIZE: usize = 64;

/// One task per iteration, so that the peer holds the lease that the step waits for.
fn settings() -> Settings {
    Settings { budget: 1, iterations: 3, rest_s: 0.0, ..Settings::default() }
}

fn header(session: &Session, lease: &Assignment) -> GradientHeader {
    GradientHeader {
        session: session.token(),
        lease: lease.lease,
        iteration: lease.iteration,
        busy_s: vec![0.0; lease.tasks as usize],
        loss_sum: 1.0,
        outlasted: 0,
    }
}

fn is_not_held(receipt: &Receipt) -> bool {
    matches!(receipt, Receipt::NotHeld { .. })
}

fn is_refused(receipt: &Receipt) -> bool {
    matches!(receipt, Receipt::Refused { .. })
}

/// The parameters of an undisturbed run.
async fn undisturbed() -> [u8; 32] {
    let mut cluster = Cluster::start(&settings()).await;
    cluster.worker(WorkerSettings::new("honest"));
    cluster.end().await.report.parameters_sha256
}

/// A gradient whose checksums are all wrong.
fn damaged(header: GradientHeader) -> impl tokio_stream::Stream<Item = GradientPart> + Send + 'static {
    gradient_parts(header.into(), vec![0.5; SIZE]).map(|mut part| {
        if let Some(gradient_part::Kind::Chunk(chunk)) = &mut part.kind {
            chunk.crc32c ^= 1;
        }
        part
    })
}

/// Sends a header, then cuts the link.
async fn cut_off(coordinator: SocketAddr, header: GradientHeader) {
    let link = Link::to(coordinator).await;
    let peer = Peer::connect(link.address).await;
    let parts = gradient_parts(header.into(), vec![0.5; SIZE]).take(1).chain(tokio_stream::pending());
    let cut = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        link.cut();
    };
    let (answer, ()) = tokio::join!(peer.submit_parts(parts), cut);
    assert!(answer.is_err(), "{answer:?}");
}

/// Each refused gradient is reported with its kind, and the run ends with the same parameters all the same.
#[tokio::test(flavor = "multi_thread")]
async fn poison_is_refused_by_kind() {
    for kind in [
        RefusalKind::NotHeld,
        RefusalKind::WrongSize,
        RefusalKind::WrongChecksum,
        RefusalKind::NotFinite,
        RefusalKind::WrongTimes,
        RefusalKind::NotReceived,
        RefusalKind::NotComputed,
    ] {
        let mut cluster = Cluster::start(&settings()).await;
        let peer = Peer::connect(cluster.address).await;
        let mut session = peer.join("a").await;
        let lease = session.assigned().await[0];
        let good = header(&session, &lease);
        let values = vec![0.5; SIZE];
        match kind {
            RefusalKind::NotHeld => not_held(&peer, &mut session, &lease).await,
            RefusalKind::WrongSize => {
                let longer = vec![0.5; SIZE + 1];
                assert!(is_refused(&peer.submit(good, longer).await.unwrap()));
            }
            RefusalKind::WrongChecksum => assert!(is_refused(&peer.submit_parts(damaged(good)).await.unwrap())),
            RefusalKind::NotFinite => {
                let infinite = vec![f32::INFINITY; SIZE];
                assert!(is_refused(&peer.submit(good, infinite).await.unwrap()));
            }
            RefusalKind::WrongTimes => {
                let header = GradientHeader { busy_s: vec![0.0; 2], ..good };
                assert!(is_refused(&peer.submit(header, values).await.unwrap()));
            }
            RefusalKind::NotReceived => {
                // If the link is cut before the header has arrived, there is nothing to refuse yet.
                while !cluster.state.borrow().refused.contains_key(&kind) {
                    cut_off(cluster.address, good.clone()).await;
                    let refused = cluster.state.wait_for(|state| state.refused.contains_key(&kind));
                    drop(tokio::time::timeout(Duration::from_secs(2), refused).await);
                }
            }
            RefusalKind::NotComputed => {
                session.say(FromWorker::LeaseFailed { lease: lease.lease, reason: "no memory".into() }).await;
            }
        }
        cluster.wait_for("the refusal", |state| state.refused.contains_key(&kind)).await;
        drop(session);
        cluster.worker(WorkerSettings::new("honest"));
        let Ended { report, .. } = cluster.end().await;
        assert!(report.ended.is_ok(), "{kind:?}: {:?}", report.ended);
        assert_eq!(report.parameters_sha256, undisturbed().await, "{kind:?}");
        assert_eq!(report.state.refused.keys().collect::<Vec<_>>(), [&kind]);
    }
}

/// Gradients for a lease of another worker, for an unknown one, and for another iteration.
async fn not_held(peer: &Peer, session: &mut Session, lease: &Assignment) {
    let other = peer.join("b").await;
    let good = header(session, lease);
    for wrong in [
        GradientHeader { session: other.token(), ..good.clone() },
        GradientHeader { lease: good.lease + 1000, ..good.clone() },
        GradientHeader { iteration: good.iteration + 1, ..good.clone() },
    ] {
        assert!(is_not_held(&peer.submit(wrong, vec![0.5; SIZE]).await.unwrap()));
    }
    let stranger = GradientHeader { session: SessionToken([7; 16]), ..good };
    assert_eq!(peer.submit(stranger, vec![0.5; SIZE]).await.unwrap_err().code(), Code::Unauthenticated);
}

/// A gradient that has arrived is not accepted again, and the answer does not wait for 16 MB that would be discarded.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_gradient_is_answered_at_once() {
    let settings = Settings { model: "toy:4000000", ..settings() };
    let cluster = Cluster::start(&settings).await;
    let peer = Peer::connect(cluster.address).await;
    let mut session = peer.join("a").await;
    let mut sets = peer.parameters(&session).await.unwrap();
    let mut receipts = Vec::new();
    for iteration in 1..=3 {
        let lease = session.assigned().await[0];
        assert_eq!(lease.iteration, iteration);
        let (of, parameters) = soon("parameters", sets.next()).await.unwrap();
        assert_eq!(of, iteration);
        let header = header(&session, &lease);
        receipts.push(peer.submit(header.clone(), parameters.clone()).await.unwrap());
        if iteration < 3 {
            // All but the first two chunks are never sent: an answer that waited for them would not come.
            let unfinished = gradient_parts(header.into(), parameters).take(3).chain(tokio_stream::pending());
            assert!(is_not_held(&peer.submit_parts(unfinished).await.unwrap()));
        }
    }
    assert_eq!(receipts, [Receipt::Accepted, Receipt::Accepted, Receipt::Accepted]);
    let Ended { report, .. } = cluster.end().await;
    assert!(report.ended.is_ok());
    assert_eq!(report.state.refused.get(&RefusalKind::NotHeld), Some(&2));
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_on_the_control_stream_is_answered_by_the_book() {
    let mut cluster = Cluster::start(&settings()).await;
    let peer = Peer::connect(cluster.address).await;
    let empty = WorkerMessage { kind: None };
    let hello = |protocol, name: &str| {
        let hello = ata_wire::proto::Hello { protocol, name: name.into(), ..Default::default() };
        WorkerMessage { kind: Some(worker_message::Kind::Hello(hello)) }
    };
    for (first, code) in [
        (empty.clone(), Code::InvalidArgument),
        (FromWorker::Heartbeat { idle: false }.into(), Code::InvalidArgument),
        (hello(ata_wire::PROTOCOL + 1, "a"), Code::FailedPrecondition),
        (hello(ata_wire::PROTOCOL, "a/b"), Code::InvalidArgument),
    ] {
        let answer = peer.open(first.clone()).await.err().map(|status| status.code());
        assert_eq!(answer, Some(code), "{first:?}");
    }
    let mut first = peer.hello("a", 1).await.unwrap();
    assert_eq!(peer.hello("a", 2).await.err().unwrap().code(), Code::AlreadyExists);
    let again = peer.hello("a", 1).await.unwrap();
    assert_eq!(again.welcome.number, first.welcome.number, "a process replaces its own session");
    assert!(first.next().await.is_none());
    assert_eq!(peer.parameters(&first).await.unwrap_err().code(), Code::Unauthenticated);
    let sets = peer.parameters(&again).await.unwrap();
    assert_eq!(peer.parameters(&again).await.unwrap_err().code(), Code::ResourceExhausted, "one call at a time");
    drop(sets);

    for nonsense in [empty, hello(ata_wire::PROTOCOL, "a")] {
        let mut session = peer.hello("c", 3).await.unwrap();
        session.say_raw(nonsense).await;
        assert!(session.next().await.is_none(), "its session is closed");
    }
    cluster.worker(WorkerSettings::new("honest"));
    let Ended { report, .. } = cluster.end().await;
    assert_eq!(report.parameters_sha256, undisturbed().await);
}

/// A single worker gets a whole iteration of single-task leases in a few messages.
#[tokio::test(flavor = "multi_thread")]
async fn many_leases_throw_nobody_out() {
    let settings = Settings { model: "toy:1", budget: 20_000, iterations: 2, overcommit: 0.1, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    cluster.worker(WorkerSettings::new("one"));
    let Ended { report, events, .. } = cluster.end().await;
    assert!(report.ended.is_ok(), "{:?}", report.ended);
    assert!(!events.iter().any(|event| matches!(event, RunEvent::Loss { .. })));
    assert_eq!(report.state.tasks_applied, 40_000);
}

/// More names than a run can have workers, one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn newcomers_are_always_welcome() {
    let cluster = Cluster::start(&settings()).await;
    let peer = Peer::connect(cluster.address).await;
    let names = ata_wire::limits::MAX_WORKERS + 500;
    for i in 0..names {
        let mut session = peer.join(&format!("name-{i}")).await;
        assert!(session.welcome.number as usize <= ata_wire::limits::MAX_WORKERS);
        // Half of them hold a lease when they leave.
        if i % 2 == 0 {
            session.assigned().await;
        }
    }
    let mut last = peer.join("last").await;
    assert_eq!(last.assigned().await.len(), 1);
    assert!(cluster.state.borrow().workers.len() <= ata_wire::limits::MAX_WORKERS);
}
