//! The coordinator's side of a connection.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::either::Either;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::body::Body;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tower_service::Service;

use super::admission::{Admission, Window};
use super::handshake::handshake;
use super::peer::Peer;
use super::warnings::Warnings;
use crate::limits::{
    CONNECTION_WINDOWS, CONNECTIONS_PER_WORKER, FRAME_BYTES, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, MAX_CONNECTIONS,
    MAX_STREAMS, STRANGER_TIMEOUT,
};
use crate::security::{Guard, Security};

/// Files that a coordinator has open besides its connections.
const OTHER_FILES: usize = 128;

/// Connections that may wait to be served.
const QUEUED_CONNECTIONS: usize = 16;

/// Serves whoever may connect until `stop` resolves, and then until all connections are closed. What connections may send
/// ahead of being read takes at most `memory_bytes`, and the smallest of [`CONNECTION_WINDOWS`] for each.
pub async fn serve<S>(
    listener: TcpListener,
    security: Arc<Security>,
    memory_bytes: u64,
    service: S,
    stop: impl Future<Output = ()>,
) where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
    let service = Guard::new(security.clone(), service);
    let (over, is_over) = watch::channel(());
    let mut servers = JoinSet::new();
    let queues = CONNECTION_WINDOWS.map(|window_bytes| {
        let (queue, connections) = mpsc::channel(QUEUED_CONNECTIONS);
        let (service, mut is_over) = (service.clone(), is_over.clone());
        servers.spawn(async move {
            let connections = ReceiverStream::new(connections);
            let stop = async { drop(is_over.changed().await) };
            // An error would be one of the stream of connections, which has none.
            drop(server(window_bytes).serve_with_incoming_shutdown(service, connections, stop).await);
        });
        queue
    });
    let connections = raise_file_limit();
    let entrance = Entrance {
        security,
        admission: Arc::new(Admission::new(connections, memory_bytes)),
        warnings: Arc::default(),
        queues: Arc::new(queues),
    };
    tokio::select! {
        never = entrance.accept(listener) => match never {},
        () = stop => {}
    }
    drop(over);
    while servers.join_next().await.is_some() {}
}

/// A tonic server with the limits that its defaults lack.
fn server(window_bytes: u32) -> Server {
    Server::builder()
        .initial_stream_window_size(window_bytes / 2)
        .initial_connection_window_size(window_bytes)
        .max_frame_size(FRAME_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .concurrency_limit_per_connection(MAX_STREAMS as usize)
        .load_shed(true)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
}

/// Open files that a coordinator of so many workers needs: their connections, as many again for those that reconnect, and its own.
pub fn files_for(workers: usize) -> u64 {
    (2 * CONNECTIONS_PER_WORKER * workers + OTHER_FILES) as u64
}

/// Raises this process's limit of open files to what [`MAX_CONNECTIONS`] needs, and returns how many connections it allows.
pub fn raise_file_limit() -> usize {
    let needed = MAX_CONNECTIONS + OTHER_FILES;
    let allowed = rlimit::increase_nofile_limit(needed as u64).unwrap_or(u64::MAX);
    if allowed < needed as u64 {
        tracing::info!("this process may open only {allowed} files, which limits the number of workers");
    }
    (allowed.min(needed as u64) as usize).saturating_sub(OTHER_FILES).max(1)
}

/// Where connections come in.
struct Entrance {
    security: Arc<Security>,
    admission: Arc<Admission>,
    warnings: Arc<Warnings>,
    /// Of the servers, by the window that they grant.
    queues: Arc<[mpsc::Sender<io::Result<Guarded>>; CONNECTION_WINDOWS.len()]>,
}

impl Entrance {
    async fn accept(&self, listener: TcpListener) -> Infallible {
        loop {
            let place = self.admission.place().await;
            match listener.accept().await {
                Ok((stream, address)) => self.enter(stream, address, place),
                Err(error) => {
                    // Out of file descriptors, or a connection that was closed at once.
                    tracing::warn!(%error, "cannot accept a connection");
                    self.admission.expel();
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Hands a connection to a server when it has made itself known.
    fn enter(&self, stream: TcpStream, address: SocketAddr, place: OwnedSemaphorePermit) {
        let peer = Peer::new(address, self.warnings.clone());
        self.admission.enter(peer.standing());
        let (security, admission, queues) = (self.security.clone(), self.admission.clone(), self.queues.clone());
        tokio::spawn(async move {
            let mut probation = Box::pin(sleep(STRANGER_TIMEOUT));
            let met = tokio::select! {
                met = handshake(stream, security.tls()) => met,
                () = &mut probation => Err("did not finish its handshake in time".into()),
                () = peer.standing().closed().cancelled() => Err("made room before its handshake was done".into()),
            };
            match met {
                Ok((stream, names)) => {
                    let (peer, window) = (peer.with_names(names), admission.window());
                    let queue = &queues[window.size];
                    // An error here means that the server is gone.
                    drop(queue.send(Ok(Guarded::new(stream, peer, probation, window, place))).await);
                }
                Err(why) => peer.warn(format_args!("{why}")),
            }
        });
    }
}

type Transport = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// A connection that keeps its place until it is dropped, and breaks when its [`Peer`] is closed, or belongs to no session for
/// too long.
struct Guarded {
    stream: Transport,
    peer: Peer,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    /// When it must belong to a session; `None` if it does.
    probation: Option<Pin<Box<Sleep>>>,
    _window: Window,
    _place: OwnedSemaphorePermit,
}

impl Guarded {
    fn new(
        stream: Transport,
        peer: Peer,
        probation: Pin<Box<Sleep>>,
        window: Window,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let closed = Box::pin(peer.standing().closed().clone().cancelled_owned());
        Self { stream, peer, closed, probation: Some(probation), _window: window, _place: place }
    }

    /// Whether it has to go. Whatever it waits for, `cx` is woken when it has.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        if self.peer.standing().is_known() {
            self.probation = None;
        }
        if self.probation.as_mut().is_some_and(|probation| probation.as_mut().poll(cx).is_ready()) {
            self.probation = None;
            self.peer.warn(format_args!("was closed: it began no session"));
            self.peer.close();
        }
        self.closed.as_mut().poll(cx).is_ready()
    }

    fn check(&self) -> io::Result<()> {
        let is_closed = self.peer.standing().closed().is_cancelled();
        if is_closed { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}

impl Connected for Guarded {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Guarded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.is_over(cx) {
            return Poll::Ready(self.check());
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
