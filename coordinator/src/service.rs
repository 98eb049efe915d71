//! The gRPC service: checks requests, and passes them to the owner.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::{Duration, Instant};

use ata_record::RefusalKind;
use ata_wire::limits::CHUNK_BYTES;
use ata_wire::proto::{
    CoordinatorMessage, DataRequest, TransferPart, WorkerMessage, coordinator_server::Coordinator, transfer_part,
};
use ata_wire::{
    FramedTensor, FromWorker, GradientHeader, GradientUpload, Peer, Pool, Receipt, ReceiveError, SessionToken,
    TransferError, Transfers, file_parts,
};
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::{ReceiverStream, WatchStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use crate::owner::{Command, Gradient, NotAnnounced};
use crate::sessions::SessionHandle;

/// Time within which the first message of a new control stream must arrive.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// While a gradient arrives, its worker counts as heard from this often: a few times per heartbeat timeout, and not at all
/// for one that takes milliseconds.
const SIGN_OF_LIFE: Duration = Duration::from_millis(100);

/// A gradient that is being received, until the owner is told what came of it. A call is dropped if its sender gives up.
struct Untold {
    owner: mpsc::Sender<Command>,
    lease: Option<(SessionToken, u64)>,
}

impl Untold {
    async fn tell(&mut self, what: Command) -> Result<(), Status> {
        self.owner.send(what).await.map_err(|_| over())?;
        self.lease = None;
        Ok(())
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        if let Some((session, lease)) = self.lease.take() {
            let (owner, reason) = (self.owner.clone(), "the worker gave up sending its gradient".to_owned());
            let failed = Command::LeaseFailed { session, lease, kind: RefusalKind::NotReceived, reason };
            // If the owner is gone, the run is over.
            tokio::spawn(async move { owner.send(failed).await.unwrap_or(()) });
        }
    }
}

#[derive(Clone)]
pub(crate) struct Service {
    owner: mpsc::Sender<Command>,
    /// Length of every gradient.
    parameters: u64,
    /// Buffers for them.
    pool: Pool,
}

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    pub(crate) fn new(owner: mpsc::Sender<Command>, parameters: u64, pool: Pool) -> Self {
        Self { owner, parameters, pool }
    }

    /// Sends the owner a command and waits for its answer.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Status> {
        let (reply, answer) = oneshot::channel();
        self.owner.send(command(reply)).await.map_err(|_| over())?;
        answer.await.map_err(|_| over())
    }

    /// Receives a gradient that was announced, and tells the owner what came of it, even if this is dropped.
    async fn receive(&self, upload: GradientUpload, header: GradientHeader) -> Result<Receipt, Status> {
        let (session, lease) = (header.session, header.lease);
        let mut untold = Untold { owner: self.owner.clone(), lease: Some((session, lease)) };
        // What arrives is a sign of life; if the queue is full, one may be dropped.
        let mut heard = Instant::now();
        let hear = || {
            if heard.elapsed() > SIGN_OF_LIFE {
                heard = Instant::now();
                self.owner.try_send(Command::Heartbeat { session }).unwrap_or(());
            }
        };
        let received = upload.values(self.parameters, &self.pool, hear).await;
        let values = match received {
            Ok(values) if header.loss_sum.is_finite() => values,
            refused => {
                let (kind, reason, answer) = refusal(refused, header.loss_sum);
                // Other workers can compute the lease right away.
                untold.tell(Command::LeaseFailed { session, lease, kind, reason }).await?;
                return answer;
            }
        };
        let (reply, receipt) = oneshot::channel();
        untold.tell(Command::Gradient(Gradient { header, values, reply })).await?;
        receipt.await.map_err(|_| over())
    }
}

fn over() -> Status {
    Status::unavailable("the run is over")
}

impl Transfers for Service {
    async fn parameters(
        &self,
        session: SessionToken,
    ) -> Result<impl Stream<Item = FramedTensor> + Send + 'static, Status> {
        let sets = self.ask(|reply| Command::Parameters { session, reply }).await??;
        Ok(WatchStream::from_changes(sets).filter_map(|set| set.map(|set| set.framed)))
    }

    async fn submit_gradient(&self, mut upload: GradientUpload) -> Result<Receipt, Status> {
        let header = GradientHeader::try_from(upload.header().await?)?;
        // Only the holder of the lease may make us receive a gradient.
        let (session, lease, iteration) = (header.session, header.lease, header.iteration);
        match self.ask(|reply| Command::Announce { session, lease, iteration, reply }).await? {
            Ok(()) => {}
            Err(NotAnnounced::NoSession(status)) => return Err(status),
            Err(NotAnnounced::NotHeld { reason }) => return Ok(Receipt::NotHeld { reason }),
        }
        self.receive(upload, header).await
    }
}

#[tonic::async_trait]
impl Coordinator for Service {
    type SessionStream = ResponseStream<CoordinatorMessage>;
    type DataStream = ResponseStream<TransferPart>;

    async fn session(
        &self,
        request: Request<Streaming<WorkerMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let mut incoming = request.into_inner();
        let first = tokio::time::timeout(HELLO_TIMEOUT, incoming.message())
            .await
            .map_err(|_| Status::deadline_exceeded("no Hello arrived"))??
            .ok_or_else(|| Status::invalid_argument("the stream ended before Hello"))?;
        let FromWorker::Hello(hello) = FromWorker::try_from(first)? else {
            return Err(Status::invalid_argument("the first message must be Hello"));
        };
        if let Some(peer) = &peer {
            peer.may_be_called(&hello.name).map_err(Status::permission_denied)?;
        }
        let handle = self.ask(|reply| Command::Hello { hello, reply }).await??;
        if let Some(peer) = peer {
            peer.mark_known();
        }
        let SessionHandle { token, messages, ended } = handle;
        tokio::spawn(read_control(self.owner.clone(), token, incoming, ended));
        let outgoing = ReceiverStream::new(messages).map(|message| Ok(message.into()));
        Ok(Response::new(Box::pin(outgoing)))
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

/// Why a gradient is not taken, by kind and in words, and the answer to its call.
fn refusal(received: Result<Vec<f32>, ReceiveError>, loss: f64) -> (RefusalKind, String, Result<Receipt, Status>) {
    let refused = |kind, reason: String| (kind, reason.clone(), Ok(Receipt::Refused { reason }));
    match received {
        Ok(_) => refused(RefusalKind::NotFinite, format!("the loss is {loss}: expected a finite number")),
        Err(ReceiveError::Content(error)) => {
            let kind = match error {
                TransferError::Size { .. } | TransferError::Chunk(_) => RefusalKind::WrongSize,
                TransferError::Checksum(_) => RefusalKind::WrongChecksum,
                TransferError::NotFinite { .. } => RefusalKind::NotFinite,
            };
            refused(kind, error.to_string())
        }
        Err(error) => (RefusalKind::NotReceived, error.to_string(), Err(error.into())),
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
    for header in file_parts(bytes, []) {
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
