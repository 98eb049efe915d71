//! Tests that messages survive encoding and decoding, and that every incoming frame is either valid or refused.

use std::time::Duration;

use ata_types::{
    Iteration, Lease, LeaseId, MAX_LEASE_TASKS, MAX_METRICS, TaskRange, TaskRanges, VectorId, WireFormat, WorkerId,
};
use ata_wire::limits::{
    MAX_BATCH, MAX_BATCH_ENTRIES, MAX_BUDGET, MAX_CHUNK_TIMEOUT_MS, MAX_CHUNKS, MAX_CLASSES, MAX_DATA_BYTES,
    MAX_EVALUATED_BATCHES, MAX_EVALUATION_BATCH, MAX_NAME_CHARS, MAX_PARAMETERS, MAX_PROBE_BYTES, MAX_RANGES,
    MAX_SHARDS, MAX_SHIFT_BYTES, MAX_TASK_BATCH, MAX_TENSORS, MAX_TEXT_BYTES, MESSAGE_BYTES, PROBE_REQUEST_PADDING,
    REQUEST_BYTES,
};
use ata_wire::{
    Assignment, BatchFigures, ComputedLease, DataSpec, ExchangeReport, FarewellReason, FromWorker, GradientHeader,
    Hello, LeaseTimes, MeasuredBatch, MemberReport, PairFault, PeerAddress, ProbeIntake, ProbeSummary, RunSpec,
    SessionToken, SetHeader, ShardMember, Shards, Stripe, ToWorker, VectorRequest, Welcome, proto,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use prost::Message;

fn worker_id() -> impl Strategy<Value = WorkerId> {
    (1..=u32::MAX).prop_map(|number| WorkerId::new(number).unwrap())
}

fn hello() -> impl Strategy<Value = FromWorker> {
    let number = prop_oneof![Just(None), worker_id().prop_map(Some)];
    ("[a-zA-Z0-9._-]{1,64}", any::<u64>(), number, ".{0,100}", ".{0,100}").prop_map(
        |(name, instance, number, device, version)| {
            FromWorker::Hello(Hello { name: name.parse().unwrap(), instance, number, device, version })
        },
    )
}

fn computed() -> impl Strategy<Value = ComputedLease> {
    (any::<u64>(), vec((0.0..1e6, -1e6..1e6), 0..20), any::<u64>()).prop_map(|(lease, measured, outlasted)| {
        let (busy_s, losses) = measured.into_iter().unzip();
        ComputedLease { lease: LeaseId(lease), times: LeaseTimes { busy_s, outlasted }, losses }
    })
}

fn peer_address() -> impl Strategy<Value = PeerAddress> {
    (0..=255_u8, 1..=u16::MAX).prop_map(|(host, port)| PeerAddress::Open(format!("10.0.0.{host}:{port}")))
}

fn from_worker() -> impl Strategy<Value = FromWorker> {
    prop_oneof![
        hello(),
        (any::<bool>(), prop::option::of(peer_address()))
            .prop_map(|(fuses, peer_address)| FromWorker::Ready { fuses, peer_address }),
        (any::<u64>(), ".{0,100}", any::<bool>()).prop_map(|(vector, reason, uncomputable)| {
            FromWorker::VectorFailed { vector: VectorId(vector), reason, uncomputable }
        }),
        exchange_report(),
        (any::<u64>(), prop_oneof![Just(Ok(())), ".{1,100}".prop_map(Err)])
            .prop_map(|(probe, outcome)| FromWorker::Reached { probe, outcome }),
        any::<bool>().prop_map(|idle| FromWorker::Heartbeat { idle }),
        (any::<u64>(), ".{0,100}", any::<bool>()).prop_map(|(lease, reason, uncomputable)| FromWorker::LeaseFailed {
            lease: LeaseId(lease),
            reason,
            uncomputable
        }),
        vec(computed(), 1..20).prop_map(FromWorker::Progress),
        measured().prop_map(FromWorker::Measured),
    ]
}

fn exchange_report() -> impl Strategy<Value = FromWorker> {
    let kinds = vec![PairFault::Unreachable, PairFault::Late, PairFault::Broken, PairFault::Undecodable];
    let fault = prop::option::of((prop::sample::select(kinds), ".{0,100}"));
    let member = (0..MAX_SHARDS, any::<u64>(), 0.0..1e9, 0.0..1e9, fault)
        .prop_map(|(place, bytes, seconds, waiting_s, fault)| MemberReport { place, bytes, seconds, waiting_s, fault });
    (any::<u64>(), any::<bool>(), vec(member, 0..=MAX_SHARDS)).prop_map(|(vector, has_failed, members)| {
        FromWorker::ExchangeReport(ExchangeReport { vector: VectorId(vector), has_failed, members })
    })
}

fn measured() -> impl Strategy<Value = MeasuredBatch> {
    let metrics = btree_map("[a-z ]{1,64}", -1e6..1e6, 0..=MAX_METRICS);
    let figures = (1..u64::MAX, 1..=MAX_EVALUATION_BATCH, -1e6..1e6, vec(any::<(u32, u32)>(), 0..9), metrics).prop_map(
        |(samples, batch_samples, loss, classes, metrics)| BatchFigures {
            samples,
            batch_samples,
            loss,
            classes,
            metrics,
        },
    );
    let outcome = prop_oneof![figures.prop_map(Ok), ".{1,100}".prop_map(Err)];
    (1..u64::MAX, any::<u64>(), outcome).prop_map(|(step, batch, outcome)| MeasuredBatch {
        step: Iteration(step),
        batch,
        outcome,
    })
}

fn data_spec() -> impl Strategy<Value = DataSpec> {
    prop_oneof![
        any::<u64>().prop_map(|seed| DataSpec::Generated { seed }),
        (any::<[u8; 32]>(), 1..=MAX_DATA_BYTES, proptest::option::of("[a-z]{1,9}://[a-z]{1,9}"))
            .prop_map(|(sha256, bytes, shards_url)| DataSpec::File { sha256, bytes, shards_url }),
    ]
}

fn run_spec() -> impl Strategy<Value = RunSpec> {
    let data = (data_spec(), data_spec());
    let format = prop_oneof![Just(WireFormat::F32Exact), Just(WireFormat::Compact)];
    let tasks = (1..=MAX_TASK_BATCH, any::<bool>());
    (".{0,50}", 1..=MAX_PARAMETERS, any::<u64>(), 1..=MAX_BUDGET, tasks, data, format).prop_map(
        |(model, parameters, seed, budget, (task_batch, skip_bad_samples), (data, test_data), format)| RunSpec {
            model,
            parameters,
            seed,
            budget,
            task_batch,
            skip_bad_samples,
            data,
            test_data,
            format,
        },
    )
}

fn task_ranges() -> impl Strategy<Value = TaskRanges> {
    let range = (prop_oneof![0..50_u64, any::<u64>()], prop_oneof![1..9_u64, 1..=u64::MAX]);
    let range = range.prop_map(|(first, count)| TaskRange { first, count: count.min(u64::MAX - first) });
    vec(range, 1..20).prop_map(TaskRanges::from_iter).prop_filter("there are tasks", |tasks| !tasks.is_empty())
}

fn collection() -> impl Strategy<Value = VectorRequest> {
    let member = (peer_address(), any::<[u8; 16]>());
    let member = member.prop_map(|(address, key)| ShardMember { address, key: SessionToken(key) });
    let members = vec(member, 2..=MAX_SHARDS);
    let shards = (members, any::<prop::sample::Index>(), 1..=u64::from(MAX_CHUNK_TIMEOUT_MS));
    let shards = shards.prop_map(|(members, place, timeout_ms)| Shards {
        place: place.index(members.len()),
        members,
        chunk_timeout: Duration::from_millis(timeout_ms),
    });
    (1..=u64::MAX, 1..=u64::MAX, task_ranges(), 0..MAX_CHUNKS, prop::option::of(shards)).prop_map(
        |(id, iteration, tasks, first_chunk, shards)| {
            let (id, iteration) = (VectorId(id), Iteration(iteration));
            VectorRequest { id, iteration, tasks, first_chunk, shards }
        },
    )
}

fn to_worker() -> impl Strategy<Value = ToWorker> {
    let welcome = (any::<[u8; 16]>(), worker_id(), ".{0,50}", (1..=u32::MAX, 1..=u32::MAX), run_spec()).prop_map(
        |(session, worker, run_id, (heartbeat_interval_ms, idle_heartbeat_interval_ms), run)| {
            let session = SessionToken(session);
            let welcome = Welcome { session, worker, run_id, heartbeat_interval_ms, idle_heartbeat_interval_ms, run };
            ToWorker::Welcome(welcome)
        },
    );
    let vector = prop::option::of((1..=u64::MAX).prop_map(VectorId));
    let assign = (any::<u64>(), 1..=u64::MAX, 1..=MAX_LEASE_TASKS, 0..1_u64 << 40, vector).prop_map(
        |(id, iteration, count, first, vector)| {
            let tasks = TaskRange { first, count };
            let lease = Lease { id: LeaseId(id), iteration: Iteration(iteration), tasks, own: None };
            Assignment { lease, vector }
        },
    );
    let assign = vec(assign, 1..20).prop_map(ToWorker::Assign);
    let reason = prop::sample::select(vec![
        FarewellReason::Finished,
        FarewellReason::Evicted,
        FarewellReason::Stopping,
        FarewellReason::Failed,
        FarewellReason::Expelled,
    ]);
    prop_oneof![
        welcome,
        assign,
        (1..=u64::MAX, vec(any::<i16>(), 0..20), vec(any::<u8>(), 0..20)).prop_map(|(iteration, units, shifts)| {
            ToWorker::Units { iteration: Iteration(iteration), units, shifts: shifts.into() }
        }),
        vec(any::<u64>().prop_map(LeaseId), 1..20).prop_map(ToWorker::Cancel),
        (vec(collection(), 1..20), vec(any::<u64>().prop_map(VectorId), 0..20))
            .prop_map(|(requests, withdrawn)| ToWorker::Collect { requests, withdrawn }),
        any::<u64>().prop_map(|id| ToWorker::Collect { requests: Vec::new(), withdrawn: vec![VectorId(id)] }),
        (any::<u64>(), peer_address()).prop_map(|(probe, address)| ToWorker::Reach { probe, address }),
        (reason, ".{0,100}").prop_map(|(reason, detail)| ToWorker::Farewell { reason, detail }),
    ]
}

fn gradient_header() -> impl Strategy<Value = GradientHeader> {
    let tensors = vec((0.0..f32::MAX, any::<i16>()), 0..20);
    (any::<[u8; 16]>(), 1..=u64::MAX, tensors, any::<(u64, u64, u32)>()).prop_map(
        |(session, vector, tensors, (saturated, vanished, units_crc32c))| {
            let (maxima, units) = tensors.into_iter().unzip();
            let (session, vector) = (SessionToken(session), VectorId(vector));
            GradientHeader { session, vector, maxima, units, units_crc32c, saturated, vanished }
        },
    )
}

fn set_header() -> impl Strategy<Value = SetHeader> {
    let base = prop::option::of((1..=u64::MAX).prop_map(Iteration));
    let stripe =
        (2..=MAX_SHARDS as u64).prop_flat_map(|stride| (0..stride).prop_map(move |first| Stripe { first, stride }));
    (1..=u64::MAX, base, 1..=MAX_CHUNKS, prop::option::of(stripe)).prop_map(|(iteration, base, chunks, stripe)| {
        SetHeader { iteration: Iteration(iteration), base, chunks, stripe }
    })
}

fn probe_summary() -> impl Strategy<Value = ProbeSummary> {
    (".{0,50}", ".{0,50}", run_spec(), 0..=MAX_PROBE_BYTES, 0..1_u64 << 33).prop_map(
        |(version, run_id, run, padding_bytes, time_s)| ProbeSummary {
            version,
            run_id,
            run,
            padding_bytes,
            time: Duration::from_secs(time_s),
        },
    )
}

/// Checks that both sides turn any frame into an error, or into a message that satisfies the contract.
fn receive(frame: &[u8]) {
    receive_from_worker(frame);
    receive_at_worker(frame);
    receive_in_bulk(frame);
}

fn receive_from_worker(frame: &[u8]) {
    if let Ok(message) = proto::WorkerMessage::decode(frame) {
        match FromWorker::try_from(message) {
            Ok(FromWorker::Hello(hello)) => {
                assert!(hello.name.to_string().len() <= MAX_NAME_CHARS);
                assert!(hello.device.len() <= MAX_TEXT_BYTES && hello.version.len() <= MAX_TEXT_BYTES);
            }
            Ok(
                FromWorker::LeaseFailed { reason, .. }
                | FromWorker::VectorFailed { reason, .. }
                | FromWorker::Reached { outcome: Err(reason), .. },
            ) => assert!(reason.len() <= MAX_TEXT_BYTES),
            Ok(FromWorker::ExchangeReport(report)) => {
                assert!(report.members.len() <= MAX_SHARDS);
                assert!(report.members.iter().all(|member| member.place < MAX_SHARDS && member.seconds >= 0.0));
            }
            Ok(FromWorker::Progress(leases)) => {
                assert!((1..=MAX_BATCH).contains(&leases.len()));
                assert!(leases.iter().all(|lease| lease.losses.len() == lease.times.busy_s.len()));
            }
            Ok(FromWorker::Measured(MeasuredBatch { step, outcome: Ok(figures), .. })) => {
                assert!((1..u64::MAX).contains(&step.number()) && figures.samples > 0);
                assert!((1..=MAX_EVALUATION_BATCH).contains(&figures.batch_samples));
                assert!(figures.classes.len() <= MAX_CLASSES);
            }
            Ok(FromWorker::Measured(MeasuredBatch { outcome: Err(reason), .. })) => {
                assert!((1..=MAX_TEXT_BYTES).contains(&reason.len()));
            }
            Ok(FromWorker::LinkProbed { seconds, .. }) => assert!(seconds > 0.0 && seconds.is_finite()),
            Ok(FromWorker::Ready { .. } | FromWorker::Heartbeat { .. } | FromWorker::Reached { .. }) | Err(_) => {}
        }
    }
}

fn receive_at_worker(frame: &[u8]) {
    if let Ok(message) = proto::CoordinatorMessage::decode(frame) {
        match ToWorker::try_from(message) {
            Ok(ToWorker::Assign(assignments)) => {
                assert!((1..=MAX_BATCH).contains(&assignments.len()));
                for Assignment { lease, .. } in assignments {
                    assert!((1..=MAX_LEASE_TASKS).contains(&lease.tasks.count));
                    assert!(lease.tasks.first.checked_add(lease.tasks.count).is_some());
                }
            }
            Ok(ToWorker::Evaluate { step, batches }) => {
                assert!((1..u64::MAX).contains(&step.number()));
                assert!((1..=MAX_EVALUATED_BATCHES).contains(&batches.len()));
            }
            Ok(ToWorker::ProbeLink { bytes }) => assert!(bytes <= MAX_PROBE_BYTES),
            Ok(ToWorker::Cancel(leases)) => assert!((1..=MAX_BATCH).contains(&leases.len())),
            Ok(ToWorker::Collect { requests, withdrawn }) => {
                assert!(requests.len() <= MAX_BATCH && withdrawn.len() <= MAX_BATCH);
                assert!(!requests.is_empty() || !withdrawn.is_empty());
                for VectorRequest { id, tasks, first_chunk, .. } in requests {
                    assert!(id.0 > 0 && first_chunk < MAX_CHUNKS && (1..=MAX_RANGES).contains(&tasks.len()));
                }
            }
            Ok(ToWorker::Welcome(welcome)) => {
                assert!((1..=MAX_PARAMETERS).contains(&welcome.run.parameters));
                assert!((1..=MAX_TASK_BATCH).contains(&welcome.run.task_batch));
            }
            Ok(ToWorker::Farewell { .. } | ToWorker::Units { .. } | ToWorker::Reach { .. }) | Err(_) => {}
        }
    }
}

fn receive_in_bulk(frame: &[u8]) {
    if let Ok(Ok(header)) = proto::GradientHeader::decode(frame).map(GradientHeader::try_from) {
        assert_eq!(header.maxima.len(), header.units.len());
        assert!(header.maxima.iter().all(|maximum| maximum.is_finite() && maximum.is_sign_positive()));
    }
    if let Ok(Ok(header)) = proto::SetHeader::decode(frame).map(SetHeader::try_from) {
        assert!(header.chunks <= MAX_CHUNKS && header.iteration.number() > 0);
    }
    if let Ok(Ok(summary)) = proto::ProbeSummary::decode(frame).map(ProbeSummary::try_from) {
        assert!(summary.padding_bytes <= MAX_PROBE_BYTES && summary.version.len() <= MAX_TEXT_BYTES);
        assert!(std::time::UNIX_EPOCH.checked_add(summary.time).is_some());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_a_worker_says_arrives(message in from_worker()) {
        let frame = proto::WorkerMessage::from(message.clone()).encode_to_vec();
        let received = proto::WorkerMessage::decode(frame.as_slice()).unwrap();
        prop_assert_eq!(FromWorker::try_from(received), Ok(message));
    }

    #[test]
    fn what_the_coordinator_says_arrives(message in to_worker()) {
        let frame = proto::CoordinatorMessage::from(message.clone()).encode_to_vec();
        let received = proto::CoordinatorMessage::decode(frame.as_slice()).unwrap();
        prop_assert_eq!(ToWorker::try_from(received), Ok(message));
    }

    #[test]
    fn gradient_headers_arrive(header in gradient_header()) {
        let frame = proto::GradientHeader::from(header.clone()).encode_to_vec();
        let received = proto::GradientHeader::decode(frame.as_slice()).unwrap();
        prop_assert_eq!(GradientHeader::try_from(received), Ok(header));
    }

    #[test]
    fn set_headers_arrive(header in set_header()) {
        let frame = proto::SetHeader::from(header.clone()).encode_to_vec();
        let received = proto::SetHeader::decode(frame.as_slice()).unwrap();
        prop_assert_eq!(SetHeader::try_from(received), Ok(header));
    }

    #[test]
    fn probe_summaries_arrive(summary in probe_summary()) {
        let frame = proto::ProbeSummary::from(summary.clone()).encode_to_vec();
        let received = proto::ProbeSummary::decode(frame.as_slice()).unwrap();
        prop_assert_eq!(ProbeSummary::try_from(received), Ok(summary));
    }

    #[test]
    fn random_frames_do_no_harm(frame in vec(any::<u8>(), 0..200)) {
        receive(&frame);
    }

    #[test]
    fn mutated_frames_do_no_harm(
        from in from_worker(),
        to in to_worker(),
        header in gradient_header(),
        set in set_header(),
        summary in probe_summary(),
        mutations in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        for mut frame in [
            proto::WorkerMessage::from(from).encode_to_vec(),
            proto::CoordinatorMessage::from(to).encode_to_vec(),
            proto::GradientHeader::from(header).encode_to_vec(),
            proto::SetHeader::from(set).encode_to_vec(),
            proto::ProbeSummary::from(summary).encode_to_vec(),
        ] {
            for (at, byte) in &mutations {
                let at = at.index(frame.len());
                frame[at] = *byte;
            }
            receive(&frame);
            receive(&frame[..cut.index(frame.len())]);
        }
    }
}

#[test]
fn what_is_beyond_the_contract_is_refused_with_the_field() {
    use proto::coordinator_message::Kind;
    let assign = |first_task, tasks| {
        let assign = proto::Assign { lease: 1, iteration: 1, first_task, tasks, ..Default::default() };
        let assignments = proto::Assignments { leases: vec![assign] };
        ToWorker::try_from(proto::CoordinatorMessage { kind: Some(Kind::Assign(assignments)) })
    };
    let none = proto::CoordinatorMessage { kind: Some(Kind::Assign(proto::Assignments::default())) };
    assert!(ToWorker::try_from(none).unwrap_err().to_string().contains("number of leases is 0"));
    for (first_task, tasks) in [(8, 4), (0, 3), (2, 4), (0, MAX_LEASE_TASKS), (u64::MAX - 4, 4)] {
        assert!(assign(first_task, tasks).is_ok(), "{first_task}, {tasks}");
    }
    for (first_task, tasks) in [(0, 0), (0, MAX_LEASE_TASKS + 1), (u64::MAX - 3, 4)] {
        let error = assign(first_task, tasks).unwrap_err();
        assert!(error.to_string().starts_with("tasks is "), "{first_task}, {tasks}: {error}");
    }
    let old = proto::Hello { protocol: 0, ..Default::default() };
    let message = proto::WorkerMessage { kind: Some(proto::worker_message::Kind::Hello(old)) };
    assert!(FromWorker::try_from(message).unwrap_err().to_string().contains("same release"));
    assert!(ToWorker::try_from(proto::CoordinatorMessage { kind: None }).is_err());
    let session = vec![0; 16].into();
    let welcome = Kind::Welcome(proto::Welcome { session, number: 0, ..Default::default() });
    let error = ToWorker::try_from(proto::CoordinatorMessage { kind: Some(welcome) }).unwrap_err();
    assert!(error.to_string().starts_with("number is 0"), "{error}");
}

#[test]
fn a_probe_carries_no_more_than_the_contract_says() {
    let request = |answer_bytes, padding: usize| proto::ProbeRequest { answer_bytes, padding: vec![0; padding].into() };
    let mut intake = ProbeIntake::default();
    intake.take(&request(5, 0)).unwrap();
    intake.take(&request(MAX_PROBE_BYTES + 1, 10)).unwrap();
    assert_eq!((intake.answer_bytes(), intake.padding_bytes()), (5, 10), "the first one says what is to be answered");
    let error = ProbeIntake::default().take(&request(MAX_PROBE_BYTES + 1, 0)).unwrap_err();
    assert!(error.to_string().contains("answer_bytes"), "{error}");
    for (padding, at_most) in [(PROBE_REQUEST_PADDING, 4196), (0, 16_386)] {
        let mut intake = ProbeIntake::default();
        let taken = (0..20_000).take_while(|_| intake.take(&request(0, padding)).is_ok()).count();
        assert!(taken as u64 * padding as u64 <= MAX_PROBE_BYTES + 4096, "{taken} of {padding}");
        assert!((at_most - 8..=at_most).contains(&taken), "{taken} of {padding}");
    }
    let old = proto::ProbeSummary { protocol: 1, ..Default::default() };
    assert!(ProbeSummary::try_from(old).unwrap_err().to_string().contains("same release"));
}

/// Returns as many leases as a message may hold, of which the first has the rest of the entries.
fn computed_leases() -> Vec<ComputedLease> {
    let computed = |entries| ComputedLease {
        lease: LeaseId(u64::MAX),
        times: LeaseTimes { busy_s: vec![0.1; entries], outlasted: u64::MAX },
        losses: vec![0.1; entries],
    };
    let rest = MAX_BATCH - 1;
    std::iter::once(computed(MAX_BATCH_ENTRIES - rest)).chain(std::iter::repeat_n(computed(1), rest)).collect()
}

#[test]
fn the_largest_messages_have_room() {
    let tasks = TaskRange { first: 1 << 62, count: MAX_LEASE_TASKS };
    let lease = Lease { id: LeaseId(u64::MAX), iteration: Iteration(u64::MAX), tasks, own: None };
    // The tasks are spread over the indices, so that the numbers are long.
    let collection = |ranges: usize| VectorRequest {
        id: VectorId(u64::MAX),
        iteration: Iteration(u64::MAX),
        tasks: (1..=ranges as u64).map(|at| TaskRange { first: at << 47, count: 1 << 46 }).collect(),
        first_chunk: MAX_CHUNKS - 1,
        shards: None,
    };
    let collect = |requests| ToWorker::Collect { requests, withdrawn: vec![VectorId(u64::MAX); MAX_BATCH] };
    for message in [
        ToWorker::Assign(vec![Assignment { lease, vector: Some(VectorId(u64::MAX)) }; MAX_BATCH]),
        ToWorker::Cancel(vec![LeaseId(u64::MAX); MAX_BATCH]),
        collect(vec![collection(MAX_BATCH_ENTRIES / MAX_BATCH); MAX_BATCH]),
        collect(vec![collection(MAX_RANGES)]),
    ] {
        let message = proto::CoordinatorMessage::from(message);
        assert!(message.encoded_len() <= MESSAGE_BYTES, "{} bytes", message.encoded_len());
        ToWorker::try_from(message).expect("it is within the limits");
    }
    let progress = proto::WorkerMessage::from(FromWorker::Progress(computed_leases()));
    assert!(progress.encoded_len() <= REQUEST_BYTES, "{} bytes", progress.encoded_len());
    FromWorker::try_from(progress).expect("it is within the limits");
    let header = proto::GradientHeader::from(GradientHeader {
        session: SessionToken([1; 16]),
        vector: VectorId(u64::MAX),
        maxima: vec![1.0; MAX_TENSORS],
        units: vec![i16::MIN; MAX_TENSORS],
        units_crc32c: u32::MAX,
        saturated: u64::MAX,
        vanished: u64::MAX,
    });
    assert!(header.encoded_len() <= MESSAGE_BYTES - 16, "{} bytes", header.encoded_len());
    GradientHeader::try_from(header).expect("it is within the limits");
    let units = |shifts: usize| {
        let (units, shifts) = (vec![i16::MIN; MAX_TENSORS], vec![17; shifts].into());
        proto::CoordinatorMessage::from(ToWorker::Units { iteration: Iteration(u64::MAX), units, shifts })
    };
    assert!(units(MAX_SHIFT_BYTES).encoded_len() <= MESSAGE_BYTES / 2);
    ToWorker::try_from(units(MAX_SHIFT_BYTES)).expect("it is within the limits");
    let error = ToWorker::try_from(units(MAX_SHIFT_BYTES + 1)).unwrap_err().to_string();
    assert!(error.starts_with("bytes of shifts"), "{error}");
}

#[test]
fn the_header_of_a_vector_must_agree_with_itself() {
    let good = proto::GradientHeader {
        session: vec![0; 16].into(),
        vector: 1,
        maxima: [1.0_f32, 0.0].into_iter().flat_map(f32::to_le_bytes).collect(),
        units: vec![-20, 5],
        ..Default::default()
    };
    GradientHeader::try_from(good.clone()).unwrap();
    let check = |field: &str, change: &dyn Fn(&mut proto::GradientHeader)| {
        let mut header = good.clone();
        change(&mut header);
        let error = GradientHeader::try_from(header).unwrap_err().to_string();
        assert!(error.starts_with(field), "{field}: {error}");
    };
    check("vector is 0", &|header| header.vector = 0);
    check("number of units", &|header| header.units.truncate(1));
    check("number of units", &|header| header.units = vec![0; MAX_TENSORS + 1]);
    check("unit is 32768", &|header| header.units[1] = 1 << 15);
    check("maximum", &|header| header.maxima.truncate(7));
    check("bytes of maxima", &|header| header.maxima = vec![0; 4 * MAX_TENSORS + 4].into());
    for maximum in [f32::NAN, f32::INFINITY, -1.0, -0.0] {
        check("maximum is", &|header| header.maxima = [maximum; 2].map(f32::to_le_bytes).concat().into());
    }
}

/// A set of tasks has one form on the wire, so requests are equal exactly if their bytes are.
#[test]
fn ranges_of_tasks_ascend_with_gaps_between_them() {
    let read = |tasks: &[u64]| {
        let tasks = tasks.to_vec();
        VectorRequest::try_from(proto::VectorRequest { id: 1, iteration: 1, tasks, ..Default::default() })
    };
    let many = |ranges: usize| [1, 1].repeat(ranges);
    for good in [&[0, 1][..], &[5, 2, 1, 1], &[u64::MAX - 1, 1], &many(MAX_RANGES)] {
        let collection = read(good).unwrap();
        assert_eq!(proto::VectorRequest::from(collection).tasks, good);
    }
    for bad in [&[0, 0][..], &[5, 2, 0, 1], &[u64::MAX, 1], &[1, u64::MAX], &[0, 1, u64::MAX, 1], &[0, 1, 5]] {
        assert!(read(bad).unwrap_err().to_string().starts_with("tasks is "), "{bad:?}");
    }
    for bad in [&[][..], &many(MAX_RANGES + 1)] {
        assert!(read(bad).unwrap_err().to_string().starts_with("number of ranges is "), "{}", bad.len());
    }
    let nothing = proto::coordinator_message::Kind::Collect(proto::Collect::default());
    let error = ToWorker::try_from(proto::CoordinatorMessage { kind: Some(nothing) }).unwrap_err();
    assert!(error.to_string().starts_with("number of requests is 0"), "{error}");
}

/// Both limits hold: that on the leases, and that on their times.
#[test]
fn a_report_holds_as_much_as_a_message_may() {
    let computed = |entries| ComputedLease {
        lease: LeaseId(1),
        times: LeaseTimes { busy_s: vec![0.1; entries], ..LeaseTimes::default() },
        losses: vec![0.1; entries],
    };
    for (leases, entries, messages) in [(MAX_BATCH + 1, 1, 2), (5, MAX_BATCH_ENTRIES / 2, 3), (2, 1, 1)] {
        let mut left = vec![computed(entries); leases];
        let mut sent = 0;
        while !left.is_empty() {
            FromWorker::try_from(proto::WorkerMessage::from(FromWorker::progress(&mut left))).unwrap();
            sent += 1;
        }
        assert_eq!(sent, messages, "{leases} of {entries}");
    }
}

#[test]
fn a_format_that_is_unknown_is_refused() {
    for format in [0, 3, -1] {
        let data =
            Some(proto::DataSpec { kind: Some(proto::data_spec::Kind::Generated(proto::GeneratedData::default())) });
        let test_data = data.clone();
        let run =
            proto::RunSpec { parameters: 1, budget: 1, task_batch: 1, data, test_data, format, ..Default::default() };
        let error = RunSpec::try_from(run).unwrap_err().to_string();
        assert!(error.starts_with("format is "), "{error}");
    }
}
