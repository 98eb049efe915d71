//! A port: its connections are accepted one after the other, and shaken hands with side by side.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::admission::Admission;
use super::handshake::{Unmet, handshake};
use super::peer::Peer;
use super::warnings::Warnings;
use crate::limits::STRANGER_TIMEOUT;

/// What is spoken on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// What workers speak.
    Grpc,
    /// What browsers speak, for the dashboard.
    Http,
}

/// Bytes from and to the other end, encrypted or not.
pub type Transport = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// A connection on which it is settled how to talk.
#[derive(Debug)]
pub struct Arrived {
    /// The connection.
    pub stream: Transport,
    /// The other end. The connection must be given up when [`Peer::closed`] resolves.
    pub peer: Peer,
    /// When it was accepted.
    pub since: Instant,
    /// The connection's place, to be dropped with it.
    pub place: OwnedSemaphorePermit,
}

impl Arrived {
    /// The connection, for the settings of its socket.
    pub fn tcp(&self) -> &TcpStream {
        match &self.stream {
            Either::Left(stream) => stream,
            Either::Right(stream) => stream.get_ref().0,
        }
    }
}

/// A port, and who may be connected to it. A connection that nothing lets [stay](Peer::stay) makes room for new ones.
pub struct Entrance<T> {
    protocol: Protocol,
    admission: Admission,
    warnings: Arc<Warnings>,
    tls: T,
}

impl<T> Entrance<T>
where
    T: Fn() -> Option<Arc<ServerConfig>> + Send + Sync + 'static,
{
    /// A port for at most `connections`. `tls` is asked at each of them whether it is encrypted, and how.
    pub fn new(protocol: Protocol, connections: usize, tls: T) -> Self {
        let warnings = Arc::new(Warnings::about(protocol));
        Self { protocol, admission: Admission::new(connections), warnings, tls }
    }

    /// Lets connections in for ever, and has `meet` serve each.
    pub async fn accept<M, F>(self, listener: TcpListener, meet: M) -> Infallible
    where
        M: Fn(Arrived) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send,
    {
        let this = Arc::new((self, meet));
        loop {
            let place = this.0.admission.place().await;
            match listener.accept().await {
                Ok((stream, address)) => {
                    let this = this.clone();
                    let peer = Peer::new(address, this.0.warnings.clone());
                    this.0.admission.enter(address.ip(), peer.standing());
                    tokio::spawn(async move {
                        let (entrance, meet) = &*this;
                        if let Some(arrived) = entrance.greet(stream, peer, place).await {
                            meet(arrived).await;
                        }
                    });
                }
                Err(error) => {
                    // Out of file descriptors, or a connection that was closed at once.
                    tracing::warn!(%error, "cannot accept a connection");
                    this.0.admission.expel();
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Settles how to talk, if the other end does its part in time.
    async fn greet(&self, stream: TcpStream, peer: Peer, place: OwnedSemaphorePermit) -> Option<Arrived> {
        let since = Instant::now();
        let met = tokio::select! {
            met = timeout_at(since + STRANGER_TIMEOUT, handshake(stream, self.protocol, (self.tls)())) => met,
            () = peer.closed() => {
                peer.warn(format_args!("made room before its handshake was done"));
                return None;
            }
        };
        match met {
            Ok(Ok((stream, names))) => Some(Arrived { stream, peer: peer.with_names(names), since, place }),
            Ok(Err(Unmet::Left)) => None,
            Ok(Err(Unmet::Misunderstood(why))) => {
                peer.warn(format_args!("{why}"));
                None
            }
            Err(_) => {
                peer.warn(format_args!("did not finish its handshake in time"));
                None
            }
        }
    }
}
