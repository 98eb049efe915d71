//! The coordinator's side of a connection.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tower_service::Service;

use crate::entrance::{AcceptedConnection, Entrance};
use crate::handshake::Transport;
use crate::limits::{
    CONNECTION_WINDOWS, CONNECTIONS_PER_WORKER, FRAME_BYTES, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, MAX_CONNECTIONS,
    MAX_STREAMS, MAX_UPLOADS, MAX_VISITORS,
};
use crate::obstacle::MORE_FILES;
use crate::peer::Peer;
use crate::security::{Guard, Security, ServerTls};
use crate::warnings::Protocol;
use crate::windows::{ConnectionWindow, ConnectionWindows, SendAhead};

/// The number of files that a coordinator opens in addition to its workers' connections: the dashboard's connections, and its own files.
const OTHER_FILES: usize = MAX_VISITORS + 128;

/// The number of workers up to which a limit of open files is worth a warning: few runs have more.
const FEW_WORKERS: usize = 256;

/// The maximum number of connections that wait to be served.
const QUEUED_CONNECTIONS: usize = 16;

/// Serves connections until `stop` resolves, and then until all of them are closed.
pub async fn serve<S>(
    listener: TcpListener,
    security: Arc<Security>,
    ahead: SendAhead,
    service: S,
    stop: impl Future<Output = ()>,
) where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
    let service = Guard { security: security.clone(), inner: service };
    let (over, is_over) = watch::channel(());
    let mut servers = JoinSet::new();
    let queues = CONNECTION_WINDOWS.map(|window_bytes| {
        let (queue, connections) = mpsc::channel::<io::Result<ServedConnection>>(QUEUED_CONNECTIONS);
        let (service, mut is_over) = (service.clone(), is_over.clone());
        let server = server(window_bytes, ahead.stream_bytes);
        servers.spawn(async move {
            let connections = ReceiverStream::new(connections);
            let stop = async { drop(is_over.changed().await) };
            // The only possible error is one of the stream of connections, which has none.
            drop(server.serve_with_incoming_shutdown(service, connections, stop).await);
        });
        queue
    });
    let (windows, queues) = (Arc::new(ConnectionWindows::new(ahead.memory_bytes)), Arc::new(queues));
    let tls = move || security.tls().map(ServerTls::current);
    let entrance = Entrance::new(Protocol::Grpc, raise_file_limit(), tls);
    let handle = move |arrived: AcceptedConnection| {
        let (window, queues) = (windows.window(), queues.clone());
        tokio::spawn(arrived.peer.probation(arrived.since));
        async move {
            let AcceptedConnection { stream, peer, place, .. } = arrived;
            let (queue, closed) = (&queues[window.size], Box::pin(peer.closed()));
            // An error here means that the server is gone.
            drop(queue.send(Ok(ServedConnection { stream, peer, closed, _window: window, _place: place })).await);
        }
    };
    tokio::select! {
        never = entrance.accept(listener, handle) => match never {},
        () = stop => {}
    }
    drop(over);
    while servers.join_next().await.is_some() {}
}

/// Creates a tonic server with the limits that its defaults lack.
fn server(window_bytes: u32, stream_bytes: u32) -> Server {
    Server::builder()
        // Gradients that wait for room are not read. The connection's window has room for them and for the one that is read.
        .initial_stream_window_size(stream_bytes.min(window_bytes / MAX_UPLOADS as u32))
        .initial_connection_window_size(window_bytes)
        .max_frame_size(FRAME_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .concurrency_limit_per_connection(MAX_STREAMS as usize)
        .load_shed(true)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
}

/// Returns the number of open files that a coordinator needs: the workers' connections, as many again to reconnect, and its own.
pub fn files_for(workers: usize) -> u64 {
    (2 * CONNECTIONS_PER_WORKER * workers + OTHER_FILES) as u64
}

/// Raises the open-file limit of this process to what [`MAX_CONNECTIONS`] needs, and returns the number of connections that it allows.
pub fn raise_file_limit() -> usize {
    let needed = MAX_CONNECTIONS + OTHER_FILES;
    let allowed = rlimit::increase_nofile_limit(needed as u64).unwrap_or(u64::MAX);
    let connections = (allowed.min(needed as u64) as usize).saturating_sub(OTHER_FILES).max(1);
    let workers = connections / CONNECTIONS_PER_WORKER;
    if workers < FEW_WORKERS {
        tracing::warn!("this process may open only {allowed} files, enough for {workers} workers: {MORE_FILES}");
    }
    connections
}

/// A connection that holds its place until it is dropped, and breaks when its [`Peer`] is closed.
struct ServedConnection {
    stream: Transport,
    peer: Peer,
    closed: Pin<Box<dyn Future<Output = ()> + Send>>,
    _window: ConnectionWindow,
    _place: OwnedSemaphorePermit,
}

impl ServedConnection {
    fn check(&self) -> io::Result<()> {
        if self.peer.state().is_closed() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.peer.state().carried(bytes);
        }
        written
    }
}

impl Connected for ServedConnection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for ServedConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Polling `closed` wakes a connection that waits for its peer once it must close.
        if self.closed.as_mut().poll(cx).is_ready() {
            return Poll::Ready(self.check());
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.peer.state().carried(buf.filled().len() - before);
        read
    }
}

impl AsyncWrite for ServedConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.count(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.count(written)
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
