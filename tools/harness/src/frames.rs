//! The frames of every RPC and direction: valid examples, and readers that must withstand any input.

use ata_net::Peer;
use ata_types::{Iteration, Lease, LeaseId, TaskRange, VectorId, WireFormat, WorkerId};
use ata_wire::proto::{
    self, GradientPart, ParameterPart, TransferPart, gradient_part, parameter_part, probe_answer, transfer_part,
};
use ata_wire::{
    Assignment, BatchFigures, ComputedLease, DataSpec, ExchangeReport, FarewellReason, FromWorker, GradientHeader,
    GradientUpload, Hello, LeaseTimes, MeasuredBatch, MemberReport, PairFault, ParameterStream, PeerAddress,
    ProbeIntake, ProbeSummary, ProcessUsage, Receipt, RunSpec, SessionToken, SetHeader, ToWorker, VectorRequest,
    Welcome, chunk,
};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::StreamBody;
use prost::Message;
use tokio::runtime::Runtime;
use tonic::Status;
use tonic::body::Body;

/// The number of values of each vector in the examples, which has two chunks.
const VALUES: u64 = 32;

/// The frames that are sent in one direction of an RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// The messages of `Session` to the coordinator.
    FromWorker,
    /// The messages of `Session` to a worker.
    ToWorker,
    /// The requests of `Data`.
    DataRequest,
    /// The requests of `Parameters`.
    ParametersRequest,
    /// The messages of `Data` to a worker.
    FilePart,
    /// The whole body of `SubmitGradient`.
    Gradient,
    /// The whole body of a response of `Parameters`.
    Parameters,
    /// The responses of `SubmitGradient`.
    Receipt,
    /// The requests of `Probe`.
    ProbeRequest,
    /// The messages of `Probe` to a client that measures its connection.
    ProbeAnswer,
}

impl Frames {
    /// All kinds of frames.
    pub const ALL: [Self; 10] = [
        Self::FromWorker,
        Self::ToWorker,
        Self::DataRequest,
        Self::ParametersRequest,
        Self::FilePart,
        Self::Gradient,
        Self::Parameters,
        Self::Receipt,
        Self::ProbeRequest,
        Self::ProbeAnswer,
    ];

    /// Returns valid examples, in the session of this token.
    pub fn examples(self, session: SessionToken) -> Vec<Vec<u8>> {
        let token = Bytes::copy_from_slice(&session.0);
        match self {
            Self::FromWorker => from_worker().map(|message| proto::WorkerMessage::from(message).encode_to_vec()).into(),
            Self::ToWorker => {
                to_worker(session).map(|message| proto::CoordinatorMessage::from(message).encode_to_vec()).into()
            }
            Self::DataRequest => {
                vec![proto::DataRequest { session: token, sha256: vec![7; 32].into() }.encode_to_vec()]
            }
            Self::ParametersRequest => [0, 9]
                .map(|evaluated_step| {
                    proto::ParametersRequest { session: token.clone(), evaluated_step }.encode_to_vec()
                })
                .into(),
            Self::FilePart => transfer_parts().map(|part| part.encode_to_vec()).into(),
            Self::Gradient => vec![body(&gradient_parts(session))],
            Self::Parameters => vec![body(&[set(None), set(Some(5))].concat())],
            Self::Receipt => [
                Receipt::Accepted,
                Receipt::NotHeld { reason: "too late".into() },
                Receipt::Refused { reason: "NaN".into() },
            ]
            .map(|receipt| proto::GradientReceipt::from(receipt).encode_to_vec())
            .into(),
            Self::ProbeRequest => {
                vec![proto::ProbeRequest { answer_bytes: 100_000, padding: vec![7; 40].into() }.encode_to_vec()]
            }
            Self::ProbeAnswer => {
                [probe_answer::Kind::Summary(summary().into()), probe_answer::Kind::Padding(vec![7; 40].into())]
                    .map(|kind| proto::ProbeAnswer { kind: Some(kind) }.encode_to_vec())
                    .into()
            }
        }
    }
}

/// Reads frames as the coordinator and the workers do.
#[derive(Debug)]
pub struct Reader {
    runtime: Runtime,
}

impl Default for Reader {
    fn default() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("threads are there");
        Self { runtime }
    }
}

impl Reader {
    /// Returns whether a frame is accepted.
    /// Panics if an accepted frame does not survive being sent again.
    pub fn accepts(&self, frames: Frames, frame: &[u8]) -> bool {
        match frames {
            Frames::FromWorker => arrives::<proto::WorkerMessage, FromWorker>(frame),
            Frames::ToWorker => arrives::<proto::CoordinatorMessage, ToWorker>(frame),
            Frames::Receipt => arrives::<proto::GradientReceipt, Receipt>(frame),
            Frames::DataRequest => {
                let request = proto::DataRequest::decode(frame);
                request.is_ok_and(|request| SessionToken::from_wire(&request.session).is_ok())
            }
            Frames::ParametersRequest => {
                let request = proto::ParametersRequest::decode(frame);
                request.is_ok_and(|request| SessionToken::from_wire(&request.session).is_ok())
            }
            Frames::ProbeRequest => {
                proto::ProbeRequest::decode(frame).is_ok_and(|request| ProbeIntake::default().take(&request).is_ok())
            }
            Frames::ProbeAnswer => match proto::ProbeAnswer::decode(frame).ok().and_then(|answer| answer.kind) {
                Some(probe_answer::Kind::Summary(summary)) => {
                    arrives::<proto::ProbeSummary, ProbeSummary>(&summary.encode_to_vec())
                }
                Some(probe_answer::Kind::Padding(_)) => true,
                None => false,
            },
            Frames::FilePart => TransferPart::decode(frame).is_ok_and(|part| part.kind.is_some()),
            Frames::Gradient => self.runtime.block_on(self.gradient(frame)),
            Frames::Parameters => self.runtime.block_on(self.parameters(frame)),
        }
    }

    async fn gradient(&self, frame: &[u8]) -> bool {
        let mut upload = GradientUpload::from_body(in_pieces(frame), Peer::default());
        let Ok(header) = upload.header().await else { return false };
        let Ok(header) = GradientHeader::try_from(header) else { return false };
        let again = proto::GradientHeader::from(header.clone());
        assert!(GradientHeader::try_from(again).is_ok(), "{header:?}");
        let mut chunks = 0;
        loop {
            match upload.chunk(|_| ()).await {
                Ok(Some(data)) => assert!(!data.is_empty()),
                Ok(None) => return chunks > 0,
                Err(_) => return false,
            }
            chunks += 1;
        }
    }

    /// Returns whether all sets of a body are whole.
    async fn parameters(&self, frame: &[u8]) -> bool {
        let mut sets = ParameterStream::from_body(in_pieces(frame));
        let (mut whole, mut missing) = (0, 0);
        while let Ok(part) = sets.next().await {
            match part {
                ata_wire::ParameterPart::Set(header) => missing = header.chunks,
                ata_wire::ParameterPart::Chunk { .. } => missing -= 1,
            }
            whole += u64::from(missing == 0);
        }
        whole > 0 && missing == 0
    }
}

/// Returns whether a message is valid. Panics if a valid message does not survive being sent again.
fn arrives<P, M>(frame: &[u8]) -> bool
where
    P: Message + Default + From<M>,
    M: TryFrom<P> + Clone + std::fmt::Debug,
{
    let read = |frame: &[u8]| P::decode(frame).ok().and_then(|message| M::try_from(message).ok());
    let Some(message) = read(frame) else { return false };
    let sent = P::from(message.clone()).encode_to_vec();
    let again = read(&sent).map(|message| P::from(message).encode_to_vec());
    assert_eq!(again, Some(sent), "{message:?}");
    true
}

fn in_pieces(bytes: &[u8]) -> Body {
    let piece = bytes.len() / 3 + 1;
    let pieces: Vec<_> =
        bytes.chunks(piece).map(|piece| Ok::<_, Status>(Frame::data(Bytes::copy_from_slice(piece)))).collect();
    Body::new(StreamBody::new(tokio_stream::iter(pieces)))
}

/// Encodes the messages of a call, each with its prefix.
fn body(messages: &[impl Message]) -> Vec<u8> {
    messages.iter().flat_map(|message| prefixed(&message.encode_to_vec())).collect()
}

pub(crate) fn prefixed(message: &[u8]) -> Vec<u8> {
    [&[0], &(message.len() as u32).to_be_bytes()[..], message].concat()
}

fn from_worker() -> [FromWorker; 12] {
    let hello = Hello {
        name: "gpu-7.example.org".parse().expect("a name"),
        instance: 0x0123_4567_89ab_cdef,
        number: WorkerId::new(3),
        device: "CPU, 8 cores".into(),
        version: "0.1.0".into(),
    };
    let classes = vec![(3, 1), (0, 0), (5, 5)];
    let metrics = [("top 5".to_owned(), 0.25)].into();
    let figures = BatchFigures { samples: 10_000, batch_samples: 250, loss: 4.6, classes, metrics };
    [
        FromWorker::Hello(hello),
        FromWorker::Ready { fuses: true, peer_address: None },
        FromWorker::Heartbeat { idle: true, usage: ProcessUsage::default() },
        FromWorker::ExchangeReport(exchange_report()),
        FromWorker::Reached { probe: 70_000, outcome: Err("refused".into()) },
        FromWorker::Leaving([1, 200, 70_000].map(LeaseId).into()),
        FromWorker::LeaseFailed { lease: LeaseId(300), reason: "no memory".into(), uncomputable: true },
        FromWorker::VectorFailed { vector: VectorId(300), reason: "no memory".into(), uncomputable: true },
        FromWorker::Progress(vec![computed(), computed()]),
        FromWorker::Measured(MeasuredBatch { step: Iteration(9), batch: 3, outcome: Ok(figures) }),
        FromWorker::Measured(MeasuredBatch { step: Iteration(9), batch: 4, outcome: Err("no test data".into()) }),
        FromWorker::LinkProbed { bytes: 262_144, seconds: 1.25 },
    ]
}

fn to_worker(session: SessionToken) -> [ToWorker; 9] {
    let lease = |id, first, count| {
        let tasks = TaskRange { first, count };
        let lease = Lease { id: LeaseId(id), iteration: Iteration(2), tasks, own: None };
        Assignment { lease, position: 23, vector: (id < 100).then_some(VectorId(id)) }
    };
    [
        ToWorker::Welcome(Welcome {
            session,
            worker: WorkerId::from_slot(2),
            run_id: "run".into(),
            heartbeat_interval_ms: 500,
            idle_heartbeat_interval_ms: 2500,
            run: run(),
        }),
        ToWorker::Assign(vec![lease(1, 0, 16), lease(200, 16, 4), lease(70_000, 20, 2)]),
        ToWorker::Units { iteration: Iteration(2), units: vec![-20, 3, -126], shifts: vec![0, 0x3a].into() },
        ToWorker::Collect { requests: vec![collection(3), collection(4)], withdrawn: vec![VectorId(2)] },
        ToWorker::Evaluate { step: Iteration(9), batches: vec![0, 1, 70_000] },
        ToWorker::Reach { probe: 300, address: PeerAddress::Open("10.0.0.9:7071".into()) },
        ToWorker::ProbeLink { bytes: 262_144 },
        ToWorker::Cancel([1, 200, 70_000].map(LeaseId).into()),
        ToWorker::Farewell { reason: FarewellReason::Evicted, detail: "no result".into() },
    ]
}

fn run() -> RunSpec {
    let data = DataSpec::File { sha256: [9; 32], bytes: 150_000, shards_url: None };
    RunSpec {
        model: "cnn".into(),
        parameters: VALUES,
        tensors: vec![VALUES - 1, 1],
        seed: 1,
        budget: 23,
        most_tasks: 23,
        task_batch: 16,
        skip_bad_samples: false,
        test_data: data.clone(),
        data,
        format: WireFormat::Compact,
        inner_steps: None,
    }
}

fn summary() -> ProbeSummary {
    ProbeSummary { version: "0.1.0".into(), run_id: "run".into(), run: run(), padding_bytes: 4000 }
}

fn computed() -> ComputedLease {
    let times = LeaseTimes { busy_s: vec![0.5, 0.25], outlasted: 1, waited_s: 0.125, ahead: true };
    ComputedLease { lease: LeaseId(300), times, losses: vec![2.0, 2.5] }
}

fn exchange_report() -> ExchangeReport {
    let fault = Some((PairFault::Late, "too slow".into()));
    let late = MemberReport { place: 2, bytes: 70_000, seconds: 0.5, waiting_s: 1.5, fault };
    ExchangeReport { vector: VectorId(300), has_failed: true, members: vec![late] }
}

fn collection(id: u64) -> VectorRequest {
    VectorRequest {
        id: VectorId(id),
        iteration: Iteration(2),
        tasks: [TaskRange { first: 3, count: 200 }, TaskRange::single(70_000)].into_iter().collect(),
        first_chunk: 7,
        shards: None,
    }
}

fn halves() -> [Bytes; 2] {
    let half = |first: u64| (first..first + VALUES / 2).flat_map(|value| (value as f32 - 7.5).to_le_bytes()).collect();
    [half(0), half(VALUES / 2)]
}

fn transfer_parts() -> [TransferPart; 2] {
    let [data, _] = halves();
    let header = proto::TransferHeader { bytes: data.len() as u64 };
    [transfer_part::Kind::Header(header), transfer_part::Kind::Chunk(chunk(data))]
        .map(|kind| TransferPart { kind: Some(kind) })
}

fn set(base: Option<u64>) -> Vec<ParameterPart> {
    let header = SetHeader { iteration: Iteration(6), base: base.map(Iteration), chunks: 2, stripe: None };
    let chunks = halves().map(|data| parameter_part::Kind::Chunk(chunk(data)));
    let parts = std::iter::once(parameter_part::Kind::Header(header.into())).chain(chunks);
    parts.map(|kind| ParameterPart { kind: Some(kind) }).collect()
}

fn gradient_parts(session: SessionToken) -> Vec<GradientPart> {
    let header = GradientHeader {
        session,
        vector: VectorId(3),
        maxima: vec![0.5, 3.0],
        units: vec![-20, -17],
        units_crc32c: 0x1234_5678,
        saturated: 1,
        vanished: 300,
    };
    let chunks = halves().map(|data| gradient_part::Kind::Chunk(chunk(data)));
    let parts = std::iter::once(gradient_part::Kind::Header(header.into())).chain(chunks);
    parts.map(|kind| GradientPart { kind: Some(kind) }).collect()
}
