//! The beginning of a connection: a TLS handshake, or a clear refusal of a peer that expects something else.

use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use crate::security::names_of;
use crate::warnings::Protocol;

/// The first byte of a TLS handshake (RFC 8446, section 5.1), which begins no plain request.
const TLS_HANDSHAKE: u8 = 22;

/// The answer to a peer that speaks TLS to a port without TLS: a fatal alert, "protocol version" (RFC 8446, section 6.2).
const NO_TLS_HERE: [u8; 7] = [21, 3, 3, 0, 2, 2, 70];

/// The answer to a peer that speaks plain HTTP/2 to a port with TLS: empty settings, and "inadequate security" (RFC 9113,
/// sections 6.8 and 7), which gRPC reports as PERMISSION_DENIED.
pub(crate) const NO_PLAIN_HTTP2_HERE: [u8; 26] =
    [0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12];

/// The answer to a browser that speaks plain HTTP to a port with TLS.
pub(crate) const NO_PLAIN_HTTP_HERE: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\nthis address speaks TLS: https://\n";

const LATE: &str = "did not finish its handshake in time";

/// The byte stream of a connection, encrypted or not.
pub type Transport = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// The transport of a connection, and the names in the certificate that the other end presented.
type Handshake = (Transport, Option<Vec<String>>);

/// Performs the handshake. If the other end does not do its part by the deadline, the error is the warning to log, if it is worth one.
pub(crate) async fn handshake(
    stream: TcpStream,
    protocol: Protocol,
    tls: Option<Arc<ServerConfig>>,
    deadline: Instant,
) -> Result<Handshake, Option<String>> {
    // Without this, small messages wait for each other for up to 40 ms.
    stream.set_nodelay(true).unwrap_or(());
    let mut first = [0];
    let peeked = timeout_at(deadline, stream.peek(&mut first)).await;
    // Browsers open connections speculatively, and may never use them.
    let peeked = peeked.map_err(|_| (protocol != Protocol::Http).then(|| LATE.to_owned()))?;
    if peeked.map_err(|error| Some(format!("broke: {error}")))? == 0 {
        // The other end left before it sent anything, as browsers and health checks do.
        return Err(None);
    }
    let agreed = timeout_at(deadline, agree(stream, protocol, tls, first[0] == TLS_HANDSHAKE)).await;
    agreed.unwrap_or_else(|_| Err(Some(LATE.into())))
}

async fn agree(
    mut stream: TcpStream,
    protocol: Protocol,
    tls: Option<Arc<ServerConfig>>,
    speaks_tls: bool,
) -> Result<Handshake, Option<String>> {
    let misunderstood = |why: &str| Err(Some(why.into()));
    match tls {
        None if speaks_tls => {
            drop(stream.write_all(&NO_TLS_HERE).await);
            misunderstood(match protocol {
                Protocol::Grpc => {
                    "speaks TLS, but this coordinator does not: workers need --coordinator, and no --join"
                }
                Protocol::Http => "speaks TLS, but this dashboard does not: its address begins with http://",
            })
        }
        None => Ok((Either::Left(stream), None)),
        Some(_) if !speaks_tls => {
            let (answer, why) = match protocol {
                Protocol::Grpc => (&NO_PLAIN_HTTP2_HERE[..], "is not encrypted: workers need --join"),
                Protocol::Http => {
                    (NO_PLAIN_HTTP_HERE, "is not encrypted: the dashboard's address begins with https://")
                }
            };
            drop(stream.write_all(answer).await);
            drop(stream.shutdown().await);
            // Closing the connection before everything was read would reset it, and the answer would be lost.
            let mut rest = [0; 4096];
            while stream.read(&mut rest).await.is_ok_and(|length| length > 0) {}
            misunderstood(why)
        }
        Some(tls) => {
            let met = TlsAcceptor::from(tls).accept(stream).await;
            let stream = met.map_err(|error| Some(format!("failed in its TLS handshake: {error}")))?;
            let names = stream.get_ref().1.peer_certificates().and_then(|chain| Some(names_of(chain.first()?)));
            Ok((Either::Right(Box::new(stream)), names))
        }
    }
}
