//! The gRPC service, which checks requests and passes them to the driver.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ata_net::Peer;
use ata_record::RefusalKind;
use ata_sums::decode_sums;
use ata_types::{CHUNK_VALUES, Iteration, VectorId, WireFormat};
use ata_wire::limits::MAX_DATA_TRANSFERS;
use ata_wire::proto::{
    CoordinatorMessage, DataRequest, ProbeAnswer, ProbeRequest, TransferPart, WorkerMessage,
    coordinator_server::Coordinator,
};
use ata_wire::{
    FramedSet, FromWorker, GradientHeader, GradientUpload, Reader, Receipt, ReceiveError, SessionToken, Stripe,
    TransferError, Transfers,
};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use crate::config::CoordinatorConfig;
use crate::driver::{DriverCommand, GAVE_UP, Presence, SessionHandle, VectorUpload};
use crate::probe::Probes;
use crate::reduction::Sink;
use crate::send_file::DataTransfer;
use crate::training::Work;

/// The time within which the first message of a new control stream must arrive.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Service {
    driver: mpsc::Sender<DriverCommand>,
    parameters: u64,
    format: WireFormat,
    /// The permits that limit how many data files are sent at the same time.
    data_transfers: Arc<Semaphore>,
    probes: Arc<Probes>,
    /// The time within which a worker must read some of the data that it is sent.
    timeout: Duration,
}

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    pub(crate) fn new(driver: mpsc::Sender<DriverCommand>, config: &CoordinatorConfig) -> Self {
        let run = config.run_spec();
        let (parameters, limits) = (run.parameters, &config.workers.transfers);
        Self {
            driver,
            parameters,
            format: run.format,
            data_transfers: Arc::new(Semaphore::new(MAX_DATA_TRANSFERS)),
            probes: Arc::new(Probes::new(config.run.id.clone(), run)),
            timeout: limits.timeout,
        }
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> DriverCommand) -> Result<T, Status> {
        let (reply, answer) = oneshot::channel();
        self.driver.send(command(reply)).await.map_err(|_| over())?;
        answer.await.map_err(|_| over())
    }

    /// Receives a requested vector chunk by chunk, and sends the result to the driver, even if this future is dropped.
    async fn receive_vector(&self, upload: GradientUpload, header: GradientHeader) -> Result<Receipt, Status> {
        let (session, vector) = (header.session, header.vector);
        // The driver checks the peer: only the worker that was asked may send the vector.
        let peer = upload.peer().clone();
        let mut guard = UploadGuard::new(self.driver.clone(), session, vector);
        let answer = self.ask(|reply| DriverCommand::AnnounceVector { header, peer, reply }).await;
        let accepted = match answer.map_err(Err).flatten() {
            Ok(accepted) => accepted,
            Err(response) => {
                guard.disarm();
                return response;
            }
        };
        let presence = accepted.presence.clone();
        let received = tokio::select! {
            received = self.receive(upload, accepted) => received,
            () = presence.ended.cancelled() => Err(Status::unauthenticated("the session is over").into()),
        };
        let values = match received {
            Ok(values) => values,
            Err(UploadError::NotAsked) => {
                guard.disarm();
                return Ok(Receipt::NotHeld { reason: UploadError::NotAsked.to_string() });
            }
            Err(error) => return guard.fail(error).await,
        };
        let (reply, receipt) = oneshot::channel();
        guard.settle(DriverCommand::VectorArrived { session, vector, values, reply }).await?;
        receipt.await.map_err(|_| over())
    }

    /// Receives the chunks of an admitted vector. Returns the values, if the vector is assembled.
    async fn receive(&self, upload: GradientUpload, accepted: VectorUpload) -> Result<Option<Vec<i32>>, UploadError> {
        match &accepted.vector.sink {
            Sink::Gate(gate) => {
                let (gate, work) = (gate.clone(), accepted.work.clone());
                // If the training thread is gone, the run is over.
                let pass = |at, sums| gate.let_through(at, sums, |chunk| drop(work.send(Work::Chunk(chunk))));
                self.pass_chunks(upload, &accepted, |_| {}, pass).await.map(|()| None)
            }
            Sink::Whole(whole) => {
                let mut values = Vec::new();
                let append = |_, mut sums: Vec<i32>| {
                    values.append(&mut sums);
                    whole.receive_chunk();
                    true
                };
                tokio::select! {
                    passed = self.pass_chunks(upload, &accepted, |bytes| whole.receive(bytes), append) => passed?,
                    () = whole.ended.cancelled() => return Err(UploadError::NotAsked),
                }
                Ok(Some(values))
            }
        }
    }

    /// Passes on the chunks of a vector as they arrive, as long as `pass` accepts them.
    async fn pass_chunks(
        &self,
        mut upload: GradientUpload,
        accepted: &VectorUpload,
        received: impl Fn(usize),
        mut pass: impl FnMut(u64, Vec<i32>) -> bool,
    ) -> Result<(), UploadError> {
        let VectorUpload { vector, meter, presence, .. } = accepted;
        let (stripe, mut paced) = (vector.stripe, accepted.paced.clone());
        let mut transfer = meter.begin(vector.worker, stripe == Stripe::ALL);
        let mut due = stripe.chunks(vector.first_chunk, self.chunks()).peekable();
        while let Some(at) = due.next() {
            if !paced.may_pass(at, stripe) {
                transfer.wait(true);
                paced.until(at, stripe).await;
                transfer.wait(false);
            }
            let missing = || UploadError::Content(format!("it ended before chunk {at} of {}", self.chunks()));
            let heard = |bytes| {
                presence.hear();
                received(bytes);
                transfer.receive(bytes);
            };
            let chunk = upload.chunk(heard).await?.ok_or_else(missing)?;
            let sums = self.sums(&chunk, at)?;
            if due.peek().is_none() {
                // Passing the last chunk completes the vector, so the stream's end is checked first.
                if upload.chunk(|_| {}).await?.is_some() {
                    return Err(UploadError::Content(format!("it has more than {} chunks", self.chunks())));
                }
            }
            if !pass(at, sums) {
                return Err(UploadError::NotAsked);
            }
        }
        transfer.finish();
        Ok(())
    }

    fn chunks(&self) -> u64 {
        self.parameters.div_ceil(CHUNK_VALUES as u64)
    }

    fn sums(&self, chunk: &[u8], at: u64) -> Result<Vec<i32>, UploadError> {
        let values = (self.parameters - at * CHUNK_VALUES as u64).min(CHUNK_VALUES as u64) as usize;
        let mut sums = Vec::with_capacity(values);
        decode_sums(self.format, chunk, values, &mut sums)
            .map_err(|error| UploadError::Content(format!("chunk {at}: {error}")))?;
        Ok(sums)
    }
}

#[derive(Debug, thiserror::Error)]
enum UploadError {
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error("{0}")]
    Content(String),
    #[error("it is no longer asked for")]
    NotAsked,
}

impl From<Status> for UploadError {
    fn from(status: Status) -> Self {
        Self::Receive(status.into())
    }
}

impl UploadError {
    fn kind(&self) -> RefusalKind {
        match self {
            Self::Receive(ReceiveError::Content(TransferError::Checksum(_))) => RefusalKind::WrongChecksum,
            Self::Receive(ReceiveError::Content(_)) | Self::Content(_) => RefusalKind::WrongSize,
            Self::Receive(_) => RefusalKind::NotReceived,
            Self::NotAsked => RefusalKind::Stale,
        }
    }
}

/// Reports a failure if the call that sends a gradient is dropped before the driver knows the result.
struct UploadGuard {
    driver: mpsc::Sender<DriverCommand>,
    session: SessionToken,
    vector: VectorId,
    is_armed: bool,
}

impl UploadGuard {
    fn new(driver: mpsc::Sender<DriverCommand>, session: SessionToken, vector: VectorId) -> Self {
        Self { driver, session, vector, is_armed: true }
    }

    fn failed(&self, kind: RefusalKind, reason: String) -> DriverCommand {
        DriverCommand::VectorFailed { session: self.session, vector: self.vector, kind, reason }
    }

    async fn settle(&mut self, result: DriverCommand) -> Result<(), Status> {
        self.driver.send(result).await.map_err(|_| over())?;
        self.disarm();
        Ok(())
    }

    /// Reports a failure to the driver, so that other workers can compute the tasks right away. Returns the response of the call.
    async fn fail(&mut self, error: UploadError) -> Result<Receipt, Status> {
        let (kind, reason) = (error.kind(), error.to_string());
        self.settle(self.failed(kind, reason.clone())).await?;
        match error {
            UploadError::Receive(error) if kind == RefusalKind::NotReceived => Err(error.into()),
            _ => Ok(Receipt::Refused { reason }),
        }
    }

    fn disarm(&mut self) {
        self.is_armed = false;
    }
}

impl Drop for UploadGuard {
    fn drop(&mut self) {
        if self.is_armed {
            let (driver, failed) = (self.driver.clone(), self.failed(RefusalKind::NotReceived, GAVE_UP.to_owned()));
            // If the driver is gone, the run is over.
            tokio::spawn(async move { driver.send(failed).await.unwrap_or(()) });
        }
    }
}

fn over() -> Status {
    Status::unavailable("the run is over")
}

/// Passes a worker's messages to the driver until its stream or its session ends.
async fn read_messages(
    driver: mpsc::Sender<DriverCommand>,
    session: SessionToken,
    mut incoming: Streaming<WorkerMessage>,
    presence: Presence,
) {
    let why = loop {
        let message = tokio::select! {
            message = incoming.message() => message,
            () = presence.ended.cancelled() => return,
        };
        let message = match message {
            Ok(Some(message)) => FromWorker::try_from(message),
            Ok(None) => break "it left".into(),
            Err(status) => break format!("its connection broke: {}", status.message()),
        };
        match message {
            Ok(FromWorker::Hello(_)) => break "it sent Hello twice".into(),
            Ok(FromWorker::Heartbeat { idle, usage }) => presence.hear_heartbeat(idle, usage),
            Ok(message) => {
                if driver.send(DriverCommand::Said { session, message }).await.is_err() {
                    return;
                }
            }
            Err(error) => break error.to_string(),
        }
    };
    // If the driver is gone, all sessions have ended.
    driver.send(DriverCommand::Left { session, why }).await.unwrap_or(());
}

impl Transfers for Service {
    async fn parameters(
        &self,
        session: SessionToken,
        reader: Reader,
    ) -> Result<impl Stream<Item = FramedSet> + Send + 'static, Status> {
        Ok(self.ask(|reply| DriverCommand::Parameters { session, reader, reply }).await??.into_stream())
    }

    async fn evaluated_parameters(
        &self,
        session: SessionToken,
        step: Iteration,
        reader: Reader,
    ) -> Result<FramedSet, Status> {
        let ask = |reply| DriverCommand::EvaluatedParameters { session, step, reader, reply };
        let parameters = self.ask(ask).await??;
        // The training thread may be busy with a step.
        let framed = tokio::task::spawn_blocking(move || parameters.framed()).await;
        framed.map_err(|error| Status::internal(error.to_string()))
    }

    async fn submit_gradient(&self, mut upload: GradientUpload) -> Result<Receipt, Status> {
        let header = GradientHeader::try_from(upload.header().await?)?;
        self.receive_vector(upload, header).await
    }
}

#[tonic::async_trait]
impl Coordinator for Service {
    type SessionStream = ResponseStream<CoordinatorMessage>;
    type DataStream = ResponseStream<TransferPart>;
    type ProbeStream = ResponseStream<ProbeAnswer>;

    async fn session(
        &self,
        request: Request<Streaming<WorkerMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let peer = Peer::of(request.extensions());
        let mut incoming = request.into_inner();
        let first = tokio::time::timeout(HELLO_TIMEOUT, incoming.message())
            .await
            .map_err(|_| Status::deadline_exceeded("no Hello arrived"))??
            .ok_or_else(|| Status::invalid_argument("the stream ended before Hello"))?;
        let FromWorker::Hello(hello) = FromWorker::try_from(first)? else {
            return Err(Status::invalid_argument("the first message must be Hello"));
        };
        peer.may_be_called(&hello.name.to_string()).map_err(Status::permission_denied)?;
        let handle = self.ask(|reply| DriverCommand::Hello { hello, peer, reply }).await??;
        let SessionHandle { token, messages, presence } = handle;
        tokio::spawn(read_messages(self.driver.clone(), token, incoming, presence));
        let outgoing = ReceiverStream::new(messages).map(|message| Ok(message.into()));
        Ok(Response::new(Box::pin(outgoing)))
    }

    async fn data(&self, request: Request<DataRequest>) -> Result<Response<Self::DataStream>, Status> {
        let peer = Peer::of(request.extensions());
        let request = request.into_inner();
        let session = SessionToken::from_wire(&request.session)?;
        let (sha256, caller) = (request.sha256, peer.clone());
        let file = self.ask(|reply| DriverCommand::Data { session, sha256, peer: caller, reply }).await??;
        let (sender, receiver) = mpsc::channel(2);
        let (permits, timeout) = (Arc::clone(&self.data_transfers), self.timeout);
        let transfer = DataTransfer { file, sender, peer, permits, timeout };
        tokio::spawn(transfer.run(self.driver.clone(), session));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn probe(&self, request: Request<Streaming<ProbeRequest>>) -> Result<Response<Self::ProbeStream>, Status> {
        let peer = Peer::of(request.extensions());
        Ok(Response::new(Box::pin(self.probes.answer(request.into_inner(), peer).await?)))
    }
}

#[cfg(test)]
mod tests;
