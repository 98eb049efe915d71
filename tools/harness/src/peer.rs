//! A scripted client.

use std::net::SocketAddr;

use ata_wire::proto::{GradientPart, WorkerMessage};
use ata_wire::{
    Assignment, Connection, FromWorker, GradientHeader, Hello, LeaseTimes, ParameterStream, Pool, Receipt,
    SessionToken, ToWorker, Welcome, connect, gradient_parts,
};
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

/// An open control stream.
pub struct Session {
    /// The coordinator's first message.
    pub welcome: Welcome,
    /// The coordinator's further messages.
    pub incoming: Streaming<ata_wire::proto::CoordinatorMessage>,
    outgoing: mpsc::Sender<WorkerMessage>,
}

impl Peer {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> Self {
        let endpoint = format!("http://{address}").parse().expect("an address");
        Self { connection: connect(&endpoint).await.expect("a coordinator is there") }
    }

    /// Opens a control stream with a Hello.
    pub async fn hello(&self, name: &str, instance: u64) -> Result<Session, Status> {
        let hello = Hello {
            name: name.parse().expect("a name"),
            instance,
            number: None,
            device: "scripted".into(),
            version: String::new(),
        };
        self.open(FromWorker::Hello(hello).into()).await
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
        session.say(FromWorker::Ready { fuses: false }).await;
        session
    }

    /// Opens the stream of its parameters.
    pub async fn parameters(&self, session: &Session) -> Result<ParameterStream, Status> {
        let Welcome { session, ref run, .. } = session.welcome;
        self.connection.parameters(session, run.parameters, Pool::default()).await
    }

    /// Sends a gradient, through generated code.
    pub async fn submit(&self, header: GradientHeader, values: Vec<f32>) -> Result<Receipt, Status> {
        self.submit_parts(gradient_parts(header.into(), values)).await
    }

    /// Sends anything as a gradient.
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

    /// Waits for the next message; `None` once the coordinator has closed the session.
    pub async fn next(&mut self) -> Option<ToWorker> {
        let message = soon("a message from the coordinator", self.incoming.next()).await?;
        message.ok().map(|message| message.try_into().expect("a coordinator keeps to the contract"))
    }

    /// Waits for the next leases.
    pub async fn assigned(&mut self) -> Vec<ata_wire::Assignment> {
        match self.next().await {
            Some(ToWorker::Assign(leases)) => leases,
            other => panic!("expected leases, found {other:?}"),
        }
    }

    /// Says nothing more, and waits until the coordinator has heard all and closed the session.
    pub async fn leave(self) {
        let Self { mut incoming, outgoing, .. } = self;
        drop(outgoing);
        while soon("the end of the session", incoming.next()).await.is_some_and(|message| message.is_ok()) {}
    }

    /// The session's token.
    pub fn token(&self) -> SessionToken {
        self.welcome.session
    }

    /// The header of a gradient of some lease, whose tasks took no time.
    pub fn header(&self, lease: &Assignment) -> GradientHeader {
        GradientHeader {
            session: self.token(),
            lease: lease.lease.id,
            iteration: lease.lease.iteration,
            times: LeaseTimes { busy_s: vec![0.0; lease.lease.tasks.count as usize], outlasted: 0 },
            loss_sum: 1.0,
        }
    }
}
