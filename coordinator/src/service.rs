//! The gRPC service: checks requests, and passes them to the owner.

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
use crate::owner::{Command, Gradient, NotAnnounced};
use crate::probe::{Answer, Probes};
use crate::send_file::DataTransfer;
use crate::session::Presence;
use crate::sessions::SessionHandle;
use crate::uploads::{GAVE_UP, GAVE_WAY, Room};

/// Time within which the first message of a new control stream must arrive.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// A gradient that waits or arrives, until the owner is told what came of it. A call is dropped if its sender gives up.
struct Untold {
    owner: mpsc::Sender<Command>,
    lease: Option<(SessionToken, LeaseId)>,
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
            let (owner, reason) = (self.owner.clone(), GAVE_UP.to_owned());
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
    /// How many data files may be sent at the same time.
    data_transfers: Arc<Semaphore>,
    probes: Arc<Probes>,
    /// Time in which a worker must take some of what it is sent.
    timeout: Duration,
}

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    pub(crate) fn new(owner: mpsc::Sender<Command>, pool: Pool, config: &CoordinatorConfig) -> Self {
        let run = config.run_spec();
        let (parameters, limits) = (run.parameters, &config.transfers);
        Self {
            owner,
            parameters,
            pool,
            data_transfers: Arc::new(Semaphore::new(MAX_DATA_TRANSFERS)),
            probes: Arc::new(Probes::new(config.run_id.clone(), run)),
            timeout: limits.timeout,
        }
    }

    /// Sends the owner a command and waits for its answer.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Status> {
        let (reply, answer) = oneshot::channel();
        self.owner.send(command(reply)).await.map_err(|_| over())?;
        answer.await.map_err(|_| over())
    }

    /// Waits for room for a gradient. Whenever the call is dropped from now on, the owner hears that the lease failed.
    async fn announce(&self, header: &GradientHeader, peer: Peer) -> Result<(Room, Untold), NotAnnounced> {
        let (session, lease, iteration) = (header.session, header.lease, header.iteration);
        let mut untold = Untold { owner: self.owner.clone(), lease: Some((session, lease)) };
        let answer = self.ask(|reply| Command::Announce { session, lease, iteration, peer, reply }).await;
        match answer.map_err(NotAnnounced::NoSession).flatten() {
            Ok(room) => Ok((room, untold)),
            Err(refused) => {
                // The owner knows.
                untold.lease = None;
                Err(refused)
            }
        }
    }

    /// Receives a gradient that there is room for, and tells the owner what came of it, even if this is dropped.
    async fn receive(
        &self,
        upload: GradientUpload,
        header: GradientHeader,
        room: Room,
        mut untold: Untold,
    ) -> Result<Receipt, Status> {
        let (session, lease, presence) = (header.session, header.lease, &room.presence);
        let received = tokio::select! {
            received = upload.values(self.parameters, &self.pool, |bytes| room.receive(bytes)) => received,
            () = presence.ended.cancelled() => Err(Status::unauthenticated("the session is over").into()),
            () = room.gives_way.cancelled() => Err(Status::deadline_exceeded(GAVE_WAY).into()),
        };
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
        let receipt = receipt.await;
        // By now the gradient is the owner's.
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
        // Only the holder of the lease may make us receive a gradient.
        let peer = upload.peer().clone();
        // Until there is room, its sender waits for HTTP/2 to let it send.
        match self.announce(&header, peer).await {
            Ok((room, untold)) => self.receive(upload, header, room, untold).await,
            Err(NotAnnounced::NoSession(status)) => Err(status),
            Err(NotAnnounced::NotHeld { reason }) => Ok(Receipt::NotHeld { reason }),
        }
    }
}

#[tonic::async_trait]
impl Coordinator for Service {
    type SessionStream = ResponseStream<CoordinatorMessage>;
    type DataStream = ResponseStream<TransferPart>;
    type ProbeStream = Answer;

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
        tokio::spawn(read_control(self.owner.clone(), token, incoming, presence));
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
        tokio::spawn(transfer.run(self.owner.clone(), session));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn probe(&self, request: Request<Streaming<ProbeRequest>>) -> Result<Response<Answer>, Status> {
        let peer = Peer::of(request.extensions());
        Ok(Response::new(self.probes.answer(request.into_inner(), peer).await?))
    }
}

/// Passes on a worker's messages until its stream or its session ends.
async fn read_control(
    owner: mpsc::Sender<Command>,
    session: SessionToken,
    mut incoming: Streaming<WorkerMessage>,
    presence: Presence,
) {
    let why = loop {
        let message = tokio::select! {
            message = incoming.message() => message,
            () = presence.ended.cancelled() => return,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uploads::{Reply, Sending, Uploads};
    use ata_types::{Iteration, LeaseId, WorkerId};
    use ata_wire::{DataSpec, LeaseTimes, RunSpec};
    use std::task::{Context, Waker};

    const SESSION: SessionToken = SessionToken([1; 16]);

    fn service() -> (Service, mpsc::Receiver<Command>) {
        let (owner, commands) = mpsc::channel(8);
        let data = DataSpec::Generated { seed: 1 };
        let run = RunSpec { model: String::new(), parameters: 1, seed: 1, budget: 1, task_batch: 1, data };
        let service = Service {
            owner,
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
        assert!(reply.send(Err(NotAnnounced::NotHeld { reason: "it ended".into() })).is_ok());
        assert!(call.await.is_err());
        tokio::task::yield_now().await;
        assert!(commands.try_recv().is_err());
    }
}
