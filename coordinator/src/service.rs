//! The gRPC service, which checks requests and passes them to the driver.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ata_record::RefusalKind;
use ata_types::LeaseId;
use ata_wire::limits::MAX_DATA_TRANSFERS;
use ata_wire::proto::{
    CoordinatorMessage, DataRequest, ProbeRequest, TransferPart, WorkerMessage, coordinator_server::Coordinator,
};
use ata_wire::{
    FramedTensor, FromWorker, GradientHeader, GradientUpload, Peer, Pool, Reader, Receipt, ReceiveError, SessionToken,
    TransferError, Transfers,
};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use crate::config::CoordinatorConfig;
use crate::driver::{Command, GAVE_UP, GAVE_WAY, Gradient, Presence, Room, SessionHandle, UploadRefusal};
use crate::probe::{ProbeAnswers, Probes};
use crate::send_file::DataTransfer;

/// Time within which the first message of a new control stream must arrive.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Fails a lease if the call that sends its gradient is dropped before the driver knows the result.
struct UploadGuard {
    driver: mpsc::Sender<Command>,
    lease: Option<(SessionToken, LeaseId)>,
}

impl UploadGuard {
    /// Sends the result to the driver.
    async fn settle(&mut self, result: Command) -> Result<(), Status> {
        self.driver.send(result).await.map_err(|_| over())?;
        self.disarm();
        Ok(())
    }

    /// Does nothing on drop, since the driver knows the result.
    fn disarm(&mut self) {
        self.lease = None;
    }
}

impl Drop for UploadGuard {
    fn drop(&mut self) {
        if let Some((session, lease)) = self.lease.take() {
            let (driver, reason) = (self.driver.clone(), GAVE_UP.to_owned());
            let failed = Command::LeaseFailed { session, lease, kind: RefusalKind::NotReceived, reason };
            // If the driver is gone, the run is over.
            tokio::spawn(async move { driver.send(failed).await.unwrap_or(()) });
        }
    }
}

#[derive(Clone)]
pub(crate) struct Service {
    driver: mpsc::Sender<Command>,
    /// Length of every gradient.
    parameters: u64,
    /// Buffers for gradients.
    pool: Pool,
    /// How many data files may be sent at the same time.
    data_transfers: Arc<Semaphore>,
    probes: Arc<Probes>,
    /// Time in which a worker must take some of what it is sent.
    timeout: Duration,
}

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    pub(crate) fn new(driver: mpsc::Sender<Command>, pool: Pool, config: &CoordinatorConfig) -> Self {
        let run = config.run_spec();
        let (parameters, limits) = (run.parameters, &config.workers.transfers);
        Self {
            driver,
            parameters,
            pool,
            data_transfers: Arc::new(Semaphore::new(MAX_DATA_TRANSFERS)),
            probes: Arc::new(Probes::new(config.run.id.clone(), run)),
            timeout: limits.timeout,
        }
    }

    /// Sends the driver a command and waits for its answer.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Status> {
        let (reply, answer) = oneshot::channel();
        self.driver.send(command(reply)).await.map_err(|_| over())?;
        answer.await.map_err(|_| over())
    }

    /// Waits for room for a gradient. If the call is dropped from now on, the lease fails.
    async fn announce(&self, header: &GradientHeader, peer: Peer) -> Result<(Room, UploadGuard), UploadRefusal> {
        let (session, lease, iteration) = (header.session, header.lease, header.iteration);
        let mut guard = UploadGuard { driver: self.driver.clone(), lease: Some((session, lease)) };
        let answer = self.ask(|reply| Command::Announce { session, lease, iteration, peer, reply }).await;
        match answer.map_err(UploadRefusal::NoSession).flatten() {
            Ok(room) => Ok((room, guard)),
            Err(refusal) => {
                guard.disarm();
                Err(refusal)
            }
        }
    }

    /// Receives a gradient that has room, and sends the result to the driver, even if this is dropped.
    async fn receive(
        &self,
        upload: GradientUpload,
        header: GradientHeader,
        room: Room,
        mut guard: UploadGuard,
    ) -> Result<Receipt, Status> {
        let (session, lease) = (header.session, header.lease);
        let received = tokio::select! {
            received = upload.values(self.parameters, &self.pool, |bytes| room.receive(bytes)) => received,
            () = room.session_ended() => Err(Status::unauthenticated("the session is over").into()),
            () = room.gives_way() => Err(Status::deadline_exceeded(GAVE_WAY).into()),
        };
        let values = match received {
            Ok(values) if header.loss_sum.is_finite() => values,
            refused => {
                let (kind, reason, answer) = refusal(refused, header.loss_sum);
                // Other workers can compute the lease right away.
                guard.settle(Command::LeaseFailed { session, lease, kind, reason }).await?;
                return answer;
            }
        };
        let (reply, receipt) = oneshot::channel();
        guard.settle(Command::Gradient(Gradient { header, values, reply })).await?;
        let receipt = receipt.await;
        // The driver has the gradient now.
        drop(room);
        receipt.map_err(|_| over())
    }
}

fn over() -> Status {
    Status::unavailable("the run is over")
}

impl Transfers for Service {
    async fn parameters(
        &self,
        session: SessionToken,
        reader: Reader,
    ) -> Result<impl Stream<Item = FramedTensor> + Send + 'static, Status> {
        Ok(self.ask(|reply| Command::Parameters { session, reader, reply }).await??.into_stream())
    }

    async fn submit_gradient(&self, mut upload: GradientUpload) -> Result<Receipt, Status> {
        let header = GradientHeader::try_from(upload.header().await?)?;
        // Only the holder of a lease may send its gradient.
        let peer = upload.peer().clone();
        // Until there is room, HTTP/2 flow control makes the sender wait.
        match self.announce(&header, peer).await {
            Ok((room, guard)) => self.receive(upload, header, room, guard).await,
            Err(UploadRefusal::NoSession(status)) => Err(status),
            Err(UploadRefusal::NotHeld { reason }) => Ok(Receipt::NotHeld { reason }),
        }
    }
}

#[tonic::async_trait]
impl Coordinator for Service {
    type SessionStream = ResponseStream<CoordinatorMessage>;
    type DataStream = ResponseStream<TransferPart>;
    type ProbeStream = ProbeAnswers;

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
        peer.may_be_called(&hello.name).map_err(Status::permission_denied)?;
        let handle = self.ask(|reply| Command::Hello { hello, peer, reply }).await??;
        let SessionHandle { token, messages, presence } = handle;
        tokio::spawn(read_control(self.driver.clone(), token, incoming, presence));
        let outgoing = ReceiverStream::new(messages).map(|message| Ok(message.into()));
        Ok(Response::new(Box::pin(outgoing)))
    }

    async fn data(&self, request: Request<DataRequest>) -> Result<Response<Self::DataStream>, Status> {
        let peer = Peer::of(request.extensions());
        let request = request.into_inner();
        let session = SessionToken::from_wire(&request.session)?;
        let (sha256, caller) = (request.sha256, peer.clone());
        let file = self.ask(|reply| Command::Data { session, sha256, peer: caller, reply }).await??;
        let (sender, receiver) = mpsc::channel(2);
        let (permits, timeout) = (Arc::clone(&self.data_transfers), self.timeout);
        let transfer = DataTransfer { file, sender, peer, permits, timeout };
        tokio::spawn(transfer.run(self.driver.clone(), session));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn probe(&self, request: Request<Streaming<ProbeRequest>>) -> Result<Response<ProbeAnswers>, Status> {
        let peer = Peer::of(request.extensions());
        Ok(Response::new(self.probes.answer(request.into_inner(), peer).await?))
    }
}

/// Passes on a worker's messages until its stream or its session ends.
async fn read_control(
    driver: mpsc::Sender<Command>,
    session: SessionToken,
    mut incoming: Streaming<WorkerMessage>,
    presence: Presence,
) {
    let why = loop {
        let message = tokio::select! {
            message = incoming.message() => message,
            () = presence.ended() => return,
        };
        let command = match message {
            Ok(Some(message)) => match FromWorker::try_from(message) {
                Ok(FromWorker::Ready { fuses }) => Command::Ready { session, fuses },
                Ok(FromWorker::Heartbeat { idle }) => {
                    presence.hear_heartbeat(idle);
                    continue;
                }
                Ok(FromWorker::LeaseFailed { lease, reason }) => {
                    Command::LeaseFailed { session, lease, kind: RefusalKind::NotComputed, reason }
                }
                Ok(FromWorker::Hello(_)) => break "it sent Hello twice".into(),
                Err(error) => break error.to_string(),
            },
            Ok(None) => break "it left".into(),
            Err(status) => break format!("its connection broke: {}", status.message()),
        };
        if driver.send(command).await.is_err() {
            return;
        }
    };
    // The driver may be gone, which ends all sessions.
    driver.send(Command::Left { session, why }).await.unwrap_or(());
}

/// Why a gradient is refused, as kind and text, and the answer to its call.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Reply, Sending, Uploads};
    use ata_types::{Iteration, WorkerId};
    use ata_wire::{DataSpec, LeaseTimes, RunSpec};
    use std::task::{Context, Waker};

    const SESSION: SessionToken = SessionToken([1; 16]);

    fn service() -> (Service, mpsc::Receiver<Command>) {
        let (driver, commands) = mpsc::channel(8);
        let data = DataSpec::Generated { seed: 1 };
        let run = RunSpec { model: String::new(), parameters: 1, seed: 1, budget: 1, task_batch: 1, data };
        let service = Service {
            driver,
            parameters: run.parameters,
            pool: Pool::default(),
            data_transfers: Arc::new(Semaphore::new(1)),
            probes: Arc::new(Probes::new(String::new(), run)),
            timeout: HELLO_TIMEOUT,
        };
        (service, commands)
    }

    fn room() -> Room {
        let (mut uploads, (reply, _)) = (Uploads::new(1), oneshot::channel());
        uploads.wait(SESSION, WorkerId::from_slot(0), LeaseId(7), reply);
        let (_, place) = uploads.next().expect("a place");
        Sending::default().room(Presence::new(), place)
    }

    fn header() -> GradientHeader {
        GradientHeader {
            session: SESSION,
            lease: LeaseId(7),
            iteration: Iteration::FIRST,
            times: LeaseTimes::default(),
            loss_sum: 0.0,
        }
    }

    /// Has a call wait for room; returns what it is answered with.
    fn announced(call: Pin<&mut impl Future>, commands: &mut mpsc::Receiver<Command>) -> Reply {
        assert!(call.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let Ok(Command::Announce { reply, .. }) = commands.try_recv() else { panic!("it was not announced") };
        reply
    }

    /// A call may be dropped at any moment, such as when it was just given room and does not know it yet.
    #[tokio::test]
    async fn a_call_that_is_dropped_fails_its_lease() {
        for is_answered in [true, false] {
            let ((service, mut commands), header) = (service(), header());
            let mut call = Box::pin(service.announce(&header, Peer::default()));
            let reply = announced(call.as_mut(), &mut commands);
            if is_answered {
                assert!(reply.send(Ok(room())).is_ok());
            }
            drop(call);
            tokio::task::yield_now().await;
            let told = commands.try_recv();
            assert!(matches!(told, Ok(Command::LeaseFailed { lease: LeaseId(7), .. })), "answered: {is_answered}");
        }
    }

    #[tokio::test]
    async fn a_gradient_that_is_refused_is_no_failure() {
        let ((service, mut commands), header) = (service(), header());
        let mut call = Box::pin(service.announce(&header, Peer::default()));
        let reply = announced(call.as_mut(), &mut commands);
        assert!(reply.send(Err(UploadRefusal::NotHeld { reason: "it ended".into() })).is_ok());
        assert!(call.await.is_err());
        tokio::task::yield_now().await;
        assert!(commands.try_recv().is_err());
    }
}
