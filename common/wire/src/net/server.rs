//! The coordinator's side of a connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::limits::{
    CONNECTION_WINDOW_BYTES, FRAME_BYTES, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, MAX_CONNECTIONS, MAX_STREAMS,
    PREFACE_TIMEOUT, STREAM_WINDOW_BYTES,
};

/// Files that a coordinator has open besides its connections.
const OTHER_FILES: usize = 128;

/// A tonic server with the limits that its defaults lack.
pub fn server_builder() -> Server {
    Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .concurrency_limit_per_connection(MAX_STREAMS as usize)
        .load_shed(true)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
}

/// Raises this process's limit of open files to what [`MAX_CONNECTIONS`] needs. If the system does not allow that many,
/// the error is the number it allows.
pub fn raise_file_limit() -> Result<(), u64> {
    let needed = (MAX_CONNECTIONS + OTHER_FILES) as u64;
    let allowed = rlimit::increase_nofile_limit(needed).unwrap_or(u64::MAX);
    if allowed >= needed { Ok(()) } else { Err(allowed) }
}

/// Connections that have sent the HTTP/2 preface, at most [`MAX_CONNECTIONS`] at a time. A peer that stays silent, or
/// speaks another protocol, never reaches the server.
pub fn incoming(listener: TcpListener) -> impl Stream<Item = io::Result<Guarded>> {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(accept(listener, sender));
    ReceiverStream::new(receiver)
}

async fn accept(listener: TcpListener, sender: mpsc::Sender<io::Result<Guarded>>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(permit) = permits.clone().acquire_owned().await {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = sender.closed() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, or a connection that was closed at once.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let sender = sender.clone();
        tokio::spawn(async move {
            if let Ok(Ok(())) = tokio::time::timeout(PREFACE_TIMEOUT, preface(&stream)).await {
                // Without this, small messages wait 40 ms for each other.
                stream.set_nodelay(true).unwrap_or(());
                // An error here means that the server is gone.
                sender.send(Ok(Guarded { stream, _permit: permit })).await.unwrap_or(());
            }
        });
    }
}

/// Waits for the client's HTTP/2 connection preface (RFC 9113, section 3.4) without consuming it.
async fn preface(stream: &TcpStream) -> io::Result<()> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut seen = [0; PREFACE.len()];
    loop {
        let length = stream.peek(&mut seen).await?;
        if length == 0 || !PREFACE.starts_with(&seen[..length]) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if length == PREFACE.len() {
            return Ok(());
        }
        // Part of it has arrived, so `peek` would return at once instead of waiting for the rest.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A connection that counts towards [`MAX_CONNECTIONS`] until it is dropped.
#[derive(Debug)]
pub struct Guarded {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

impl Connected for Guarded {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Guarded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
