//! Connections that can be closed by whoever serves their calls.
//!
//! A peer that reads nothing keeps what it was sent in memory for as long as its connection is open, and no call can be
//! ended from within while it waits for its peer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::Extensions;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::limits::CALL_TIMEOUT;

/// A connection, as those know it who serve its calls. Clones are of the same one.
#[derive(Clone, Debug, Default)]
pub struct Line(Arc<State>);

#[derive(Debug, Default)]
struct State {
    closed: CancellationToken,
    /// Whether any call was made.
    has_called: AtomicBool,
    /// Gradients that are arriving.
    uploads: AtomicUsize,
}

impl Line {
    /// Closes the connection, with all of its calls.
    pub fn close(&self) {
        self.0.closed.cancel();
    }

    /// Whether gradients are arriving, behind which other data may have to wait.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.uploads.load(Ordering::Relaxed) > 0
    }

    /// Counts a gradient that is arriving until the result is dropped.
    pub(crate) fn upload(&self) -> Upload {
        self.0.uploads.fetch_add(1, Ordering::Relaxed);
        Upload(self.clone())
    }

    /// The connection that a request came on. Its peer's address goes where tonic looks for it.
    pub(crate) fn of(extensions: &mut Extensions) -> Self {
        let Some(Known { line, peer }) = extensions.remove::<Known<TcpConnectInfo>>() else { return Self::default() };
        line.0.has_called.store(true, Ordering::Relaxed);
        extensions.insert(peer);
        extensions.insert(line.clone());
        line
    }
}

/// A gradient that is arriving on a connection.
#[derive(Debug)]
pub(crate) struct Upload(Line);

impl Drop for Upload {
    fn drop(&mut self) {
        self.0.0.uploads.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the requests of a connection carry about it.
#[derive(Clone, Debug)]
pub struct Known<I> {
    line: Line,
    peer: I,
}

/// Makes connections closable, and closes those on which no call is made within [`CALL_TIMEOUT`].
pub fn closable<IO>(incoming: impl Stream<Item = io::Result<IO>>) -> impl Stream<Item = io::Result<Closable<IO>>> {
    incoming.map(|io| io.map(Closable::new))
}

/// A connection that its [`Line`] can close.
#[derive(Debug)]
pub struct Closable<IO> {
    io: IO,
    line: Line,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    /// When it must have been used; `None` if it was.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<IO> Closable<IO> {
    fn new(io: IO) -> Self {
        let line = Line::default();
        let closed = Box::pin(line.0.closed.clone().cancelled_owned());
        Self { io, line, closed, deadline: Some(Box::pin(sleep(CALL_TIMEOUT))) }
    }

    /// Whether it must be closed. Whatever the connection waits for, `cx` is woken when it must.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        if self.line.0.has_called.load(Ordering::Relaxed) {
            self.deadline = None;
        }
        if self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready()) {
            self.line.close();
        }
        self.closed.as_mut().poll(cx).is_ready()
    }

    fn check(&self) -> io::Result<()> {
        if self.line.0.closed.is_cancelled() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}

impl<IO: Connected> Connected for Closable<IO> {
    type ConnectInfo = Known<IO::ConnectInfo>;

    fn connect_info(&self) -> Self::ConnectInfo {
        Known { line: self.line.clone(), peer: self.io.connect_info() }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Closable<IO> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.is_over(cx) {
            return Poll::Ready(self.check());
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Closable<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
