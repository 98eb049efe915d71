//! What is said on a new connection before HTTP/2: TLS, or a clear no to who expects something else.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use crate::security::{ServerTls, names_of};

/// The first byte of a TLS handshake (RFC 8446, section 5.1), which no HTTP/2 preface begins with.
const TLS_HANDSHAKE: u8 = 22;

/// To who speaks TLS where there is none: a fatal alert, "protocol version" (RFC 8446, section 6.2).
const NO_TLS_HERE: [u8; 7] = [21, 3, 3, 0, 2, 2, 70];

/// To who speaks plain HTTP/2 where there is TLS: empty settings, and "inadequate security" (RFC 9113, sections 6.8 and 7),
/// which gRPC shows as PERMISSION_DENIED.
const NO_PLAIN_TEXT_HERE: [u8; 26] = [0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12];

/// A connection, encrypted or not, and the names in the certificate that the other end has shown.
type Met = (Either<TcpStream, Box<TlsStream<TcpStream>>>, Option<Vec<String>>);

/// Agrees on how to talk; an error says what the other end did.
pub(super) async fn handshake(mut stream: TcpStream, tls: Option<&ServerTls>) -> Result<Met, String> {
    // Without this, small messages wait 40 ms for each other.
    stream.set_nodelay(true).unwrap_or(());
    let mut first = [0];
    let seen = stream.peek(&mut first).await.map_err(|error| format!("broke: {error}"))?;
    let speaks_tls = seen == 1 && first[0] == TLS_HANDSHAKE;
    match tls {
        _ if seen == 0 => Err("was closed by the other end".into()),
        None if speaks_tls => {
            drop(stream.write_all(&NO_TLS_HERE).await);
            Err("speaks TLS, but this coordinator does not: workers need --coordinator, and no --join".into())
        }
        None => Ok((Either::Left(stream), None)),
        Some(_) if !speaks_tls => {
            drop(stream.write_all(&NO_PLAIN_TEXT_HERE).await);
            drop(stream.shutdown().await);
            // Closed before all was read that arrived, the connection would be reset, and the answer be lost.
            let mut rest = [0; 4096];
            while stream.read(&mut rest).await.is_ok_and(|length| length > 0) {}
            Err("is not encrypted: workers need --join".into())
        }
        Some(tls) => {
            let met = TlsAcceptor::from(tls.current()).accept(stream).await;
            let stream = met.map_err(|error| format!("failed in its TLS handshake: {error}"))?;
            let shown = stream.get_ref().1.peer_certificates().and_then(|chain| Some(names_of(chain.first()?)));
            Ok((Either::Right(Box::new(stream)), shown))
        }
    }
}
