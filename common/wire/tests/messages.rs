//! Messages survive the wire, and no incoming frame can do harm.

use std::num::{NonZeroU64, NonZeroU128};
use std::time::Duration;

use ata_types::{Iteration, Lease, LeaseId, MAX_LEASE_TASKS, TaskRange, WorkerId};
use ata_wire::limits::{
    MAX_BATCH, MAX_BUDGET, MAX_DATA_BYTES, MAX_NAME_CHARS, MAX_PARAMETERS, MAX_PROBE_BYTES, MAX_TASK_BATCH,
    MAX_TEXT_BYTES, MESSAGE_BYTES, PROBE_REQUEST_PADDING,
};
use ata_wire::{
    Assignment, DataSpec, FarewellReason, FromWorker, GradientHeader, Hello, LeaseTimes, ProbeIntake, ProbeSummary,
    RunSpec, SessionToken, ToWorker, TraceContext, Welcome, proto,
};
use proptest::collection::vec;
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

fn from_worker() -> impl Strategy<Value = FromWorker> {
    prop_oneof![
        hello(),
        any::<bool>().prop_map(|fuses| FromWorker::Ready { fuses }),
        any::<bool>().prop_map(|idle| FromWorker::Heartbeat { idle }),
        (any::<u64>(), ".{0,100}")
            .prop_map(|(lease, reason)| FromWorker::LeaseFailed { lease: LeaseId(lease), reason }),
    ]
}

fn run_spec() -> impl Strategy<Value = RunSpec> {
    let data = prop_oneof![
        any::<u64>().prop_map(|seed| DataSpec::Generated { seed }),
        (any::<[u8; 32]>(), 1..=MAX_DATA_BYTES).prop_map(|(sha256, bytes)| DataSpec::File { sha256, bytes }),
    ];
    (".{0,50}", 1..=MAX_PARAMETERS, any::<u64>(), 1..=MAX_BUDGET, 1..=MAX_TASK_BATCH, data).prop_map(
        |(model, parameters, seed, budget, task_batch, data)| RunSpec {
            model,
            parameters,
            seed,
            budget,
            task_batch,
            data,
        },
    )
}

fn trace() -> impl Strategy<Value = Option<TraceContext>> {
    prop::option::of(
        (any::<NonZeroU128>(), any::<NonZeroU64>(), any::<bool>()).prop_map(|(trace, span, is_sampled)| TraceContext {
            trace,
            span,
            is_sampled,
        }),
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
    let assign = (any::<u64>(), 1..=u64::MAX, 1..=MAX_LEASE_TASKS, 0..1_u64 << 40, trace()).prop_map(
        |(id, iteration, count, first, trace)| {
            let lease = Lease { id: LeaseId(id), iteration: Iteration(iteration), tasks: TaskRange { first, count } };
            Assignment { lease, trace }
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
        vec(any::<u64>().prop_map(LeaseId), 1..20).prop_map(ToWorker::Cancel),
        (reason, ".{0,100}").prop_map(|(reason, detail)| ToWorker::Farewell { reason, detail }),
    ]
}

fn gradient_header() -> impl Strategy<Value = GradientHeader> {
    (any::<[u8; 16]>(), any::<u64>(), any::<u64>(), vec(0.0..1e6, 1..20), -1e6..1e6, any::<u64>()).prop_map(
        |(session, lease, iteration, busy_s, loss_sum, outlasted)| GradientHeader {
            session: SessionToken(session),
            lease: LeaseId(lease),
            iteration: Iteration(iteration),
            times: LeaseTimes { busy_s, outlasted },
            loss_sum,
        },
    )
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

/// Both sides turn any frame into an error, or into a message that satisfies the contract.
fn receive(frame: &[u8]) {
    if let Ok(message) = proto::WorkerMessage::decode(frame) {
        match FromWorker::try_from(message) {
            Ok(FromWorker::Hello(hello)) => {
                assert!(hello.name.to_string().len() <= MAX_NAME_CHARS);
                assert!(hello.device.len() <= MAX_TEXT_BYTES && hello.version.len() <= MAX_TEXT_BYTES);
            }
            Ok(FromWorker::LeaseFailed { reason, .. }) => assert!(reason.len() <= MAX_TEXT_BYTES),
            Ok(FromWorker::Ready { .. } | FromWorker::Heartbeat { .. }) | Err(_) => {}
        }
    }
    if let Ok(message) = proto::CoordinatorMessage::decode(frame) {
        match ToWorker::try_from(message) {
            Ok(ToWorker::Assign(assignments)) => {
                assert!((1..=MAX_BATCH).contains(&assignments.len()));
                for Assignment { lease, .. } in assignments {
                    assert!((1..=MAX_LEASE_TASKS).contains(&lease.tasks.count));
                    assert!(lease.tasks.first.checked_add(lease.tasks.count).is_some());
                }
            }
            Ok(ToWorker::Cancel(leases)) => assert!((1..=MAX_BATCH).contains(&leases.len())),
            Ok(ToWorker::Welcome(welcome)) => {
                assert!((1..=MAX_PARAMETERS).contains(&welcome.run.parameters));
                assert!((1..=MAX_TASK_BATCH).contains(&welcome.run.task_batch));
            }
            Ok(ToWorker::Farewell { .. }) | Err(_) => {}
        }
    }
    if let Ok(header) = proto::GradientHeader::decode(frame) {
        drop(GradientHeader::try_from(header));
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
        summary in probe_summary(),
        mutations in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        for mut frame in [
            proto::WorkerMessage::from(from).encode_to_vec(),
            proto::CoordinatorMessage::from(to).encode_to_vec(),
            proto::GradientHeader::from(header).encode_to_vec(),
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
        let assign = proto::Assign { lease: 1, iteration: 1, first_task, tasks, traceparent: String::new() };
        let assignments = proto::Assignments { leases: vec![assign] };
        ToWorker::try_from(proto::CoordinatorMessage { kind: Some(Kind::Assign(assignments)) })
    };
    let none = proto::CoordinatorMessage { kind: Some(Kind::Assign(proto::Assignments::default())) };
    assert!(ToWorker::try_from(none).unwrap_err().to_string().contains("number of leases is 0"));
    for (first_task, tasks, is_subtree) in [(8, 4, true), (0, 3, false), (2, 4, false), (0, MAX_LEASE_TASKS, true)] {
        let Ok(ToWorker::Assign(leases)) = assign(first_task, tasks) else { panic!("{first_task}, {tasks}") };
        assert_eq!(leases[0].lease.tasks.is_subtree(), is_subtree, "{first_task}, {tasks}");
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

/// The example of W3C Trace Context.
const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn a_traceparent_is_read_and_whatever_else_stands_in_its_place_changes_nothing() {
    let trace_of = |traceparent: &str| {
        let traceparent = traceparent.to_owned();
        let assign = proto::Assign { lease: 1, iteration: 1, first_task: 0, tasks: 1, traceparent };
        Assignment::try_from(assign).expect("a lease is good whatever its trace").trace
    };
    let read = trace_of(TRACEPARENT).unwrap();
    assert_eq!(read.trace.get(), 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
    assert_eq!((read.span.get(), read.is_sampled), (0xb7ad_6b71_6920_3331, true));
    assert_eq!(read.to_string(), TRACEPARENT);
    let with = |at: usize, text: &str| {
        let mut changed = TRACEPARENT.to_owned();
        changed.replace_range(at..at + text.len(), text);
        changed
    };
    assert!(!trace_of(&with(53, "00")).unwrap().is_sampled);
    assert!(trace_of(&with(53, "fb")).unwrap().is_sampled, "flags that version 00 does not know");
    let [no_trace, no_span] = [with(3, &"0".repeat(32)), with(36, &"0".repeat(16))];
    let (short, long) = (&TRACEPARENT[..54], format!("{TRACEPARENT}0"));
    let wrong = ["01", "ff", "0x"].map(|version| with(0, version));
    let wrong = wrong.iter().chain([&no_trace, &no_span, &long]).map(String::as_str);
    for text in wrong.chain(["", short, &with(3, "+"), &with(36, "B"), &with(53, "+1"), &with(2, "_"), &with(33, "é")])
    {
        assert_eq!(trace_of(text), None, "'{text}'");
    }
}

#[test]
fn the_largest_message_has_room_for_the_trace_of_each_lease() {
    let trace = TraceContext::parse(TRACEPARENT);
    let tasks = TaskRange { first: 1 << 62, count: MAX_LEASE_TASKS };
    let lease = Lease { id: LeaseId(u64::MAX), iteration: Iteration(u64::MAX), tasks };
    let message = proto::CoordinatorMessage::from(ToWorker::Assign(vec![Assignment { lease, trace }; MAX_BATCH]));
    assert!(message.encoded_len() <= MESSAGE_BYTES, "{} bytes", message.encoded_len());
}
