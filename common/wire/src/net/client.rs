//! The worker's side of a connection.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ata_types::Iteration;
use bytes::Bytes;
use http::uri::Authority;
use tokio_stream::Stream;
use tonic::Status;
use tonic::transport::{self, Uri};

use crate::bulk;
use crate::limits::{
    CONNECT_TIMEOUT, CONNECTION_WINDOWS, FRAME_BYTES, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, MESSAGE_BYTES,
};
use crate::message::{GradientHeader, Receipt, SessionToken};
use crate::proto::coordinator_client::CoordinatorClient;
use crate::proto::transfers_client::TransfersClient;
use crate::security::{AuthorizedChannel, JoinToken, SecurityError, Trust, address_of, why_refused};
use crate::transfer::{ParameterStream, ReceiveError};

/// A connection to the coordinator, or to another worker; clones share it.
#[derive(Clone, Debug)]
pub struct Connection(AuthorizedChannel);

impl Connection {
    /// Its service for everything but vectors.
    pub fn coordinator(&self) -> CoordinatorClient<AuthorizedChannel> {
        CoordinatorClient::new(self.0.clone()).max_decoding_message_size(MESSAGE_BYTES)
    }

    /// Its service for vectors, through generated code, for callers that make the parts themselves. It copies more than the
    /// methods below.
    pub fn transfers(&self) -> TransfersClient<AuthorizedChannel> {
        TransfersClient::new(self.0.clone()).max_decoding_message_size(MESSAGE_BYTES)
    }

    /// Opens the stream of a session's parameters.
    pub async fn parameters(&self, session: SessionToken) -> Result<ParameterStream, Status> {
        bulk::parameters(self.0.clone(), session, None).await
    }

    /// Opens the stream of the parameters after a step that is evaluated: one set.
    pub async fn evaluated_parameters(
        &self,
        session: SessionToken,
        step: Iteration,
    ) -> Result<ParameterStream, Status> {
        bulk::parameters(self.0.clone(), session, Some(step)).await
    }

    /// Sends a sum of gradients. Each chunk, of 1 to [`MAX_CHUNK_BYTES`](crate::limits::MAX_CHUNK_BYTES), is asked for only when the
    /// connection has room for it.
    pub async fn submit_gradient(
        &self,
        header: GradientHeader,
        chunks: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Receipt, ReceiveError> {
        bulk::submit_gradient(self.0.clone(), header, chunks).await
    }
}

/// The address of a coordinator, and how to authenticate it: `http://head:7070` or `head:7070` without encryption, or a
/// [`JoinToken`].
#[derive(Clone, Debug)]
pub struct Endpoint {
    address: Authority,
    trust: Arc<Trust>,
}

impl Endpoint {
    /// The coordinator at `https://HOST:PORT` or `HOST:PORT`.
    pub fn trusting(address: &str, trust: Trust) -> Result<Self, ConnectError> {
        let bad = || ConnectError::Address(address.into());
        let bare = match address.split_once("://") {
            Some((scheme, bare)) if scheme == trust.scheme() => bare,
            Some(_) => return Err(bad()),
            None => address,
        };
        let address = address_of(bare.strip_suffix('/').unwrap_or(bare)).map_err(|_: SecurityError| bad())?;
        Ok(Self { address, trust: Arc::new(trust) })
    }

    /// Host and port; an IPv6 address without brackets.
    pub fn host_and_port(&self) -> (&str, u16) {
        let host = self.address.host();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        (bare, self.address.port_u16().expect("an address has a port"))
    }

    /// How the coordinator is authenticated.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }
}

impl FromStr for Endpoint {
    type Err = ConnectError;

    fn from_str(text: &str) -> Result<Self, ConnectError> {
        Self::trusting(text, Trust::Open)
    }
}

impl From<JoinToken> for Endpoint {
    fn from(token: JoinToken) -> Self {
        let JoinToken { address, pin, secret } = token;
        Self { address, trust: Arc::new(Trust::Pinned { pin, secret }) }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.trust.scheme(), self.address)
    }
}

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The text is not an address.
    #[error(
        "'{0}' is not a coordinator's address: expected http://HOST:PORT, as in http://head:7070, or https:// with --tls-ca; \
         a join token goes with --join"
    )]
    Address(String),
    /// The certificate or the key is not valid.
    #[error("the certificates for {endpoint} cannot be used: {cause}")]
    Certificates {
        /// The address.
        endpoint: Endpoint,
        /// What is wrong with them.
        cause: String,
    },
    /// The coordinator does not answer.
    #[error("cannot reach the coordinator at {endpoint}: {cause}")]
    Unreachable {
        /// The address.
        endpoint: Endpoint,
        /// The innermost error.
        cause: String,
    },
    /// The peer is not trusted. Nothing was sent to it.
    #[error("the coordinator at {endpoint} is not trusted: {reason}")]
    Distrusted {
        /// The address.
        endpoint: Endpoint,
        /// Why.
        reason: String,
    },
}

/// Connects to the coordinator, without retrying.
pub async fn connect(endpoint: &Endpoint) -> Result<Connection, ConnectError> {
    let of = || endpoint.clone();
    let uri: Uri = endpoint.to_string().parse().map_err(|_| ConnectError::Address(endpoint.to_string()))?;
    let [window_bytes, ..] = CONNECTION_WINDOWS;
    let channel = transport::Endpoint::from(uri)
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(window_bytes / 2)
        .initial_connection_window_size(window_bytes)
        .max_frame_size(FRAME_BYTES)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    let certificates = |error| ConnectError::Certificates { endpoint: of(), cause: innermost(&error) };
    let channel = endpoint.trust.apply(channel).map_err(certificates)?.connect().await;
    let channel = channel.map_err(|error| match why_refused(&error) {
        Some(reason) => ConnectError::Distrusted { endpoint: of(), reason },
        None => ConnectError::Unreachable { endpoint: of(), cause: innermost(&error) },
    })?;
    Ok(Connection(AuthorizedChannel::new(channel, endpoint.trust.authorization())))
}

fn innermost(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => innermost(source),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, shown) in [
            ("http://head:7070", "http://head:7070"),
            ("head:7070", "http://head:7070"),
            ("http://127.0.0.1:1/", "http://127.0.0.1:1"),
            ("[::1]:7070", "http://[::1]:7070"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), shown);
        }
        for text in [
            "",
            "head",
            "http://head",
            "https://head:1",
            "http://head:0",
            "http://head:99999",
            "http://:1",
            "http://h:1/x",
            "a b:1",
        ] {
            assert!(matches!(text.parse::<Endpoint>(), Err(ConnectError::Address(_))), "{text}");
        }
    }
}
