//! Answers the calls of other workers.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use ata_net::limits::ANSWER_TIMEOUT;
use ata_net::{
    Credentials, Endpoint, JoinToken, KeepOpen, Peer, Role, Secrets, Security, SendAhead, ServerTls, Trust,
    cannot_listen, memory_bytes, serve,
};
use ata_wire::limits::{MAX_CHUNK_BYTES, MAX_SHARDS};
use ata_wire::{
    FramedSet, GradientHeader, GradientUpload, PeerAddress, Reader, Receipt, SessionToken, TransferRouter, Transfers,
};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use crate::{PeerConfig, WorkerError};

/// The divisor of this machine's memory for data that other workers send ahead: one part in this many.
const MEMORY_SHARE: u64 = 16;

/// The maximum size of another member's chunks that wait to be read: one that is added, and the next. If a member could send more ahead, it
/// would take the room in front of this worker's link from the others, for which all wait.
const AHEAD_BYTES: u32 = 2 * MAX_CHUNK_BYTES as u32;

/// The number of connections of other workers that are kept open, so that none has to be made for the next step.
const KEPT_CONNECTIONS: usize = 2 * MAX_SHARDS;

/// The exchanges in which this worker takes part, by the keys of the members that call it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers {
    open: watch::Sender<HashMap<SessionToken, OpenExchange>>,
    connections: Arc<Mutex<VecDeque<KeepOpen>>>,
}

#[derive(Clone, Debug)]
pub(super) struct OpenExchange {
    /// The place of the member that knows the key.
    pub(super) place: usize,
    pub(super) uploads: mpsc::Sender<PeerUpload>,
    /// This worker's chunks of the next parameters, once their header is known.
    pub(super) set: watch::Receiver<Option<FramedSet>>,
}

pub(super) struct PeerUpload {
    pub(super) place: usize,
    pub(super) upload: GradientUpload,
    pub(super) arrived: oneshot::Sender<()>,
}

impl Peers {
    /// Accepts calls of a member of an exchange, by the key that it shares with this worker.
    pub(super) fn open(&self, key: SessionToken, exchange: OpenExchange) {
        self.open.send_modify(|open| drop(open.insert(key, exchange)));
    }

    pub(super) fn close(&self, key: SessionToken) {
        self.open.send_modify(|open| drop(open.remove(&key)));
    }

    /// Returns the exchange with a key. Waits for it, since the coordinator may have notified the caller earlier than this worker.
    async fn exchange(&self, key: SessionToken, caller: &Peer) -> Result<OpenExchange, Status> {
        let stay = caller.keep_open();
        let mut changes = self.open.subscribe();
        let known = timeout(ANSWER_TIMEOUT, changes.wait_for(|open| open.contains_key(&key))).await;
        let open = known.map_err(|_| over())?.map_err(|_| over())?;
        let exchange = open.get(&key).cloned().ok_or_else(over)?;
        let mut kept = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.iter().any(|kept| kept.is_of(caller)) {
            kept.push_back(stay);
            if kept.len() > KEPT_CONNECTIONS {
                kept.pop_front();
            }
        }
        Ok(exchange)
    }
}

fn over() -> Status {
    Status::unavailable("there is no such exchange here")
}

impl Transfers for Peers {
    async fn parameters(
        &self,
        session: SessionToken,
        reader: Reader,
    ) -> Result<impl Stream<Item = FramedSet> + Send + 'static, Status> {
        let set = self.exchange(session, reader.peer()).await?.set;
        Ok(WatchStream::new(set).filter_map(|set| set).take(1))
    }

    async fn submit_gradient(&self, mut upload: GradientUpload) -> Result<Receipt, Status> {
        let caller = upload.peer().clone();
        let header = GradientHeader::try_from(upload.header().await?)?;
        let exchange = self.exchange(header.session, &caller).await?;
        let place = exchange.place;
        let (arrived, receipt) = oneshot::channel();
        let many = |_: mpsc::error::TrySendError<PeerUpload>| Status::resource_exhausted("more sums than members");
        exchange.uploads.try_send(PeerUpload { place, upload, arrived }).map_err(many)?;
        receipt.await.map(|()| Receipt::Accepted).map_err(|_| over())
    }
}

/// A server for other workers, which stops when it is dropped.
pub(crate) struct PeerServer {
    pub(crate) peers: Peers,
    pub(crate) address: PeerAddress,
    _serving: JoinSet<()>,
    _folder: TempDir,
}

impl PeerServer {
    /// Starts to listen for the other workers of a coordinator, if they may reach this one. If the connection to the coordinator is
    /// encrypted, so are theirs, with a key and secret that this process generates.
    pub(crate) async fn start(
        config: Option<&PeerConfig>,
        coordinator: &Endpoint,
    ) -> Result<Option<Self>, WorkerError> {
        let Some(&PeerConfig { listen, ref host }) = config else { return Ok(None) };
        let failed = |cause: String| WorkerError::PeerListen(listen, cause);
        // A machine without IPv6 cannot listen on both address families.
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, listen.port()));
        let listener = match TcpListener::bind(listen).await {
            Err(_) if listen.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => TcpListener::bind(any).await,
            bound => bound,
        };
        let listener = listener.map_err(|cause| failed(cannot_listen(listen, &cause, "--peer-listen").to_string()))?;
        let port = listener.local_addr().map_err(|error| failed(error.to_string()))?.port();
        let address = format!("{}:{port}", host.as_deref().unwrap_or("0.0.0.0"));
        let folder = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
        let (security, address) = if matches!(coordinator.trust(), Trust::Open) {
            (Security::Open, PeerAddress::Open(address))
        } else {
            let secured = Credentials::open(folder.path()).and_then(|own| {
                let (files, secret) = (own.tls_files(), own.secret(Role::Worker)?);
                let pin = files.pin()?;
                let security = Security::Secret(ServerTls::new(files)?, Secrets::of(&own)?);
                Ok((security, pin, secret))
            });
            let (security, pin, secret) = secured.map_err(|error| failed(error.to_string()))?;
            let address = address.parse().map_err(|_| failed(format!("'{address}' is no address")))?;
            (security, PeerAddress::Pinned(JoinToken { address, pin, secret }))
        };
        let peers = Peers::default();
        let service = TransferRouter::alone(peers.clone());
        let ahead = SendAhead { memory_bytes: memory_bytes() / MEMORY_SHARE, stream_bytes: AHEAD_BYTES };
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, Arc::new(security), ahead, service, std::future::pending()));
        Ok(Some(Self { peers, address, _serving: serving, _folder: folder }))
    }
}
