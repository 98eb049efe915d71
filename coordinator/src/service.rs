//! The gRPC service: checks requests, and passes them to the owner.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use ata_record::RefusalKind;
use ata_wire::limits::CHUNK_BYTES;
use ata_wire::proto::{
    CoordinatorMessage, DataRequest, GradientPart, GradientReceipt, ParametersRequest, TransferPart, WorkerMessage,
    coordinator_server::Coordinator, transfer_part,
};
use ata_wire::{
    FromWorker, GradientHeader, Receipt, ReceiveError, SessionToken, TransferError, receive_gradient,
    receive_gradient_header, transfer_parts,
};
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use crate::owner::{Command, Gradient, NotAnnounced};
use crate::sessions::SessionHandle;

/// Time within which the first message of a new control stream must arrive.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Service {
    owner: mpsc::Sender<Command>,
    /// Length of every gradient.
    parameters: u64,
}

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    pub(crate) fn new(owner: mpsc::Sender<Command>, parameters: u64) -> Self {
        Self { owner, parameters }
    }

    /// Sends the owner a command and waits for its answer.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Status> {
        let over = || Status::unavailable("the run is over");
        let (reply, answer) = oneshot::channel();
        self.owner.send(command(reply)).await.map_err(|_| over())?;
        answer.await.map_err(|_| over())
    }

    /// Receives a gradient that was announced.
    async fn receive(self, mut parts: Streaming<GradientPart>, header: GradientHeader) -> Result<Receipt, Status> {
        let (session, lease) = (header.session, header.lease);
        // Each chunk is a sign of life; if the queue is full, one may be dropped.
        let heard = || self.owner.try_send(Command::Heartbeat { session }).unwrap_or(());
        let checked = match receive_gradient(&mut parts, self.parameters, heard).await {
            Ok(_) if !header.loss_sum.is_finite() => {
                Err((RefusalKind::NotFinite, format!("the loss is {}: expected a finite number", header.loss_sum)))
            }
            Ok(values) => Ok(values),
            Err(ReceiveError::Content(error)) => Err((refusal_kind(&error), error.to_string())),
            Err(error) => {
                // Other workers can compute the lease right away.
                self.lease_failed(session, lease, RefusalKind::NotReceived, error.to_string()).await?;
                return Err(not_received(&error));
            }
        };
        match checked {
            Ok(values) => self.ask(|reply| Command::Gradient(Gradient { header, values, reply })).await,
            Err((kind, reason)) => {
                self.lease_failed(session, lease, kind, reason.clone()).await?;
                Ok(Receipt::Refused { reason })
            }
        }
    }

    async fn lease_failed(
        &self,
        session: SessionToken,
        lease: u64,
        kind: RefusalKind,
        reason: String,
    ) -> Result<(), Status> {
        let failed = Command::LeaseFailed { session, lease, kind, reason };
        self.owner.send(failed).await.map_err(|_| Status::unavailable("the run is over"))
    }
}

#[tonic::async_trait]
impl Coordinator for Service {
    type SessionStream = ResponseStream<CoordinatorMessage>;
    type ParametersStream = ResponseStream<TransferPart>;
    type DataStream = ResponseStream<TransferPart>;

    async fn session(
        &self,
        request: Request<Streaming<WorkerMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let mut incoming = request.into_inner();
        let first = tokio::time::timeout(HELLO_TIMEOUT, incoming.message())
            .await
            .map_err(|_| Status::deadline_exceeded("no Hello arrived"))??
            .ok_or_else(|| Status::invalid_argument("the stream ended before Hello"))?;
        let FromWorker::Hello(hello) = FromWorker::try_from(first)? else {
            return Err(Status::invalid_argument("the first message must be Hello"));
        };
        let handle = self.ask(|reply| Command::Hello { hello, reply }).await??;
        let SessionHandle { token, messages, ended } = handle;
        tokio::spawn(read_control(self.owner.clone(), token, incoming, ended));
        let outgoing = ReceiverStream::new(messages).map(|message| Ok(message.into()));
        Ok(Response::new(Box::pin(outgoing)))
    }

    async fn parameters(
        &self,
        request: Request<ParametersRequest>,
    ) -> Result<Response<Self::ParametersStream>, Status> {
        let request = request.into_inner();
        let session = SessionToken::from_wire(&request.session)?;
        let set = self.ask(|reply| Command::Parameters { session, iteration: request.iteration, reply }).await??;
        let parts = transfer_parts(4 * set.values.len() as u64, set.chunks);
        Ok(Response::new(Box::pin(tokio_stream::iter(parts.map(Ok)))))
    }

    async fn submit_gradient(
        &self,
        request: Request<Streaming<GradientPart>>,
    ) -> Result<Response<GradientReceipt>, Status> {
        let mut parts = request.into_inner();
        let header = receive_gradient_header(&mut parts).await.map_err(|error| not_received(&error))?;
        let header = GradientHeader::try_from(header)?;
        // Only the holder of the lease may make us receive a gradient.
        let (session, lease, iteration) = (header.session, header.lease, header.iteration);
        match self.ask(|reply| Command::Announce { session, lease, iteration, reply }).await? {
            Ok(()) => {}
            Err(NotAnnounced::NoSession(status)) => return Err(status),
            Err(NotAnnounced::NotHeld { reason }) => return Ok(Response::new(Receipt::NotHeld { reason }.into())),
        }
        // In a separate task: this one is dropped if the sender gives up, and the owner must learn about that.
        let received = tokio::spawn(self.clone().receive(parts, header)).await;
        let receipt = received.map_err(|error| Status::internal(error.to_string()))??;
        Ok(Response::new(receipt.into()))
    }

    async fn data(&self, request: Request<DataRequest>) -> Result<Response<Self::DataStream>, Status> {
        let request = request.into_inner();
        let session = SessionToken::from_wire(&request.session)?;
        let path = self.ask(|reply| Command::Data { session, sha256: request.sha256, reply }).await??;
        let (sender, receiver) = mpsc::channel(2);
        tokio::spawn(send_file(path, sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// Passes on a worker's messages until its stream or its session ends.
async fn read_control(
    owner: mpsc::Sender<Command>,
    session: SessionToken,
    mut incoming: Streaming<WorkerMessage>,
    mut ended: oneshot::Receiver<()>,
) {
    let why = loop {
        let message = tokio::select! {
            message = incoming.message() => message,
            _ = &mut ended => return,
        };
        let command = match message {
            Ok(Some(message)) => match FromWorker::try_from(message) {
                Ok(FromWorker::Ready { fuses }) => Command::Ready { session, fuses },
                Ok(FromWorker::Heartbeat) => Command::Heartbeat { session },
                Ok(FromWorker::LeaseFailed { lease, reason }) => {
                    Command::LeaseFailed { session, lease, kind: RefusalKind::NotComputed, reason }
                }
                Ok(FromWorker::Hello(_)) => break "it sent Hello twice".into(),
                Err(error) => break error.to_string(),
            },
            Ok(None) => break "it left".into(),
            Err(status) => break format!("its connection broke: {}", status.message()),
        };
        if owner.send(command).await.is_err() {
            return;
        }
    };
    // The owner may be gone, which ends all sessions.
    owner.send(Command::Left { session, why }).await.unwrap_or(());
}

/// The status that answers a transfer that was not received.
fn not_received(error: &ReceiveError) -> Status {
    match error {
        ReceiveError::Call(status) => status.clone(),
        ReceiveError::Stalled => Status::deadline_exceeded(error.to_string()),
        ReceiveError::Order(_) | ReceiveError::Content(_) => Status::invalid_argument(error.to_string()),
    }
}

fn refusal_kind(error: &TransferError) -> RefusalKind {
    match error {
        TransferError::Size { .. } | TransferError::Chunk(_) => RefusalKind::WrongSize,
        TransferError::Checksum(_) => RefusalKind::WrongChecksum,
        TransferError::NotFinite { .. } => RefusalKind::NotFinite,
    }
}

/// Sends a file as a transfer.
async fn send_file(path: PathBuf, sender: mpsc::Sender<Result<TransferPart, Status>>) {
    if let Err(error) = try_send_file(&path, &sender).await {
        tracing::warn!(path = %path.display(), %error, "cannot send the training data");
        let status = Status::internal(format!("the coordinator cannot read its training data: {error}"));
        // The worker may have given up.
        sender.send(Err(status)).await.unwrap_or(());
    }
}

async fn try_send_file(path: &PathBuf, sender: &mpsc::Sender<Result<TransferPart, Status>>) -> io::Result<()> {
    let mut file = tokio::fs::File::open(path).await?;
    let bytes = file.metadata().await?.len();
    for header in transfer_parts(bytes, []) {
        drop(sender.send(Ok(header)).await);
    }
    let mut left = bytes;
    while left > 0 {
        let mut data = vec![0; left.min(CHUNK_BYTES as u64) as usize];
        file.read_exact(&mut data).await?;
        left -= data.len() as u64;
        let part = TransferPart { kind: Some(transfer_part::Kind::Chunk(ata_wire::chunk(data.into()))) };
        if sender.send(Ok(part)).await.is_err() {
            break;
        }
    }
    Ok(())
}
