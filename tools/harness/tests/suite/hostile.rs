//! Tests that a client that violates the contract gets the documented response, and changes nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use ata_data::{DataSource, Split, Tasks};
use ata_harness::{
    Cluster, FaultProxy, Peer, Session, Settings, WorkerSettings, chunks, computed, next_set, soon, toy,
};
use ata_learn::DeviceChoice;
use ata_record::{RefusalKind, RunEvent};
use ata_sums::{GradientSum, Quantizer, TensorSizes, Units, maxima};
use ata_types::{Lease, VectorId, WireFormat};
use ata_wire::proto::{GradientPart, WorkerMessage, gradient_part, worker_message};
use ata_wire::{
    Assignment, ComputedLease, FarewellReason, FromWorker, GradientHeader, LeaseTimes, ProcessUsage, Receipt,
    SessionToken, gradient_parts, units_crc32c,
};
use ata_worker::WorkerError;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use crate::{count, farewell, number, rests, undisturbed};

const SIZE: usize = 64;

const SUMS: [i32; SIZE] = [7; SIZE];

/// Returns settings with one task per iteration, so that the peer holds the lease that the step waits for.
fn settings() -> Settings {
    Settings { budget: 1, iterations: 3, rest_s: 0.0, ..Settings::default() }
}

fn is_not_held(receipt: &Receipt) -> bool {
    matches!(receipt, Receipt::NotHeld { .. })
}

/// Returns a header with claims that would ruin the units of all later gradients.
fn boastful(header: GradientHeader) -> GradientHeader {
    in_units(GradientHeader { maxima: vec![3e38], ..header }, &[100])
}

fn in_units(header: GradientHeader, exponents: &[i16]) -> GradientHeader {
    GradientHeader { units: exponents.to_vec(), units_crc32c: units_crc32c(exponents, &[]), ..header }
}

enum Deed {
    Report(fn(&mut ComputedLease)),
    Submit(fn(&mut GradientHeader, &mut Vec<i32>)),
    Damage,
    CutOff,
    FailLease,
    FailVector,
    Late,
    Steal,
    Repeat,
    TooLong,
}

/// Returns every deed that concerns the report on a lease, and the kind of its refusal.
fn report_deeds() -> Vec<(&'static str, RefusalKind, Deed)> {
    use Deed::Report;
    use RefusalKind::{Foreign, NotComputed, NotFinite, Stale, WrongTimes};
    vec![
        ("loss NaN", NotFinite, Report(|computed| computed.losses = vec![f64::NAN])),
        ("loss infinite", NotFinite, Report(|computed| computed.losses = vec![f64::NEG_INFINITY])),
        ("negative time", WrongTimes, Report(|computed| computed.times.busy_s = vec![-1e-9])),
        ("time NaN", WrongTimes, Report(|computed| computed.times.busy_s = vec![f64::NAN])),
        ("time infinite", WrongTimes, Report(|computed| computed.times.busy_s = vec![f64::INFINITY])),
        ("a time too many", WrongTimes, Report(|computed| times(computed, 2))),
        ("no time", WrongTimes, Report(|computed| times(computed, 0))),
        ("far too many times", WrongTimes, Report(|computed| times(computed, 60_000))),
        ("a lease that nobody was given", Foreign, Report(|computed| computed.lease.0 += 1000)),
        ("late", Stale, Deed::Late),
        ("not computed", NotComputed, Deed::FailLease),
    ]
}

/// Returns every deed that concerns a requested vector, after the report on its lease.
fn vector_deeds() -> Vec<(&'static str, RefusalKind, Deed)> {
    use Deed::Submit;
    use RefusalKind::{Foreign, NotComputed, NotReceived, Replayed, Stale, WrongChecksum, WrongSize};
    let tensors = |header: &mut GradientHeader, _: &mut Vec<i32>| {
        (header.units, header.maxima) = (vec![0; 2], vec![1.0; 2]);
    };
    vec![
        ("a value too many", WrongSize, Submit(|_, values| values.push(5))),
        ("a value too few", WrongSize, Submit(|_, values| values.truncate(SIZE - 1))),
        ("no values", WrongSize, Submit(|_, values| values.clear())),
        ("megabytes too many", WrongSize, Submit(|_, values| values.resize(1 << 20, 5))),
        ("a tensor too many", WrongSize, Submit(tensors)),
        ("wrong checksum", WrongChecksum, Deed::Damage),
        ("a vector that nobody was asked for", Foreign, Submit(|header, _| header.vector.0 += 99)),
        ("another worker's", Stale, Deed::Steal),
        ("a chunk too many", WrongSize, Deed::TooLong),
        ("twice at a time", Replayed, Deed::Repeat),
        ("broken off", NotReceived, Deed::CutOff),
        ("not kept", NotComputed, Deed::FailVector),
    ]
}

fn times(computed: &mut ComputedLease, count: usize) {
    (computed.times.busy_s, computed.losses) = (vec![0.0; count], vec![1.0; count]);
}

/// All misbehavior of a worker is refused and counted by its kind, and the run ends with the same parameters.
#[tokio::test(flavor = "multi_thread")]
async fn poison_is_refused_by_kind() {
    check_poison(settings(), report_deeds().into_iter().chain(vector_deeds())).await;
}

/// The same holds if vectors are used whole, since each is compared with another worker's.
#[tokio::test(flavor = "multi_thread")]
async fn poison_is_refused_by_kind_where_vectors_are_compared() {
    check_poison(Settings { verify: 1.0, ..settings() }, vector_deeds()).await;
}

async fn check_poison(settings: Settings, deeds: impl IntoIterator<Item = (&str, RefusalKind, Deed)>) {
    let expected = undisturbed(&settings).await;
    for (what, kind, deed) in deeds {
        let mut cluster = Cluster::start(&settings).await;
        let mut counted = BTreeMap::from([(kind, 1)]);
        if matches!(deed, Deed::Late) {
            counted.insert(RefusalKind::NotComputed, 1);
        }
        let sent = misbehave(&mut cluster, &settings, kind, deed).await;
        counted.entry(kind).and_modify(|count| *count = sent);
        cluster.wait_for(what, |state| state.refused.contains_key(&kind)).await;
        // The leases of the peer are free again, so that the honest worker begins like an undisturbed one.
        cluster.wait_for("it has left", |state| state.present() == 0).await;
        for name in ["honest", "confirming"].into_iter().take(1 + usize::from(settings.verify > 0.0)) {
            cluster.worker(WorkerSettings::new(name));
        }
        let ended = cluster.end_or_fail().await;
        assert!(ended.report.ended.is_ok(), "{what}: {:?}", ended.report.ended);
        assert_eq!(ended.report.parameters_sha256, expected, "{what}");
        let mut refused = ended.report.state.refused.clone();
        if settings.verify > 0.0 && kind == RefusalKind::WrongSize && refused.get(&RefusalKind::Stale) == Some(&1) {
            // The header of a vector that is requested with its lease may arrive before the report, and its refusal ends the lease.
            refused.remove(&RefusalKind::Stale);
        }
        assert_eq!(refused, counted, "{what}");
        assert!(!rests(&ended).is_empty() || kind == RefusalKind::Stale, "{what}: the worker that sends it rests");
    }
}

/// Reports the first lease, with this sum of losses. Returns the requested vector.
async fn report(session: &mut Session, lease: &Assignment, loss: f64) -> VectorId {
    let times = LeaseTimes { busy_s: vec![0.0], ..LeaseTimes::default() };
    session.say(FromWorker::Progress(vec![ComputedLease { lease: lease.lease.id, times, losses: vec![loss] }])).await;
    match lease.vector {
        Some(vector) => vector,
        None => session.asked().await.remove(0).id,
    }
}

/// Joins as a worker that commits this deed with its first lease. Returns how often it did.
async fn misbehave(cluster: &mut Cluster, settings: &Settings, kind: RefusalKind, deed: Deed) -> u64 {
    let peer = Peer::connect(cluster.address).await;
    let mut session = peer.join("a").await;
    let lease = session.assigned().await[0];
    let (_, parameters) = next_set(&mut peer.parameters(&session).await.unwrap()).await;
    let (reason, uncomputable) = ("no memory".to_owned(), false);
    let fail = FromWorker::LeaseFailed { lease: lease.lease.id, reason, uncomputable };
    match deed {
        Deed::Report(change) => {
            let mut computed = computed(&lease.lease);
            change(&mut computed);
            session.say(FromWorker::Progress(vec![computed])).await;
        }
        Deed::FailLease => session.say(fail).await,
        Deed::Late => {
            session.say(fail).await;
            assert_ne!(session.assigned().await[0].lease.id, lease.lease.id, "it gets the task again");
            session.report(&[lease]).await;
        }
        deed => {
            // Everything but the deed is correct.
            let honest = honest(&parameters, settings, &lease);
            return misbehave_with_vector(cluster, (&peer, session, &lease), honest, kind, deed).await;
        }
    }
    cluster.wait_for("the refusal", |state| state.refused.contains_key(&kind)).await;
    1
}

async fn misbehave_with_vector(
    cluster: &mut Cluster,
    (peer, mut session, lease): (&Peer, Session, &Assignment),
    Honest { units, sum: GradientSum { maxima, values: honest, .. }, loss }: Honest,
    kind: RefusalKind,
    deed: Deed,
) -> u64 {
    let vector = report(&mut session, lease, loss).await;
    let mut header = in_units(GradientHeader { maxima, ..session.header(vector) }, units.exponents());
    let mut values = SUMS.to_vec();
    let receipt = match deed {
        Deed::Submit(change) => {
            change(&mut header, &mut values);
            peer.submit(header, &values).await.unwrap()
        }
        Deed::Damage => {
            let parts = gradient_parts(boastful(header).into(), chunks(&SUMS).into_iter()).map(|mut part| {
                if let Some(gradient_part::Kind::Chunk(chunk)) = &mut part.kind {
                    chunk.crc32c ^= 1;
                }
                part
            });
            peer.submit_parts(parts).await.unwrap()
        }
        Deed::CutOff => {
            let mut sent = 0;
            // If the connection is severed before the header is read, there is no vector to refuse yet.
            while !cluster.state.borrow().refused.contains_key(&kind) {
                cut_off(cluster.address, boastful(header.clone())).await;
                let refused = cluster.state.wait_for(|state| state.refused.contains_key(&kind));
                sent = u64::from(tokio::time::timeout(Duration::from_secs(2), refused).await.is_ok());
            }
            return sent;
        }
        Deed::FailVector => {
            let (reason, uncomputable) = ("no memory".to_owned(), false);
            session.say(FromWorker::VectorFailed { vector, reason, uncomputable }).await;
            cluster.wait_for("the failure", |state| state.refused.contains_key(&kind)).await;
            return 1;
        }
        Deed::Report(_) | Deed::FailLease | Deed::Late => unreachable!("no vector is sent"),
        Deed::Steal => {
            let other = peer.join("b").await;
            cluster.wait_for("the other worker", |state| state.present() == 2).await;
            let stolen = GradientHeader { session: other.token(), ..header };
            peer.submit(stolen, &values).await.unwrap()
        }
        Deed::Repeat => repeat(peer, header, &honest).await,
        Deed::TooLong => {
            let one_more = [chunks(&honest), chunks(&SUMS)].concat();
            peer.submit_parts(gradient_parts(header.into(), one_more.into_iter())).await.unwrap()
        }
    };
    assert!(receipt != Receipt::Accepted, "{kind:?}: {receipt:?}");
    1
}

async fn cut_off(coordinator: SocketAddr, header: GradientHeader) {
    let proxy = FaultProxy::to(coordinator).await;
    let peer = Peer::connect(proxy.address).await;
    let (parts, answer) = begin(&peer, header).await;
    let _next = soon("the reading of the header", parts.reserve_many(parts.max_capacity())).await.unwrap();
    // The probe uses the same connection, so its answer shows that the header has arrived.
    peer.connection.probe(0, 0).await.expect("the coordinator answers");
    proxy.sever();
    assert!(answer.await.is_err());
}

/// Sends the header of a correct gradient twice, and then the rest of the accepted one. Returns the response to the other one.
async fn repeat(peer: &Peer, header: GradientHeader, sums: &[i32]) -> Receipt {
    let (one, one_answer) = begin(peer, header.clone()).await;
    let (two, two_answer) = begin(peer, header.clone()).await;
    let (mut one_answer, mut two_answer) = (pin!(one_answer), pin!(two_answer));
    let (refused, sender, accepted) = tokio::select! {
        refused = &mut one_answer => (refused, two, two_answer),
        refused = &mut two_answer => (refused, one, one_answer),
    };
    let mut chunks = gradient_parts(header.into(), chunks(sums).into_iter()).skip(1);
    while let Some(chunk) = chunks.next().await {
        sender.send(chunk).await.unwrap();
    }
    drop(sender);
    assert_eq!(accepted.await.unwrap(), Receipt::Accepted);
    refused.unwrap()
}

/// Sends a header. Returns a sender for the chunks, and a future of the response.
async fn begin(
    peer: &Peer,
    header: GradientHeader,
) -> (mpsc::Sender<GradientPart>, impl Future<Output = Result<Receipt, tonic::Status>>) {
    let (sender, sent) = mpsc::channel(4);
    let mut parts = gradient_parts(header.into(), std::iter::empty());
    sender.send(parts.next().await.unwrap()).await.unwrap();
    let peer = peer.clone();
    let answer = tokio::spawn(async move { peer.submit_parts(ReceiverStream::new(sent)).await });
    (sender, async { soon("an answer", answer).await.unwrap() })
}

struct Honest {
    units: Units,
    sum: GradientSum,
    loss: f64,
}

/// Returns the data that an honest worker sends for a lease that it computes as one batch.
fn honest(parameters: &[f32], settings: &Settings, lease: &Assignment) -> Honest {
    let data = toy(settings.model).unwrap().open(&DataSource::Generated { seed: 1 }, Split::Train).unwrap();
    let tasks = Tasks { seed: 1, budget: settings.budget, task_batch: settings.task_batch };
    let mut learner = data.learner(&DeviceChoice::Cpu.open().unwrap(), tasks);
    learner.load(parameters);
    let Lease { iteration, tasks, .. } = lease.lease;
    let sizes = TensorSizes::new([parameters.len()]);
    let first = learner.gradient(iteration, 0).unwrap();
    let units = Units::first(&maxima(&first.gradient, &sizes).unwrap(), settings.budget);
    let total = learner.fused(iteration, tasks).unwrap();
    let mut sum = GradientSum::new(&sizes);
    let quantizer = Quantizer::new(units.clone(), sizes, settings.budget, WireFormat::F32Exact);
    sum.add(&total.gradient, tasks.count, &quantizer).unwrap();
    Honest { units, sum, loss: total.loss }
}

/// A client that sends nothing but foreign gradients is expelled, cannot join again, and cannot fill the journal.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_only_offends_is_expelled() {
    let long_rests = Settings { rest_s: 1000.0, ..settings() };
    let mut cluster = Cluster::start(&long_rests).await;
    let peer = Peer::connect(cluster.address).await;
    let mut session = peer.join("bad").await;
    let lease = session.assigned().await[0];
    let vector = report(&mut session, &lease, 1.0).await;
    let foreign = session.header(VectorId(vector.0 + 1000));
    let mut sent = 0;
    while let Ok(receipt) = peer.submit(foreign.clone(), &SUMS).await {
        assert!(is_not_held(&receipt), "{receipt:?}");
        sent += 1;
        assert!(sent <= u64::from(long_rests.expel_after), "it is still there");
    }
    let (reason, detail) = farewell(&mut session).await;
    assert_eq!((reason, detail.contains("failed 8 times in a row")), (FarewellReason::Expelled, true), "{detail}");
    let refused = peer.hello("bad", 2).await.err().unwrap();
    assert_eq!((refused.code(), refused.message().contains("expelled")), (Code::PermissionDenied, true), "{refused:?}");
    // A worker under the expelled name is refused, and does not retry.
    cluster.worker(WorkerSettings::new("bad"));
    cluster.worker(WorkerSettings::new("honest"));
    let ended = cluster.end().await;
    assert!(matches!(ended.workers["bad"], Err(WorkerError::Refused(_))), "{:?}", ended.workers["bad"]);
    assert_eq!(ended.report.parameters_sha256, undisturbed(&settings()).await);
    assert_eq!(ended.report.state.refused, BTreeMap::from([(RefusalKind::Foreign, sent)]), "all are counted");
    let written = count(&ended, |event| matches!(event, RunEvent::Refusal { .. }));
    assert!((1..=2).contains(&written), "{written} events for {sent} within a second");
    assert!(ended.report.state.workers[&number(&ended, "bad")].expelled.is_some());
}

/// A gradient that has arrived is not accepted again, and the response does not wait for 16 MB that would be discarded.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_gradient_is_answered_at_once() {
    let settings = Settings { model: "toy:4000000", ..settings() };
    let cluster = Cluster::start(&settings).await;
    let peer = Peer::connect(cluster.address).await;
    let mut session = peer.join("a").await;
    let sums = vec![7; 4_000_000];
    let lease = session.assigned().await[0];
    let vector = report(&mut session, &lease, 1.0).await;
    let header = session.header(vector);
    assert_eq!(peer.submit(header.clone(), &sums).await.unwrap(), Receipt::Accepted);
    // Only the first two chunks are sent, so a response that waited for the rest would never arrive.
    let parts = gradient_parts(header.into(), chunks(&sums).into_iter()).take(3);
    assert!(is_not_held(&peer.submit_parts(parts.chain(tokio_stream::pending())).await.unwrap()));
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
        (FromWorker::Heartbeat { idle: false, usage: ProcessUsage::default() }.into(), Code::InvalidArgument),
        (hello(ata_wire::PROTOCOL + 1, "a"), Code::FailedPrecondition),
        (hello(ata_wire::PROTOCOL, "a/b"), Code::InvalidArgument),
    ] {
        let answer = peer.open(first.clone()).await.err().map(|status| status.code());
        assert_eq!(answer, Some(code), "{first:?}");
    }
    let mut first = peer.hello("a", 1).await.unwrap();
    assert_eq!(peer.hello("a", 2).await.err().unwrap().code(), Code::AlreadyExists);
    let again = peer.hello("a", 1).await.unwrap();
    assert_eq!(again.welcome.worker, first.welcome.worker, "a process replaces its own session");
    assert!(first.next().await.is_none());
    assert_eq!(peer.parameters(&first).await.unwrap_err().code(), Code::Unauthenticated);
    let sets = peer.parameters(&again).await.unwrap();
    assert_eq!(peer.parameters(&again).await.unwrap_err().code(), Code::ResourceExhausted, "one call at a time");
    drop(sets);
    let stranger = GradientHeader { session: SessionToken([7; 16]), ..again.header(VectorId(1)) };
    assert_eq!(peer.submit(stranger, &SUMS).await.unwrap_err().code(), Code::Unauthenticated);
    let mut hasty = peer.hello("hasty", 1).await.unwrap();
    assert!(is_not_held(&peer.submit(hasty.header(VectorId(1000)), &SUMS).await.unwrap()));
    assert!(hasty.next().await.is_none(), "a worker that is not ready has nothing to send");

    for nonsense in [empty, hello(ata_wire::PROTOCOL, "a")] {
        let mut session = peer.hello("c", 3).await.unwrap();
        session.say_raw(nonsense).await;
        assert!(session.next().await.is_none(), "its session is closed");
    }
    cluster.worker(WorkerSettings::new("honest"));
    assert_eq!(cluster.end().await.report.parameters_sha256, undisturbed(&settings()).await);
}
