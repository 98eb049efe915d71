//! Answers the calls of other workers.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use ata_net::limits::ANSWER_TIMEOUT;
use ata_net::{
    Credentials, Endpoint, JoinToken, Peer, Role, Secrets, Security, ServerTls, Stay, Trust, memory_bytes, serve,
};
use ata_wire::limits::MAX_SHARDS;
use ata_wire::{
    FramedSet, GradientHeader, GradientUpload, PeerAddress, Reader, Receipt, SessionToken, TransferRouter, Transfers,
};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use crate::{PeerConfig, WorkerError};

/// The part of the memory that other workers may fill with what they send ahead.
const MEMORY_SHARE: u64 = 16;

/// Connections of other workers that are kept open, so that none has to be made for the next step.
const KEPT_CONNECTIONS: usize = 2 * MAX_SHARDS;

/// The exchanges in which this worker takes part, by the keys of those who call it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers {
    open: watch::Sender<HashMap<SessionToken, OpenExchange>>,
    connections: Arc<Mutex<VecDeque<Stay>>>,
}

/// An exchange, as another member sees it.
#[derive(Clone, Debug)]
pub(super) struct OpenExchange {
    /// The place of the one who knows its key.
    pub(super) place: usize,
    /// Takes their sums.
    pub(super) uploads: mpsc::Sender<PeerUpload>,
    /// The chunks of the next parameters that belong to this worker, once their header is known.
    pub(super) set: watch::Receiver<Option<FramedSet>>,
}

/// Another member's sum, which is about to arrive.
pub(super) struct PeerUpload {
    /// The member's place.
    pub(super) place: usize,
    pub(super) upload: GradientUpload,
    /// To be sent once it has arrived.
    pub(super) arrived: oneshot::Sender<()>,
}

impl Peers {
    /// Lets a member of an exchange in, by the key that it shares with this worker.
    pub(super) fn open(&self, key: SessionToken, exchange: OpenExchange) {
        self.open.send_modify(|open| drop(open.insert(key, exchange)));
    }

    /// No longer lets it in.
    pub(super) fn close(&self, key: SessionToken) {
        self.open.send_modify(|open| drop(open.remove(&key)));
    }

    /// The exchange with a key. The coordinator may have told the caller of it earlier than this worker.
    async fn exchange(&self, key: SessionToken, caller: &Peer) -> Result<OpenExchange, Status> {
        let stay = caller.stay();
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

/// A port for other workers, which is closed when this is dropped.
pub(crate) struct PeerServer {
    pub(crate) peers: Peers,
    /// How others reach it.
    pub(crate) address: PeerAddress,
    serving: AbortHandle,
    /// Key and secrets.
    _folder: TempDir,
}

impl PeerServer {
    /// Listens for the other workers of a coordinator. If the connection to that is encrypted, so are these, with a key and a
    /// secret of this process's own.
    pub(crate) async fn start(config: &PeerConfig, coordinator: &Endpoint) -> Result<Self, WorkerError> {
        let PeerConfig { listen, host } = config;
        let listen = *listen;
        let failed = |cause: String| WorkerError::PeerListen { address: listen, cause };
        // A machine without IPv6 has no address for both families.
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, listen.port()));
        let listener = match TcpListener::bind(listen).await {
            Err(_) if listen.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => TcpListener::bind(any).await,
            bound => bound,
        };
        let listener = listener.map_err(|error| failed(error.to_string()))?;
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
        let memory = memory_bytes() / MEMORY_SHARE;
        let serving = serve(listener, Arc::new(security), memory, service, std::future::pending());
        let serving = tokio::spawn(serving).abort_handle();
        Ok(Self { peers, address, serving, _folder: folder })
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
