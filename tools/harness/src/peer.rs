//! A scripted client, which may violate the contract.

use std::net::SocketAddr;

use ata_sums::{decode_parameters, encode_sums};
use ata_types::{CHUNK_VALUES, Iteration, Lease, VectorId, WireFormat};
use ata_wire::proto::{GradientPart, WorkerMessage};
use ata_wire::{
    Assignment, ComputedLease, Connection, FromWorker, GradientHeader, Hello, LeaseTimes, ParameterPart,
    ParameterStream, Receipt, SessionToken, ToWorker, VectorRequest, Welcome, connect, gradient_parts, units_crc32c,
};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Status, Streaming};

use crate::soon;

/// A connection to a coordinator.
#[derive(Clone)]
pub struct Peer {
    /// The connection, for any call.
    pub connection: Connection,
}

/// Returns a worker's first message.
/// Panics if the name is not one of a worker.
pub fn hello(name: &str, instance: u64) -> WorkerMessage {
    let hello = Hello {
        name: name.parse().expect("a name"),
        instance,
        number: None,
        device: "scripted".into(),
        version: String::new(),
    };
    FromWorker::Hello(hello).into()
}

/// Splits a sum of gradients into chunks.
pub fn chunks(sums: &[i32]) -> Vec<Bytes> {
    sums.chunks(CHUNK_VALUES).map(|sums| encode_sums(WireFormat::F32Exact, sums).into()).collect()
}

/// Receives the next set of whole parameters.
/// Panics if no set arrives.
pub async fn next_set(sets: &mut ParameterStream) -> (Iteration, Vec<f32>) {
    let mut part = async || soon("parameters", sets.next()).await.expect("parameters");
    let ParameterPart::Set(header) = part().await else { panic!("expected a header") };
    let mut all = Vec::new();
    for _ in 0..header.chunks {
        let ParameterPart::Chunk { data, .. } = part().await else { panic!("expected a chunk") };
        let from = all.len();
        all.resize(from + data.len() / 4, 0.0);
        decode_parameters(&data, &mut all[from..]).expect("whole values");
    }
    (header.iteration, all)
}

/// An open control stream.
pub struct Session {
    /// The coordinator's first message.
    pub welcome: Welcome,
    /// The coordinator's further messages.
    pub incoming: Streaming<ata_wire::proto::CoordinatorMessage>,
    outgoing: mpsc::Sender<WorkerMessage>,
}

impl Peer {
    /// Connects to a coordinator.
    pub async fn connect(address: SocketAddr) -> Self {
        let endpoint = format!("http://{address}").parse().expect("an address");
        Self { connection: connect(&endpoint).await.expect("a coordinator is there") }
    }

    /// Opens a control stream with a Hello.
    pub async fn hello(&self, name: &str, instance: u64) -> Result<Session, Status> {
        self.open(hello(name, instance)).await
    }

    /// Opens a control stream with any first message.
    pub async fn open(&self, first: WorkerMessage) -> Result<Session, Status> {
        let (outgoing, messages) = mpsc::channel(64);
        outgoing.send(first).await.expect("it is empty");
        let call = self.connection.coordinator().session(ReceiverStream::new(messages)).await;
        let mut incoming = call?.into_inner();
        match incoming.message().await?.map(ToWorker::try_from) {
            Some(Ok(ToWorker::Welcome(welcome))) => Ok(Session { welcome, incoming, outgoing }),
            other => panic!("expected Welcome, found {other:?}"),
        }
    }

    /// Opens a session and reports Ready.
    pub async fn join(&self, name: &str) -> Session {
        let session = self.hello(name, 1).await.expect("it is welcome");
        session.say(FromWorker::Ready { fuses: false, peer_address: None }).await;
        session
    }

    /// Opens the stream of a session's parameters.
    pub async fn parameters(&self, session: &Session) -> Result<ParameterStream, Status> {
        self.connection.parameters(session.token(), None).await
    }

    /// Sends a sum of gradients, through generated code.
    pub async fn submit(&self, header: GradientHeader, sums: &[i32]) -> Result<Receipt, Status> {
        self.submit_parts(gradient_parts(header.into(), chunks(sums).into_iter())).await
    }

    /// Sends any parts as a gradient.
    pub async fn submit_parts(
        &self,
        parts: impl Stream<Item = GradientPart> + Send + 'static,
    ) -> Result<Receipt, Status> {
        let answer = soon("an answer to a gradient", self.connection.transfers().submit_gradient(parts)).await?;
        Ok(answer.into_inner().into())
    }
}

impl Session {
    /// Sends a valid message.
    pub async fn say(&self, message: FromWorker) {
        self.say_raw(message.into()).await;
    }

    /// Sends any message.
    pub async fn say_raw(&self, message: WorkerMessage) {
        // The coordinator may have closed the session.
        drop(self.outgoing.send(message).await);
    }

    /// Waits for the next message. Returns `None` once the coordinator has closed the session.
    pub async fn next(&mut self) -> Option<ToWorker> {
        let message = soon("a message from the coordinator", self.incoming.next()).await?;
        message.ok().map(|message| message.try_into().expect("a coordinator keeps to the contract"))
    }

    /// Waits for the next leases.
    pub async fn assigned(&mut self) -> Vec<Assignment> {
        loop {
            match self.next().await {
                Some(ToWorker::Assign(leases)) => return leases,
                Some(ToWorker::Units { .. } | ToWorker::Collect { .. } | ToWorker::Cancel(_)) => {}
                other => panic!("expected leases, found {other:?}"),
            }
        }
    }

    /// Waits for the next requests for vectors.
    pub async fn asked(&mut self) -> Vec<VectorRequest> {
        loop {
            match self.next().await {
                Some(ToWorker::Collect { requests, .. }) if !requests.is_empty() => return requests,
                Some(ToWorker::Units { .. } | ToWorker::Collect { .. }) => {}
                other => panic!("expected a request for a vector, found {other:?}"),
            }
        }
    }

    /// Ends the stream, and waits until the coordinator has read all messages and closed the session.
    pub async fn leave(self) {
        let Self { mut incoming, outgoing, .. } = self;
        drop(outgoing);
        while soon("the end of the session", incoming.next()).await.is_some_and(|message| message.is_ok()) {}
    }

    /// The session's token.
    pub fn token(&self) -> SessionToken {
        self.welcome.session
    }

    /// Returns the header of a vector.
    pub fn header(&self, vector: VectorId) -> GradientHeader {
        GradientHeader {
            session: self.token(),
            vector,
            maxima: vec![1.0],
            units: vec![UNIT],
            units_crc32c: units_crc32c(&[UNIT], &[]),
            saturated: 0,
            vanished: 0,
        }
    }

    /// Reports that leases are computed, with times of zero.
    pub async fn report(&self, leases: &[Assignment]) {
        self.say(FromWorker::Progress(leases.iter().map(|Assignment { lease, .. }| computed(lease)).collect())).await;
    }
}

/// The exponent of the unit of a scripted gradient in the first iteration.
pub const UNIT: i16 = -20;

/// Returns the report of a lease with times of zero.
pub fn computed(lease: &Lease) -> ComputedLease {
    let tasks = lease.tasks.count as usize;
    let times = LeaseTimes { busy_s: vec![0.0; tasks], ..LeaseTimes::default() };
    ComputedLease { lease: lease.id, times, losses: vec![1.0; tasks] }
}
