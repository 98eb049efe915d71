//! A listening port: connections are accepted one after the other, and their handshakes run concurrently.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};
use tokio_util::either::Either;

use crate::admission::Admission;
use crate::congestion;
use crate::handshake::{Transport, handshake};
use crate::limits::STRANGER_TIMEOUT;
use crate::obstacle::{MORE_FILES, is_out_of_files};
use crate::peer::Peer;
use crate::warnings::{Protocol, Warnings};

/// A connection whose handshake is done.
#[derive(Debug)]
pub struct AcceptedConnection {
    /// The connection.
    pub stream: Transport,
    /// The other end. The connection must be dropped when [`Peer::closed`] resolves.
    pub peer: Peer,
    /// The time at which the connection was accepted.
    pub since: Instant,
    /// The connection's place, to be dropped with it.
    pub place: OwnedSemaphorePermit,
}

impl AcceptedConnection {
    /// Returns the TCP connection, for socket options.
    pub fn tcp(&self) -> &TcpStream {
        match &self.stream {
            Either::Left(stream) => stream,
            Either::Right(stream) => stream.get_ref().0,
        }
    }
}

/// A listening port with a limited number of connections. A connection that nothing [keeps open](Peer::keep_open) makes room for new ones.
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
    /// Creates an entrance for at most `connections` connections. `tls` returns the TLS configuration of the next one, if it is encrypted.
    pub fn new(protocol: Protocol, connections: usize, tls: T) -> Self {
        let warnings = Arc::new(Warnings::about(protocol));
        Self { protocol, admission: Admission::new(connections), warnings, tls }
    }

    /// Accepts connections forever, and serves each with `handle`.
    pub async fn accept<M, F>(self, listener: TcpListener, handle: M) -> Infallible
    where
        M: Fn(AcceptedConnection) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send,
    {
        let this = Arc::new((self, handle));
        congestion::prepare(&listener);
        loop {
            let place = this.0.admission.place().await;
            match listener.accept().await {
                Ok((stream, address)) => {
                    congestion::accepted(&stream);
                    let (this, since) = (this.clone(), Instant::now());
                    let peer = Peer::new(address, this.0.warnings.clone());
                    this.0.admission.enter(address.ip(), peer.state());
                    tokio::spawn(async move {
                        let (entrance, handle) = &*this;
                        if let Some(arrived) = entrance.complete_handshake(stream, peer, place, since).await {
                            handle(arrived).await;
                        }
                    });
                }
                Err(error) => {
                    // Either there are no file descriptors left, or the connection was closed at once.
                    let fix = if is_out_of_files(&error) { MORE_FILES } else { "the next one is tried" };
                    tracing::warn!(%error, "cannot accept a connection: {fix}");
                    this.0.admission.expel();
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn complete_handshake(
        &self,
        stream: TcpStream,
        peer: Peer,
        place: OwnedSemaphorePermit,
        since: Instant,
    ) -> Option<AcceptedConnection> {
        let done = tokio::select! {
            done = handshake(stream, self.protocol, (self.tls)(), since + STRANGER_TIMEOUT) => done,
            () = peer.closed() => Err(Some("made room before its handshake was done".into())),
        };
        match done {
            Ok((stream, names)) => Some(AcceptedConnection { stream, peer: peer.with_names(names), since, place }),
            Err(why) => {
                if let Some(why) = why {
                    peer.warn(format_args!("{why}"));
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::ring::default_provider;
    use rustls::server::ResolvesServerCertUsingSni;
    use tokio::io::AsyncWriteExt;

    /// Returns a server configuration with which no handshake succeeds.
    fn tls() -> Arc<ServerConfig> {
        let config = ServerConfig::builder_with_provider(default_provider().into());
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        Arc::new(config.with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new())))
    }

    #[tokio::test]
    async fn a_silent_browser_is_not_logged() {
        for (protocol, sent, is_logged) in
            [(Protocol::Http, &b""[..], false), (Protocol::Http, b"\x16\x03\x01", true), (Protocol::Grpc, b"", true)]
        {
            for tls in [None, Some(tls())] {
                let entrance = Entrance::new(protocol, 1, move || tls.clone());
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                let (stream, address) = listener.accept().await.unwrap();
                if !sent.is_empty() {
                    client.write_all(sent).await.unwrap();
                    stream.readable().await.unwrap();
                }
                let (peer, place) = (Peer::new(address, entrance.warnings.clone()), entrance.admission.place().await);
                let long_ago = Instant::now().checked_sub(STRANGER_TIMEOUT).unwrap();
                assert!(entrance.complete_handshake(stream, peer, place, long_ago).await.is_none());
                let may_be_logged = entrance.warnings.is_due(address.ip(), std::time::Instant::now()).is_some();
                assert_eq!(may_be_logged, !is_logged, "{protocol:?}: {sent:?}");
            }
        }
    }
}
