//! Tests that messages survive encoding and decoding, and that what violates the contract is refused. Mutated frames of every kind are in
//! `frames.rs` of the harness.

use std::fmt::Debug;
use std::time::Duration;

use ata_sums::{GroupRule, InnerSteps, LearningRate, Optimizer, Rule, Schedule, TensorGroups};
use ata_types::{
    Iteration, Lease, LeaseId, MAX_LEASE_TASKS, MAX_METRIC_NAME_BYTES, MAX_METRICS, TaskRange, VectorId, WireFormat,
    WorkerId,
};
use ata_wire::limits::{
    MAX_BATCH, MAX_BATCH_ENTRIES, MAX_BUDGET, MAX_CHUNK_TIMEOUT_MS, MAX_CHUNKS, MAX_CLASSES, MAX_DATA_BYTES,
    MAX_EVALUATED_BATCHES, MAX_NAME_CHARS, MAX_PARAMETERS, MAX_PROBE_BYTES, MAX_RANGES, MAX_SHARDS, MAX_SHIFT_BYTES,
    MAX_TASK_BATCH, MAX_TENSORS, MAX_TEXT_BYTES, MESSAGE_BYTES, PROBE_REQUEST_PADDING, REQUEST_BYTES,
};
use ata_wire::proto::coordinator_message::Kind as To;
use ata_wire::proto::worker_message::Kind as From;
use ata_wire::{
    Assignment, BatchFigures, ComputedLease, DataSpec, ExchangeReport, FarewellReason, FromWorker, GradientHeader,
    Hello, LeaseTimes, MeasuredBatch, MemberReport, PROTOCOL, PairFault, PeerAddress, ProbeIntake, ProbeSummary,
    ProcessUsage, RunSpec, SessionToken, SetHeader, ShardMember, Shards, Stripe, ToWorker, VectorRequest, Welcome,
    WireError, proto,
};
use prost::Message;

fn check_arrival<P, M>(messages: impl IntoIterator<Item = M>)
where
    P: Message + Default + std::convert::From<M>,
    M: TryFrom<P, Error = WireError> + Clone + PartialEq + Debug,
{
    for message in messages {
        let frame = P::from(message.clone()).encode_to_vec();
        assert_eq!(M::try_from(P::decode(&frame[..]).unwrap()), Ok(message));
    }
}

fn run() -> RunSpec {
    RunSpec {
        model: "cnn".into(),
        parameters: MAX_PARAMETERS,
        tensors: vec![MAX_PARAMETERS >> 16; MAX_TENSORS],
        seed: u64::MAX,
        budget: MAX_BUDGET - 1,
        most_tasks: MAX_BUDGET,
        task_batch: MAX_TASK_BATCH,
        skip_bad_samples: true,
        data: DataSpec::File { sha256: [9; 32], bytes: MAX_DATA_BYTES, shards_url: Some("s3://images".into()) },
        test_data: DataSpec::Generated { seed: 3 },
        format: WireFormat::Compact,
        inner_steps: Some(inner_steps(Rule::AdamW, Schedule::Step { every: 7, factor: 0.5 }).into()),
    }
}

fn inner_steps(rule: Rule, schedule: Schedule) -> InnerSteps {
    let group = |weight_decay| GroupRule { rate_factor: 2.0, weight_decay };
    let groups = TensorGroups::new(vec![group(None), group(Some(0.5))], [0, 1].repeat(MAX_TENSORS / 2)).unwrap();
    let optimizer = Optimizer { rule, clip_norm: Some(2.0), groups, ..Optimizer::default() };
    InnerSteps {
        optimizer,
        learning_rate: LearningRate { peak: 0.25, warmup: 3, schedule },
        difference_bits: 4,
        overlap: true,
    }
}

fn address() -> PeerAddress {
    PeerAddress::Open("10.0.0.9:7071".into())
}

#[test]
fn what_a_worker_says_arrives() {
    let hello = Hello {
        name: "gpu-7.example.org".parse().unwrap(),
        instance: u64::MAX,
        number: WorkerId::new(3),
        device: "CPU, 8 cores".into(),
        version: "0.1.0".into(),
    };
    let times = LeaseTimes { busy_s: vec![0.5, 0.25], outlasted: 1, waited_s: 0.125, ahead: true };
    let member = |fault| MemberReport { place: MAX_SHARDS - 1, bytes: 7, seconds: 0.5, waiting_s: 1e9, fault };
    let figures = BatchFigures {
        samples: u64::MAX,
        batch_samples: MAX_TASK_BATCH,
        loss: -4.5,
        classes: vec![(3, 1), (0, 0)],
        metrics: [("top 5".to_owned(), 0.25), ("top 1".to_owned(), 0.125)].into(),
    };
    let (step, reason) = (Iteration(u64::MAX - 1), "no memory".to_owned());
    check_arrival::<proto::WorkerMessage, _>([
        FromWorker::Hello(Hello { number: None, ..hello.clone() }),
        FromWorker::Hello(hello),
        FromWorker::Ready { fuses: true, peer_address: Some(address()) },
        FromWorker::Ready { fuses: false, peer_address: None },
        FromWorker::Heartbeat { idle: true, usage: ProcessUsage::default() },
        FromWorker::Leaving(Vec::new()),
        FromWorker::Leaving(vec![LeaseId(1), LeaseId(u64::MAX)]),
        FromWorker::LeaseFailed { lease: LeaseId(7), reason: reason.clone(), uncomputable: true },
        FromWorker::VectorFailed { vector: VectorId(7), reason: reason.clone(), uncomputable: true },
        FromWorker::ExchangeReport(ExchangeReport {
            vector: VectorId(7),
            has_failed: true,
            members: [None, Some((PairFault::Late, "why".to_owned()))].map(member).into(),
        }),
        FromWorker::Reached { probe: 7, outcome: Ok(()) },
        FromWorker::Reached { probe: 7, outcome: Err(reason.clone()) },
        FromWorker::Progress(vec![ComputedLease { lease: LeaseId(7), times, losses: vec![2.0, f64::INFINITY] }; 2]),
        FromWorker::Measured(MeasuredBatch { step, batch: 3, outcome: Ok(figures) }),
        FromWorker::Measured(MeasuredBatch { step, batch: 4, outcome: Err(reason) }),
        FromWorker::LinkProbed { bytes: 262_144, seconds: 1.25 },
    ]);
}

#[test]
fn what_the_coordinator_says_arrives() {
    let welcome = Welcome {
        session: SessionToken([5; 16]),
        worker: WorkerId::from_slot(2),
        run_id: "run".into(),
        heartbeat_interval_ms: 500,
        idle_heartbeat_interval_ms: u32::MAX,
        run: run(),
    };
    let iteration = Iteration(u64::MAX);
    let tasks = TaskRange { first: 1 << 40, count: MAX_LEASE_TASKS };
    let lease = Lease { id: LeaseId(7), iteration, tasks, own: None };
    let request = VectorRequest {
        id: VectorId(u64::MAX),
        iteration,
        tasks: [TaskRange { first: 3, count: 200 }, TaskRange { first: u64::MAX - 1, count: 1 }].into_iter().collect(),
        first_chunk: MAX_CHUNKS - 1,
        shards: None,
    };
    let shards = Shards {
        place: 1,
        members: [1, 2].map(|key| ShardMember { address: address(), key: SessionToken([key; 16]) }).into(),
        chunk_timeout: Duration::from_millis(MAX_CHUNK_TIMEOUT_MS.into()),
    };
    let shared = VectorRequest { shards: Some(shards), ..request.clone() };
    check_arrival::<proto::CoordinatorMessage, _>([
        ToWorker::Welcome(welcome),
        ToWorker::Assign(
            [None, Some(VectorId(9))].map(|vector| Assignment { lease, position: 1 << 50, vector }).into(),
        ),
        ToWorker::Units { iteration, units: vec![i16::MIN, i16::MAX], shifts: vec![0, 0x3a].into() },
        ToWorker::Evaluate { step: Iteration(u64::MAX - 1), batches: (0..MAX_EVALUATED_BATCHES as u64).collect() },
        ToWorker::ProbeLink { bytes: MAX_PROBE_BYTES },
        ToWorker::Cancel(vec![LeaseId(1), LeaseId(u64::MAX)]),
        ToWorker::Collect { requests: vec![request, shared], withdrawn: vec![VectorId(2)] },
        ToWorker::Collect { requests: Vec::new(), withdrawn: vec![VectorId(2)] },
        ToWorker::Reach { probe: 7, address: address() },
        ToWorker::Farewell { reason: FarewellReason::Expelled, detail: "no result".into() },
    ]);
}

#[test]
fn headers_and_summaries_arrive() {
    check_arrival::<proto::GradientHeader, _>([GradientHeader {
        session: SessionToken([5; 16]),
        vector: VectorId(u64::MAX),
        maxima: vec![0.0, f32::MAX],
        units: vec![i16::MIN, i16::MAX],
        units_crc32c: 1,
        saturated: 2,
        vanished: 3,
    }]);
    let whole = SetHeader { iteration: Iteration(u64::MAX), chunks: MAX_CHUNKS, ..SetHeader::default() };
    let stripe = Some(Stripe { first: 1, stride: MAX_SHARDS as u64 });
    check_arrival::<proto::SetHeader, _>([SetHeader { base: Some(Iteration(7)), stripe, ..whole.clone() }, whole]);
    let (version, run_id, padding_bytes) = ("0.1.0".into(), "run".into(), MAX_PROBE_BYTES);
    check_arrival::<proto::ProbeSummary, _>([ProbeSummary { version, run_id, run: run(), padding_bytes }]);
}

#[test]
fn every_inner_optimizer_arrives() {
    let span = 40;
    let rates = [
        Schedule::Constant,
        Schedule::Cosine { iterations: span },
        Schedule::OneCycle { iterations: span },
        Schedule::Step { every: span, factor: 0.5 },
    ];
    let rules = [Rule::Adam, Rule::AdamW, Rule::Sgd { momentum: 0.5, nesterov: true }];
    let with = |steps| ProbeSummary { run: RunSpec { inner_steps: steps, ..run() }, ..ProbeSummary::default() };
    let all = rules.into_iter().flat_map(|rule| rates.map(|schedule| Some(inner_steps(rule, schedule).into())));
    check_arrival::<proto::ProbeSummary, _>(all.chain([None]).map(with));
}

type Change = fn(&mut proto::InnerSteps);

#[test]
fn inner_optimizers_that_cannot_step_are_refused_with_the_field() {
    let mut good = proto::ProbeSummary::from(ProbeSummary { run: run(), ..ProbeSummary::default() });
    let steps = good.run.as_mut().unwrap().inner_steps.take().unwrap();
    let read = |change: &dyn Fn(&mut proto::InnerSteps)| {
        let mut summary = good.clone();
        let mut steps = steps.clone();
        change(&mut steps);
        summary.run.as_mut().unwrap().inner_steps = Some(steps);
        ProbeSummary::try_from(summary)
    };
    read(&|_| {}).unwrap();
    for (change, said) in [
        ((|steps| steps.rule = 0) as Change, "rule is 0"),
        (|steps| steps.beta1 = 1.0, "beta1 is 1"),
        (|steps| steps.beta2 = -0.1, "beta2 is -0.1"),
        (|steps| steps.epsilon = 0.0, "epsilon is 0"),
        (|steps| steps.weight_decay = f64::NAN, "weight_decay is NaN"),
        (|steps| steps.clip_norm = Some(0.0), "clip_norm is 0"),
        (|steps| steps.groups[0].rate_factor = f64::INFINITY, "rate_factor is inf"),
        (|steps| steps.groups[1].weight_decay = Some(-1.0), "weight_decay is -1"),
        (|steps| steps.group_of_tensor[3] = 2, "group_of_tensor is "),
        (|steps| steps.group_of_tensor.push(0), "number of groups of tensors is 65537"),
        (|steps| (steps.rule, steps.momentum) = (3, 1.0), "momentum is 1"),
        (|steps| steps.difference_bits = 17, "difference_bits is 17"),
        (|steps| steps.learning_rate = None, "learning_rate is missing"),
        (|steps| steps.learning_rate.as_mut().unwrap().schedule = 9, "schedule is 9"),
        (|steps| steps.learning_rate.as_mut().unwrap().peak = 0.0, "peak is 0"),
        (|steps| steps.learning_rate.as_mut().unwrap().factor = f64::NAN, "factor is NaN"),
    ] {
        check_refusal(read(&change), said);
    }
}

fn from_worker(kind: From) -> Result<FromWorker, WireError> {
    FromWorker::try_from(proto::WorkerMessage { kind: Some(kind) })
}

fn to_worker(kind: To) -> Result<ToWorker, WireError> {
    ToWorker::try_from(proto::CoordinatorMessage { kind: Some(kind) })
}

fn check_refusal(read: Result<impl Debug, WireError>, said: &str) {
    let error = read.unwrap_err().to_string();
    assert!(error.starts_with(said), "{said}: {error}");
}

#[test]
fn what_a_worker_must_not_say_is_refused_with_the_field() {
    let times = |busy_s: usize, losses: usize| proto::ComputedLease {
        busy_s: vec![0.1; busy_s],
        losses: vec![0.1; losses],
        ..Default::default()
    };
    let progress = |leases| From::Progress(proto::Progress { leases });
    let reported = |members| From::ExchangeReport(proto::ExchangeReport { members, ..Default::default() });
    let member = |place, seconds, waiting_s| {
        reported(vec![proto::MemberReport { place, seconds, waiting_s, ..Default::default() }])
    };
    let measured = |change: &dyn Fn(&mut proto::Measured)| {
        let mut measured = proto::Measured { step: 1, samples: 1, batch_samples: 1, ..Default::default() };
        change(&mut measured);
        From::Measured(measured)
    };
    let names = |names: &[&str], values: usize| {
        let metric_names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        measured(&|m| (m.metric_names, m.metric_values) = (metric_names.clone(), vec![0.5; values]))
    };
    let hello = |name: &str| proto::Hello { protocol: PROTOCOL, name: name.to_owned(), ..Default::default() };
    for (kind, said) in [
        (From::Hello(proto::Hello { protocol: 0, ..hello("rig") }), "protocol version 0"),
        (From::Hello(hello("")), "worker name is ''"),
        (From::Hello(hello("a b")), "worker name is 'a b'"),
        (From::Hello(hello(&"r".repeat(MAX_NAME_CHARS + 1))), "worker name is "),
        (From::Ready(proto::Ready { peer_address: "rig".into(), ..Default::default() }), "peer address is 3 bytes"),
        (From::Leaving(proto::Leaving { leases: vec![1; MAX_BATCH + 1] }), "number of leases is 8193"),
        (progress(vec![]), "number of leases is 0"),
        (progress(vec![times(1, 1); MAX_BATCH + 1]), "number of leases is 8193"),
        (progress(vec![times(MAX_BATCH_ENTRIES, MAX_BATCH_ENTRIES), times(1, 1)]), "number of entries is 65537"),
        (progress(vec![times(65_537, 65_537)]), "number of times is 65537"),
        (progress(vec![times(2, 1)]), "number of losses is 1: expected 2, one for each time"),
        (reported(vec![proto::MemberReport::default(); MAX_SHARDS + 1]), "number of members"),
        (member(MAX_SHARDS as u32, 0.0, 0.0), "place is "),
        (member(0, -0.5, 0.0), "seconds is -0.5"),
        (member(0, 0.0, f64::NAN), "waiting_s is NaN"),
        (measured(&|m| m.step = 0), "step is 0"),
        (measured(&|m| m.samples = 0), "samples is 0"),
        (measured(&|m| m.batch_samples = 0), "batch_samples is 0"),
        (measured(&|m| m.batch_samples = MAX_TASK_BATCH + 1), "batch_samples is "),
        (measured(&|m| m.class_samples = vec![1; MAX_CLASSES + 1]), "number of classes is "),
        (measured(&|m| m.class_samples = vec![1]), "class_correct is 0 counts"),
        (
            measured(&|m| (m.class_samples, m.class_correct) = (vec![3, 1], vec![3, 2])),
            "class_correct is 2: expected at most 1, the class's samples",
        ),
        (names(&["top"; MAX_METRICS + 1], MAX_METRICS + 1), "number of metrics is "),
        (names(&["top"], 2), "metric_values is 2 values"),
        (names(&["top", "top"], 2), "metric_names is 1 names"),
        (names(&[""], 1), "length of a metric's name is 0"),
        (names(&["t".repeat(MAX_METRIC_NAME_BYTES + 1).as_str()], 1), "length of a metric's name is "),
        (From::LinkProbed(proto::LinkProbed { bytes: 1, seconds: 0.0 }), "seconds is 0"),
        (From::LinkProbed(proto::LinkProbed { bytes: 1, seconds: f64::INFINITY }), "seconds is inf"),
    ] {
        check_refusal(from_worker(kind), said);
    }
    check_refusal(FromWorker::try_from(proto::WorkerMessage::default()), "worker message is missing");
    let reason = "r".repeat(2 * MAX_TEXT_BYTES);
    let failed = from_worker(From::LeaseFailed(proto::LeaseFailed { reason, ..Default::default() }));
    assert!(matches!(failed, Ok(FromWorker::LeaseFailed { reason, .. }) if reason.len() == MAX_TEXT_BYTES));
}

#[test]
fn what_the_coordinator_must_not_say_is_refused_with_the_field() {
    let assign_after = |position, first_task, tasks| {
        let assign = proto::Assign { lease: 1, iteration: 1, first_task, tasks, position, ..Default::default() };
        To::Assign(proto::Assignments { leases: vec![assign] })
    };
    let assign = |first_task, tasks| assign_after(0, first_task, tasks);
    for (first_task, tasks) in [(8, 4), (0, 3), (2, 4), (0, MAX_LEASE_TASKS), (u64::MAX - 4, 4)] {
        to_worker(assign(first_task, tasks)).unwrap();
    }
    let nothing = proto::Assignments { leases: vec![proto::Assign::default()] };
    let cancel = |leases| To::Cancel(proto::Cancellations { leases: vec![1; leases] });
    let evaluate = |step, batches| To::Evaluate(proto::Evaluate { step, batches: vec![1; batches] });
    let withdrawn = vec![1; MAX_BATCH + 1];
    let units = |iteration, units: usize, shifts: usize| {
        To::Units(proto::Units { iteration, exponents: vec![1; units], shifts: vec![0; shifts].into() })
    };
    for (kind, said) in [
        (To::Assign(proto::Assignments::default()), "number of leases is 0"),
        (To::Assign(proto::Assignments { leases: vec![proto::Assign::default(); MAX_BATCH + 1] }), "number of leases"),
        (To::Assign(nothing), "iteration is 0"),
        (assign(0, 0), "tasks is 0"),
        (assign(0, MAX_LEASE_TASKS + 1), "tasks is "),
        (assign(u64::MAX - 3, 4), "tasks is 4 from 18446744073709551612 after 0"),
        (assign_after(u64::MAX - 8, 5, 4), "tasks is 4 from 5 after 18446744073709551607"),
        (cancel(0), "number of leases is 0"),
        (cancel(MAX_BATCH + 1), "number of leases is 8193"),
        (evaluate(1, 0), "number of batches is 0"),
        (evaluate(1, MAX_EVALUATED_BATCHES + 1), "number of batches is 17"),
        (evaluate(0, 1), "step is 0"),
        (evaluate(u64::MAX, 1), "step is "),
        (To::ProbeLink(proto::ProbeLink { bytes: MAX_PROBE_BYTES + 1 }), "bytes is "),
        (To::Collect(proto::Collect { withdrawn, ..Default::default() }), "number of withdrawn vectors is 8193"),
        (To::Collect(proto::Collect::default()), "number of requests is 0"),
        (To::Reach(proto::Reach { address: "rig".into(), ..Default::default() }), "peer address is 3 bytes"),
        (units(0, 1, 0), "iteration is 0"),
        (units(1, MAX_TENSORS + 1, 0), "number of units is "),
        (units(1, 1, MAX_SHIFT_BYTES + 1), "bytes of shifts is "),
    ] {
        check_refusal(to_worker(kind), said);
    }
    check_refusal(ToWorker::try_from(proto::CoordinatorMessage::default()), "coordinator message is missing");
}

fn small_run() -> proto::RunSpec {
    let data = proto::DataSpec { kind: Some(proto::data_spec::Kind::Generated(proto::GeneratedData::default())) };
    proto::RunSpec {
        parameters: 1,
        tensors: vec![1],
        budget: 1,
        most_tasks: 1,
        task_batch: 1,
        data: Some(data.clone()),
        test_data: Some(data),
        format: 1,
        ..Default::default()
    }
}

#[test]
fn a_welcome_describes_a_run_that_is_possible() {
    let file = |sha256: usize, bytes| {
        let file = proto::FileData { sha256: vec![1; sha256].into(), bytes, ..Default::default() };
        Some(proto::DataSpec { kind: Some(proto::data_spec::Kind::File(file)) })
    };
    let welcome = proto::Welcome {
        session: vec![0; 16].into(),
        number: 1,
        heartbeat_interval_ms: 1,
        idle_heartbeat_interval_ms: 1,
        run: Some(small_run()),
        ..Default::default()
    };
    to_worker(To::Welcome(welcome.clone())).unwrap();
    let check = |said, change: &dyn Fn(&mut proto::Welcome)| {
        let mut welcome = welcome.clone();
        change(&mut welcome);
        check_refusal(to_worker(To::Welcome(welcome)), said);
    };
    check("number is 0", &|welcome| welcome.number = 0);
    check("session is 15 bytes", &|welcome| welcome.session.truncate(15));
    check("heartbeat_interval_ms is 0", &|welcome| welcome.heartbeat_interval_ms = 0);
    check("idle_heartbeat_interval_ms is 0", &|welcome| welcome.idle_heartbeat_interval_ms = 0);
    check("run is missing", &|welcome| welcome.run = None);
    let check =
        |said, change: &dyn Fn(&mut proto::RunSpec)| check(said, &|welcome| change(welcome.run.as_mut().unwrap()));
    for parameters in [0, MAX_PARAMETERS + 1] {
        check("parameters is ", &|run| run.parameters = parameters);
    }
    for tensors in [vec![], vec![0; MAX_TENSORS + 1]] {
        check("number of tensors is ", &|run| run.tensors.clone_from(&tensors));
    }
    for tensors in [vec![0], vec![2], vec![1, u64::MAX]] {
        check("sum of tensors is ", &|run| run.tensors.clone_from(&tensors));
    }
    for budget in [0, MAX_BUDGET + 1] {
        check("budget is ", &|run| run.budget = budget);
        check("most_tasks is ", &|run| run.most_tasks = budget);
    }
    for task_batch in [0, MAX_TASK_BATCH + 1] {
        check("task_batch is ", &|run| run.task_batch = task_batch);
    }
    for format in [0, 3, -1] {
        check("format is ", &|run| run.format = format);
    }
    check("data is missing", &|run| run.data = None);
    check("test_data is missing", &|run| run.test_data = None);
    check("sha256 is 31 bytes", &|run| run.data = file(31, 1));
    for bytes in [0, MAX_DATA_BYTES + 1] {
        check("bytes is ", &|run| run.test_data = file(32, bytes));
    }
}

#[test]
fn a_probe_carries_no_more_than_the_contract_says() {
    let request = |answer_bytes, padding: usize| proto::ProbeRequest { answer_bytes, padding: vec![0; padding].into() };
    let mut intake = ProbeIntake::default();
    intake.take(&request(5, 0)).unwrap();
    intake.take(&request(MAX_PROBE_BYTES + 1, 10)).unwrap();
    assert_eq!((intake.answer_bytes(), intake.padding_bytes), (5, 10), "the first one says what is to be answered");
    check_refusal(ProbeIntake::default().take(&request(MAX_PROBE_BYTES + 1, 0)), "answer_bytes is ");
    check_refusal(ProbeIntake::default().take(&request(0, PROBE_REQUEST_PADDING + 1)), "padding is 4001 bytes");
    for (padding, at_most) in [(PROBE_REQUEST_PADDING, 4196), (0, 16_386)] {
        let mut intake = ProbeIntake::default();
        let taken = (0..20_000).take_while(|_| intake.take(&request(0, padding)).is_ok()).count();
        assert!(taken as u64 * padding as u64 <= MAX_PROBE_BYTES + 4096, "{taken} of {padding}");
        assert!((at_most - 8..=at_most).contains(&taken), "{taken} of {padding}");
    }
    let summary = ProbeSummary { run: run(), padding_bytes: MAX_PROBE_BYTES + 1, ..ProbeSummary::default() };
    check_refusal(ProbeSummary::try_from(proto::ProbeSummary::from(summary)), "padding_bytes is ");
    check_refusal(ProbeSummary::try_from(proto::ProbeSummary::default()), "protocol version 0");
}

#[test]
fn the_largest_messages_have_room() {
    let tasks = TaskRange { first: 1 << 62, count: MAX_LEASE_TASKS };
    let lease = Lease { id: LeaseId(u64::MAX), iteration: Iteration(u64::MAX), tasks, own: None };
    let assignment = Assignment { lease, position: u64::MAX >> 1, vector: Some(VectorId(u64::MAX)) };
    // The tasks are spread over the indices, so that the numbers are long.
    let collection = |ranges: usize| VectorRequest {
        id: VectorId(u64::MAX),
        iteration: Iteration(u64::MAX),
        tasks: (1..=ranges as u64).map(|at| TaskRange { first: at << 47, count: 1 << 46 }).collect(),
        first_chunk: MAX_CHUNKS - 1,
        shards: None,
    };
    let collect = |requests| ToWorker::Collect { requests, withdrawn: vec![VectorId(u64::MAX); MAX_BATCH] };
    let units = ToWorker::Units {
        iteration: Iteration(u64::MAX),
        units: vec![i16::MIN; MAX_TENSORS],
        shifts: vec![17; MAX_SHIFT_BYTES].into(),
    };
    for (message, limit) in [
        (ToWorker::Assign(vec![assignment; MAX_BATCH]), MESSAGE_BYTES),
        (ToWorker::Cancel(vec![LeaseId(u64::MAX); MAX_BATCH]), MESSAGE_BYTES),
        (collect(vec![collection(MAX_BATCH_ENTRIES / MAX_BATCH); MAX_BATCH]), MESSAGE_BYTES),
        (collect(vec![collection(MAX_RANGES)]), MESSAGE_BYTES),
        (units, MESSAGE_BYTES / 2),
    ] {
        let message = proto::CoordinatorMessage::from(message);
        assert!(message.encoded_len() <= limit, "{} bytes", message.encoded_len());
        ToWorker::try_from(message).expect("it is within the limits");
    }
    let computed = |entries| ComputedLease {
        lease: LeaseId(u64::MAX),
        times: LeaseTimes { busy_s: vec![0.1; entries], outlasted: u64::MAX, waited_s: f64::MAX, ahead: true },
        losses: vec![0.1; entries],
    };
    // The first lease has the rest of the entries.
    let mut leases = vec![computed(1); MAX_BATCH];
    leases[0] = computed(MAX_BATCH_ENTRIES - (MAX_BATCH - 1));
    let progress = proto::WorkerMessage::from(FromWorker::Progress(leases));
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
}

#[test]
fn headers_must_agree_with_themselves() {
    let good = proto::GradientHeader {
        session: vec![0; 16].into(),
        vector: 1,
        maxima: [1.0_f32, 0.0].into_iter().flat_map(f32::to_le_bytes).collect(),
        units: vec![-20, 5],
        ..Default::default()
    };
    GradientHeader::try_from(good.clone()).unwrap();
    let check = |said: &str, change: &dyn Fn(&mut proto::GradientHeader)| {
        let mut header = good.clone();
        change(&mut header);
        check_refusal(GradientHeader::try_from(header), said);
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
    let set = |iteration, chunks, stride, first_chunk| {
        SetHeader::try_from(proto::SetHeader { iteration, chunks, stride, first_chunk, ..Default::default() })
    };
    check_refusal(set(0, 1, 0, 0), "iteration is 0");
    for chunks in [0, MAX_CHUNKS + 1] {
        check_refusal(set(1, chunks, 0, 0), "number of chunks is ");
    }
    for (stride, first_chunk) in [(0, 1), (1, 0), (3, 3), (MAX_SHARDS as u32 + 1, 0)] {
        check_refusal(set(1, 9, stride, first_chunk), "stripe is ");
    }
}

fn requested(request: proto::VectorRequest) -> Result<ToWorker, WireError> {
    to_worker(To::Collect(proto::Collect { requests: vec![request], ..Default::default() }))
}

/// A set of tasks has one form on the wire, so requests are equal exactly if their bytes are.
#[test]
fn ranges_of_tasks_ascend_with_gaps_between_them() {
    let request =
        |tasks: &[u64]| proto::VectorRequest { id: 1, iteration: 1, tasks: tasks.to_vec(), ..Default::default() };
    let many = |ranges: usize| [1, 1].repeat(ranges);
    for good in [&[0, 1][..], &[5, 2, 1, 1], &[u64::MAX - 1, 1], &many(MAX_RANGES)] {
        let read = proto::CoordinatorMessage::from(requested(request(good)).unwrap());
        let Some(To::Collect(proto::Collect { requests, .. })) = read.kind else { panic!("{read:?}") };
        assert_eq!(requests, [request(good)]);
    }
    for bad in [&[0, 0][..], &[5, 2, 0, 1], &[u64::MAX, 1], &[1, u64::MAX], &[0, 1, u64::MAX, 1], &[0, 1, 5]] {
        check_refusal(requested(request(bad)), "tasks is ");
    }
    for bad in [&[][..], &many(MAX_RANGES + 1)] {
        check_refusal(requested(request(bad)), "number of ranges is ");
    }
    check_refusal(requested(proto::VectorRequest { id: 0, ..request(&[0, 1]) }), "id is 0");
    check_refusal(requested(proto::VectorRequest { iteration: 0, ..request(&[0, 1]) }), "iteration is 0");
    check_refusal(requested(proto::VectorRequest { first_chunk: MAX_CHUNKS, ..request(&[0, 1]) }), "first_chunk is ");
    let shards = |place, members: usize, keys: usize, chunk_timeout_ms| {
        let (members, keys) = (vec!["http://rig:7".to_owned(); members], vec![vec![1; 16].into(); keys]);
        let shards = Some(proto::Shards { keys, place, members, chunk_timeout_ms });
        requested(proto::VectorRequest { shards, ..request(&[0, 1]) })
    };
    for (place, members, said) in [
        (0, 0, "number of members is 0"),
        (0, 1, "place is 0 of 1"),
        (2, 2, "place is 2 of 2"),
        (0, MAX_SHARDS + 1, "number of members is "),
    ] {
        check_refusal(shards(place, members, members, 1000), said);
    }
    check_refusal(shards(0, 2, 3, 1000), "number of keys is 3");
    for timeout_ms in [0, MAX_CHUNK_TIMEOUT_MS + 1] {
        check_refusal(shards(0, 2, 2, timeout_ms), "chunk_timeout_ms is ");
    }
}

/// Both limits hold: that on the items, and that on their entries.
#[test]
fn lists_are_split_into_as_few_messages_as_hold_them() {
    let request = |ranges: usize| VectorRequest {
        id: VectorId(1),
        iteration: Iteration(1),
        tasks: (0..ranges as u64).map(|at| TaskRange::single(2 * at)).collect(),
        ..VectorRequest::default()
    };
    for (items, entries, messages) in [
        (MAX_BATCH + 1, 1, 2),
        (5, MAX_BATCH_ENTRIES / 2, 3),
        (5, MAX_BATCH_ENTRIES / 2 + 1, 5),
        (2, MAX_BATCH_ENTRIES, 2),
        (2, 1, 1),
    ] {
        let losses = vec![0.1; entries];
        let times = LeaseTimes { busy_s: losses.clone(), ..LeaseTimes::default() };
        let mut left = vec![ComputedLease { times, losses, ..ComputedLease::default() }; items];
        let mut sent = 0;
        while !left.is_empty() {
            FromWorker::try_from(proto::WorkerMessage::from(FromWorker::progress(&mut left))).unwrap();
            sent += 1;
        }
        assert_eq!(sent, messages, "{items} of {entries}");
        let withdrawn = vec![VectorId(1); MAX_BATCH + 1];
        let asked: Vec<ToWorker> = ToWorker::collect(&withdrawn, vec![request(entries); items]).collect();
        assert_eq!(asked.len(), 2 + messages, "{items} of {entries}");
        for message in asked {
            ToWorker::try_from(proto::CoordinatorMessage::from(message)).unwrap();
        }
    }
}
