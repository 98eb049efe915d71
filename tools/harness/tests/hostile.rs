//! A client that violates the contract gets the documented answer, and nothing changes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use ata_harness::{Cluster, Ended, FaultProxy, Peer, Session, Settings, WorkerSettings, chunks, next_set, soon, toy};
use ata_learn::{DataSource, DeviceChoice, GradientSum, Quantizer, Split, Tasks, TensorSizes, Units, maxima};
use ata_record::{RefusalKind, RunEvent};
use ata_types::{Iteration, Lease, LeaseId, TaskRange, WireFormat};
use ata_wire::proto::{GradientPart, WorkerMessage, gradient_part, worker_message};
use ata_wire::{
    Assignment, ComputedLease, FarewellReason, FromWorker, GradientHeader, LeaseTimes, Receipt, SessionToken, ToWorker,
    gradient_parts,
};
use ata_worker::WorkerError;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

const SIZE: usize = 64;

/// What a scripted peer sends.
const SUMS: [i32; SIZE] = [7; SIZE];

/// One task per iteration, so that the peer holds the lease that the step waits for. Its gradient is sent alone.
fn settings() -> Settings {
    Settings { policy: "gta", ..collected() }
}

/// The same, but it is asked for its gradient.
fn collected() -> Settings {
    Settings { budget: 1, iterations: 3, rest_s: 0.0, ..Settings::default() }
}

fn is_not_held(receipt: &Receipt) -> bool {
    matches!(receipt, Receipt::NotHeld { .. })
}

fn is_refused(receipt: &Receipt) -> bool {
    matches!(receipt, Receipt::Refused { .. })
}

/// The parameters of an undisturbed run.
async fn undisturbed(settings: &Settings) -> [u8; 32] {
    let mut cluster = Cluster::start(settings).await;
    cluster.worker(WorkerSettings::new("honest"));
    cluster.end().await.report.parameters_sha256
}

/// A gradient whose checksums are all wrong.
fn damaged(header: GradientHeader) -> impl tokio_stream::Stream<Item = GradientPart> + Send + 'static {
    gradient_parts(header.into(), chunks(&SUMS).into_iter()).map(|mut part| {
        if let Some(gradient_part::Kind::Chunk(chunk)) = &mut part.kind {
            chunk.crc32c ^= 1;
        }
        part
    })
}

/// The same, with claims that would ruin the units of all later gradients.
fn boastful(header: GradientHeader) -> GradientHeader {
    GradientHeader { maxima: vec![3e38], ..header }.in_units(&[100], &[])
}

/// Sends a header, then severs the connection.
async fn cut_off(coordinator: SocketAddr, header: GradientHeader) {
    let proxy = FaultProxy::to(coordinator).await;
    let peer = Peer::connect(proxy.address).await;
    let (parts, sent) = mpsc::channel(1);
    let first =
        gradient_parts(header.into(), chunks(&SUMS).into_iter()).next().await.expect("a gradient begins with a header");
    parts.send(first).await.expect("nothing was sent yet");
    let sever = async {
        let _next = parts.reserve().await.expect("the header was taken");
        // The answer comes over the same connection, after the header has arrived.
        peer.connection.probe(0, 0).await.expect("the coordinator answers");
        proxy.sever();
    };
    let (answer, ()) = tokio::join!(peer.submit_parts(ReceiverStream::new(sent)), sever);
    assert!(answer.is_err(), "{answer:?}");
}

/// What a worker does instead of its work.
enum Deed {
    /// Sends a gradient with something wrong.
    Submit(fn(&mut GradientHeader, &mut Vec<i32>)),
    /// Sends a gradient that does not match its checksums.
    Damage,
    /// Stops sending.
    CutOff,
    /// Says that it cannot compute.
    Fail,
    /// Sends a gradient of a lease that failed before.
    Late,
    /// Sends a gradient for the lease of another worker.
    Steal,
    /// Sends a correct gradient twice.
    Repeat,
    /// Sends a correct gradient, and one more chunk.
    TooLong,
}

/// What a header says of its lease.
fn lease(header: &mut GradientHeader) -> &mut ComputedLease {
    header.computed.as_mut().unwrap()
}

/// Every deed, the kind by which it is refused, and how the gradient is answered.
fn deeds() -> Vec<(&'static str, RefusalKind, Deed)> {
    use Deed::Submit;
    use RefusalKind::{
        Foreign, NotComputed, NotFinite, NotReceived, Replayed, Stale, WrongChecksum, WrongSize, WrongTimes,
    };
    vec![
        ("loss NaN", NotFinite, Submit(|header, _| lease(header).losses = vec![f64::NAN])),
        ("loss infinite", NotFinite, Submit(|header, _| lease(header).losses = vec![f64::NEG_INFINITY])),
        ("a value too many", WrongSize, Submit(|_, values| values.push(5))),
        ("a value too few", WrongSize, Submit(|_, values| values.truncate(SIZE - 1))),
        ("no values", WrongSize, Submit(|_, values| values.clear())),
        ("megabytes too many", WrongSize, Submit(|_, values| values.resize(1 << 20, 5))),
        (
            "a tensor too many",
            WrongSize,
            Submit(|header, _| (header.units, header.maxima) = (vec![0; 2], vec![1.0; 2])),
        ),
        ("wrong checksum", WrongChecksum, Deed::Damage),
        ("negative time", WrongTimes, Submit(|header, _| lease(header).times.busy_s = vec![-1e-9])),
        ("time NaN", WrongTimes, Submit(|header, _| lease(header).times.busy_s = vec![f64::NAN])),
        ("time infinite", WrongTimes, Submit(|header, _| lease(header).times.busy_s = vec![f64::INFINITY])),
        ("a time too many", WrongTimes, Submit(|header, _| times(header, 2))),
        ("no time", WrongTimes, Submit(|header, _| times(header, 0))),
        ("far too many times", WrongTimes, Submit(|header, _| times(header, 60_000))),
        ("a lease that nobody was given", Foreign, Submit(|header, _| invent(header))),
        ("another iteration's", Foreign, Submit(|header, _| header.iteration.0 += 1)),
        ("another worker's lease", Foreign, Deed::Steal),
        ("late", Stale, Deed::Late),
        ("twice", Replayed, Deed::Repeat),
        ("broken off", NotReceived, Deed::CutOff),
        ("not computed", NotComputed, Deed::Fail),
    ]
}

/// Every deed with a vector that a worker is asked for, after it has reported its lease.
fn vector_deeds() -> Vec<(&'static str, RefusalKind, Deed)> {
    use Deed::Submit;
    use RefusalKind::{Foreign, NotComputed, NotReceived, Replayed, Stale, WrongChecksum, WrongSize};
    vec![
        ("a value too many", WrongSize, Submit(|_, values| values.push(5))),
        ("a value too few", WrongSize, Submit(|_, values| values.truncate(SIZE - 1))),
        ("no values", WrongSize, Submit(|_, values| values.clear())),
        ("megabytes too many", WrongSize, Submit(|_, values| values.resize(1 << 20, 5))),
        ("wrong checksum", WrongChecksum, Deed::Damage),
        ("a vector that nobody was asked for", Foreign, Submit(|header, _| header.vector.as_mut().unwrap().0 += 99)),
        ("another worker's", Stale, Deed::Steal),
        ("a chunk too many", WrongSize, Deed::TooLong),
        ("twice at a time", Replayed, Deed::Repeat),
        ("broken off", NotReceived, Deed::CutOff),
        ("not kept", NotComputed, Deed::Fail),
    ]
}

fn times(header: &mut GradientHeader, count: usize) {
    let computed = lease(header);
    (computed.times.busy_s, computed.losses) = (vec![0.0; count], vec![1.0; count]);
}

fn invent(header: &mut GradientHeader) {
    lease(header).lease.0 += 1000;
}

/// Whatever a worker sends instead of its gradient is refused and counted by its kind, and the run ends with the same
/// parameters all the same.
#[tokio::test(flavor = "multi_thread")]
async fn poison_is_refused_by_kind() {
    check_poison(settings(), deeds()).await;
}

/// The same of what it sends instead of the vector that it is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn poisoned_vectors_are_refused_by_kind() {
    check_poison(collected(), vector_deeds()).await;
}

async fn check_poison(settings: Settings, deeds: Vec<(&str, RefusalKind, Deed)>) {
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
        // What it holds is free again, so that the honest worker begins where an undisturbed one does.
        cluster.wait_for("it has left", |state| state.present() == 0).await;
        cluster.worker(WorkerSettings::new("honest"));
        let Ended { report, events, .. } = cluster.end().await;
        assert!(report.ended.is_ok(), "{what}: {:?}", report.ended);
        // While a worker that offended rests, a race goes on with its next task.
        let is_same = settings.policy == "uta" || !kind.is_violation();
        assert!(!is_same || report.parameters_sha256 == expected, "{what}");
        assert_eq!(report.state.refused, counted, "{what}");
        let rests = events.iter().filter(|event| matches!(event, RunEvent::Rest { .. })).count();
        assert!(rests >= 1 || kind == RefusalKind::Stale, "{what}: the worker that sends it rests");
    }
}

/// The header with which a worker sends its first lease.
async fn first_header(session: &mut Session, lease: &Assignment) -> GradientHeader {
    if lease.lease.is_alone {
        return session.header(lease);
    }
    session.report(&[*lease]).await;
    let asked = session.asked().await.remove(0);
    session.vector_header(&asked)
}

/// Joins as a worker that does this with its first lease; returns how often.
async fn misbehave(cluster: &mut Cluster, settings: &Settings, kind: RefusalKind, deed: Deed) -> u64 {
    let peer = Peer::connect(cluster.address).await;
    let mut session = peer.join("a").await;
    let lease = session.assigned().await[0];
    let (_, parameters) = next_set(&mut peer.parameters(&session).await.unwrap()).await;
    let header = first_header(&mut session, &lease).await;
    // One thing is wrong at a time.
    let (mut header, honest) = honest(&parameters, settings, &lease, header);
    let mut values = SUMS.to_vec();
    let (reason, uncomputable) = ("no memory".to_owned(), false);
    let fail = match header.vector {
        Some(vector) => FromWorker::VectorFailed { vector, reason, uncomputable },
        None => FromWorker::LeaseFailed { lease: lease.lease.id, reason, uncomputable },
    };
    let receipt = match deed {
        Deed::Submit(change) => {
            change(&mut header, &mut values);
            peer.submit(header, &values).await.unwrap()
        }
        Deed::Damage => peer.submit_parts(damaged(boastful(header))).await.unwrap(),
        Deed::CutOff => {
            let mut sent = 0;
            // If the connection is severed before the header is read, there is nothing to refuse yet.
            while !cluster.state.borrow().refused.contains_key(&kind) {
                cut_off(cluster.address, boastful(header.clone())).await;
                let refused = cluster.state.wait_for(|state| state.refused.contains_key(&kind));
                sent = u64::from(tokio::time::timeout(Duration::from_secs(2), refused).await.is_ok());
            }
            return sent;
        }
        Deed::Fail => {
            session.say(fail).await;
            cluster.wait_for("the failure", |state| state.refused.contains_key(&kind)).await;
            return 1;
        }
        Deed::Late => {
            session.say(fail).await;
            assert_ne!(session.assigned().await[0].lease.id, lease.lease.id, "it gets the task again");
            peer.submit(header, &values).await.unwrap()
        }
        Deed::Steal => {
            let other = peer.join("b").await;
            cluster.wait_for("the other worker", |state| state.present() == 2).await;
            let stolen = GradientHeader { session: other.token(), ..header };
            peer.submit(stolen, &values).await.unwrap()
        }
        Deed::Repeat => repeat(&peer, header, &honest).await,
        Deed::TooLong => {
            let one_more = [chunks(&honest), chunks(&SUMS)].concat();
            peer.submit_parts(gradient_parts(header.into(), one_more.into_iter())).await.unwrap()
        }
    };
    assert!(is_not_held(&receipt) || is_refused(&receipt), "{kind:?}: {receipt:?}");
    1
}

/// Sends the header of a correct gradient twice, and then the rest of the one that is accepted. Returns the answer to the other one.
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
    assert_eq!(accepted.await, Receipt::Accepted);
    refused
}

/// Sends a header. Returns where to send the chunks, and what will be the answer.
async fn begin(peer: &Peer, header: GradientHeader) -> (mpsc::Sender<GradientPart>, impl Future<Output = Receipt>) {
    let (sender, sent) = mpsc::channel(4);
    let mut parts = gradient_parts(header.into(), std::iter::empty());
    sender.send(parts.next().await.unwrap()).await.unwrap();
    let peer = peer.clone();
    let answer = tokio::spawn(async move { peer.submit_parts(ReceiverStream::new(sent)).await.unwrap() });
    (sender, async { soon("an answer", answer).await.unwrap() })
}

/// The gradient of a lease, and its header, as an honest worker sends them that computes it as one batch.
fn honest(
    parameters: &[f32],
    settings: &Settings,
    lease: &Assignment,
    header: GradientHeader,
) -> (GradientHeader, Vec<i32>) {
    let data = toy(settings.model).unwrap().open(&DataSource::Generated { seed: 1 }, Split::Train).unwrap();
    let tasks = Tasks { seed: 1, budget: settings.budget, task_batch: settings.task_batch };
    let mut learner = data.learner(&DeviceChoice::Cpu.open().unwrap(), tasks);
    learner.load(parameters);
    let Lease { iteration, tasks, .. } = lease.lease;
    let sizes = TensorSizes::new([parameters.len()]);
    let first = learner.gradient(iteration, 0).unwrap();
    let units = Units::first(&maxima(&first.gradient, &sizes).unwrap(), settings.budget);
    let (mut total, mut loss) = (vec![0.0; parameters.len()], 0.0);
    for task in tasks.indices() {
        let of_task = learner.gradient(iteration, task).unwrap();
        total.iter_mut().zip(of_task.gradient).for_each(|(total, value)| *total += value);
        loss += of_task.loss;
    }
    let mut sum = GradientSum::new(&sizes);
    sum.add(&total, tasks.count, &Quantizer::new(units.clone(), sizes, settings.budget, WireFormat::F32Exact)).unwrap();
    let times = LeaseTimes { busy_s: vec![0.0], outlasted: 0 };
    let computed = header.computed.map(|computed| ComputedLease { times, losses: vec![loss], ..computed });
    (GradientHeader { maxima: sum.maxima, computed, ..header }.in_units(units.exponents(), &[]), sum.values)
}

/// Three workers, of which one may be scripted.
fn three() -> Settings {
    Settings { budget: 6, min_workers: 3, ..collected() }
}

/// Ends a run of three, of which the scripted one was refused by this kind, and nobody else.
async fn check_end_of_three(cluster: Cluster, kind: RefusalKind, times: u64) {
    let Ended { report, events, .. } = cluster.end().await;
    assert!(report.ended.is_ok(), "{:?}", report.ended);
    assert_eq!(report.parameters_sha256, undisturbed(&Settings { min_workers: 1, ..three() }).await);
    assert_eq!(report.state.refused, BTreeMap::from([(kind, times)]));
    let bad = report.state.workers.iter().find(|(_, worker)| worker.name == "bad").expect("it took part").0;
    let rests = |event: &RunEvent| matches!(event, RunEvent::Rest { worker, .. } if worker != bad);
    assert!(!events.iter().any(rests), "an honest worker rests");
}

/// Of three workers, one insists on units of 2^100 in the first iteration. It is asked again, then refused, and the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn huge_units_are_outvoted() {
    let mut cluster = Cluster::start(&three()).await;
    let peer = Peer::connect(cluster.address).await;
    let mut session = peer.join("bad").await;
    for name in ["one", "two"] {
        cluster.worker(WorkerSettings::new(name));
    }
    let leases = session.assigned().await;
    session.report(&leases).await;
    let mut last = None;
    for _ in 0..2 {
        let asked = session.asked().await.remove(0);
        let header = boastful(session.vector_header(&asked));
        assert!(is_not_held(&peer.submit(header, &SUMS).await.unwrap()));
        assert!(last.replace(asked.clone()).is_none_or(|last| last == asked), "the same again");
    }
    cluster.wait_for("the refusal", |state| state.refused.contains_key(&RefusalKind::WrongSize)).await;
    session.leave().await;
    check_end_of_three(cluster, RefusalKind::WrongSize, 1).await;
}

/// A worker that computes its lease as one batch sends the right values, with maxima that would ruin the units. A spot check finds
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn huge_maxima_of_right_values_are_a_mismatch() {
    let settings = Settings { verify: 1.0, ..three() };
    let mut cluster = Cluster::start(&settings).await;
    let peer = Peer::connect(cluster.address).await;
    let mut session = peer.hello("bad", 1).await.unwrap();
    session.say(FromWorker::Ready { fuses: true, peer_address: None }).await;
    for name in ["one", "two"] {
        cluster.worker(WorkerSettings::new(name));
    }
    let lease = session.assigned().await[0];
    assert!(lease.lease.is_alone);
    let (_, parameters) = next_set(&mut peer.parameters(&session).await.unwrap()).await;
    let (header, values) = honest(&parameters, &settings, &lease, session.header(&lease));
    let header = GradientHeader { maxima: vec![3e38], ..header };
    assert_eq!(peer.submit(header, &values).await.unwrap(), Receipt::Accepted);
    cluster.wait_for("the mismatch", |state| state.refused.contains_key(&RefusalKind::Mismatched)).await;
    session.leave().await;
    check_end_of_three(cluster, RefusalKind::Mismatched, 1).await;
}

/// Invariant 8: a worker cannot claim more time than has passed, however much it says.
#[tokio::test(flavor = "multi_thread")]
async fn impossibly_long_times_are_cut_to_what_has_passed() {
    let cluster = Cluster::start(&Settings { iterations: 1, ..settings() }).await;
    let peer = Peer::connect(cluster.address).await;
    let mut session = peer.join("a").await;
    let lease = session.assigned().await[0];
    let mut header = session.header(&lease);
    header.computed.as_mut().unwrap().times.busy_s = vec![1e300];
    assert_eq!(peer.submit(header, &SUMS).await.unwrap(), Receipt::Accepted);
    let Ended { report, .. } = cluster.end().await;
    let worker = &report.state.workers[&ata_types::WorkerId::from_slot(0)];
    assert!(worker.busy_s > 0.0 && worker.busy_s <= report.state.runtime_s() * 1.001, "{worker:?}");
}

/// A client that sends nothing but foreign gradients is expelled, is not let in again, and cannot fill the journal.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_only_offends_is_expelled() {
    let settings = Settings { rest_s: 1000.0, ..collected() };
    let mut cluster = Cluster::start(&settings).await;
    let peer = Peer::connect(cluster.address).await;
    let mut session = peer.join("bad").await;
    let lease = session.assigned().await[0];
    let mut foreign = first_header(&mut session, &lease).await;
    foreign.vector.as_mut().unwrap().0 += 1000;
    let mut sent = 0;
    while let Ok(receipt) = peer.submit(foreign.clone(), &SUMS).await {
        assert!(is_not_held(&receipt), "{receipt:?}");
        sent += 1;
        assert!(sent <= u64::from(settings.expel_after), "it is still there");
    }
    let detail = loop {
        match session.next().await {
            Some(ToWorker::Farewell { reason: FarewellReason::Expelled, detail }) => break detail,
            Some(_) => {}
            None => panic!("its session ended without a word"),
        }
    };
    assert!(detail.contains("failed 8 times in a row"), "{detail}");
    let refused = peer.hello("bad", 2).await.err().unwrap();
    assert_eq!((refused.code(), refused.message().contains("expelled")), (Code::PermissionDenied, true), "{refused:?}");
    // Its name tells its own program that it need not try again.
    cluster.worker(WorkerSettings::new("bad"));
    cluster.worker(WorkerSettings::new("honest"));
    let Ended { report, events, workers, .. } = cluster.end().await;
    assert!(matches!(workers["bad"], Err(WorkerError::Refused(_))), "{:?}", workers["bad"]);
    assert_eq!(report.parameters_sha256, undisturbed(&collected()).await);
    assert_eq!(report.state.refused, BTreeMap::from([(RefusalKind::Foreign, sent)]), "all are counted");
    let written = events.iter().filter(|event| matches!(event, RunEvent::Refusal { .. })).count();
    assert!((1..=2).contains(&written), "{written} events for {sent} within a second");
    assert!(report.state.workers[&ata_types::WorkerId::from_slot(0)].expelled.is_some());
}

/// A gradient that has arrived is not accepted again, and the answer does not wait for 16 MB that would be discarded.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_gradient_is_answered_at_once() {
    let settings = Settings { model: "toy:4000000", ..settings() };
    let cluster = Cluster::start(&settings).await;
    let peer = Peer::connect(cluster.address).await;
    let mut session = peer.join("a").await;
    let sums = vec![7; 4_000_000];
    let (mut receipts, mut units) = (Vec::new(), vec![ata_harness::UNIT]);
    for iteration in 1..=3 {
        let lease = loop {
            match session.next().await {
                Some(ToWorker::Units { units: next, .. }) => units = next,
                Some(ToWorker::Assign(leases)) => break leases[0],
                Some(_) => {}
                None => panic!("the session is over"),
            }
        };
        assert_eq!(lease.lease.iteration, Iteration(iteration));
        let header = session.header(&lease).in_units(&units, &[]);
        receipts.push(peer.submit(header.clone(), &sums).await.unwrap());
        if iteration < 3 {
            // All but the first two chunks are never sent: an answer that waited for them would not come.
            let unfinished =
                gradient_parts(header.into(), chunks(&sums).into_iter()).take(3).chain(tokio_stream::pending());
            assert!(is_not_held(&peer.submit_parts(unfinished).await.unwrap()));
        }
    }
    assert_eq!(receipts, [Receipt::Accepted, Receipt::Accepted, Receipt::Accepted]);
    let Ended { report, .. } = cluster.end().await;
    assert!(report.ended.is_ok());
    assert_eq!(report.state.refused.get(&RefusalKind::Replayed), Some(&2));
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
    assert_eq!(again.welcome.worker, first.welcome.worker, "a process replaces its own session");
    assert!(first.next().await.is_none());
    assert_eq!(peer.parameters(&first).await.unwrap_err().code(), Code::Unauthenticated);
    let sets = peer.parameters(&again).await.unwrap();
    assert_eq!(peer.parameters(&again).await.unwrap_err().code(), Code::ResourceExhausted, "one call at a time");
    drop(sets);
    let lease = Lease { id: LeaseId(0), iteration: Iteration(1), tasks: TaskRange::single(0), is_alone: true };
    let lease = Assignment { lease, trace: None };
    let stranger = GradientHeader { session: SessionToken([7; 16]), ..again.header(&lease) };
    assert_eq!(peer.submit(stranger, &SUMS).await.unwrap_err().code(), Code::Unauthenticated);
    let mut hasty = peer.hello("hasty", 1).await.unwrap();
    assert!(is_not_held(&peer.submit(hasty.header(&lease), &SUMS).await.unwrap()));
    assert!(hasty.next().await.is_none(), "a worker that is not ready has nothing to send");

    for nonsense in [empty, hello(ata_wire::PROTOCOL, "a")] {
        let mut session = peer.hello("c", 3).await.unwrap();
        session.say_raw(nonsense).await;
        assert!(session.next().await.is_none(), "its session is closed");
    }
    cluster.worker(WorkerSettings::new("honest"));
    let Ended { report, .. } = cluster.end().await;
    assert_eq!(report.parameters_sha256, undisturbed(&settings()).await);
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
    let mut peer = Peer::connect(cluster.address).await;
    let names = ata_wire::limits::MAX_WORKERS + 500;
    for i in 0..names {
        if i % 500 == 0 {
            // A server ends a connection after 1024 streams that were cut off.
            peer = Peer::connect(cluster.address).await;
        }
        let mut session = peer.join(&format!("name-{i}")).await;
        assert!(session.welcome.worker.slot() < ata_wire::limits::MAX_WORKERS);
        // Half of them hold a lease when they leave.
        if i % 2 == 0 {
            session.assigned().await;
        }
    }
    let mut last = peer.join("last").await;
    assert_eq!(last.assigned().await.len(), 1);
    assert!(cluster.state.borrow().workers.len() <= ata_wire::limits::MAX_WORKERS);
}
