//! The worker's side of a connection.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use tonic::Status;
use tonic::transport::{self, Channel, Uri};

use crate::bulk;
use crate::limits::{
    CONNECT_TIMEOUT, CONNECTION_WINDOW_BYTES, COORDINATOR_KEEPALIVE_TIMEOUT, FRAME_BYTES, KEEPALIVE_INTERVAL,
    MESSAGE_BYTES, STREAM_WINDOW_BYTES,
};
use crate::message::{GradientHeader, Receipt, SessionToken};
use crate::proto::coordinator_client::CoordinatorClient;
use crate::proto::transfers_client::TransfersClient;
use crate::transfer::{ParameterStream, Pool, ReceiveError, f32_bytes};

/// A connection to the coordinator; clones share it.
#[derive(Clone, Debug)]
pub struct Connection(Channel);

impl Connection {
    /// Its service for everything but tensors.
    pub fn coordinator(&self) -> CoordinatorClient<Channel> {
        CoordinatorClient::new(self.0.clone()).max_decoding_message_size(MESSAGE_BYTES)
    }

    /// Its service for tensors, through generated code: with more copies than the methods below, for whoever wants to send
    /// parts of one's own making.
    pub fn transfers(&self) -> TransfersClient<Channel> {
        TransfersClient::new(self.0.clone()).max_decoding_message_size(MESSAGE_BYTES)
    }

    /// Opens the stream of a session's parameters: sets of `expected` values each, in vectors from `pool`.
    pub async fn parameters(
        &self,
        session: SessionToken,
        expected: u64,
        pool: Pool,
    ) -> Result<ParameterStream, Status> {
        bulk::parameters(self.0.clone(), session, expected, pool).await
    }

    /// Sends a gradient.
    pub async fn submit_gradient(&self, header: GradientHeader, values: Vec<f32>) -> Result<Receipt, ReceiveError> {
        bulk::submit_gradient(self.0.clone(), header, f32_bytes(values)).await
    }
}

/// The coordinator's address, such as `http://head:7070` or `head:7070`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Box<Uri>);

impl FromStr for Endpoint {
    type Err = ConnectError;

    fn from_str(text: &str) -> Result<Self, ConnectError> {
        let bad = || ConnectError::Address(text.into());
        let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = full.parse().map_err(|_| bad())?;
        let plain = uri.scheme_str() == Some("http") && matches!(uri.path(), "" | "/") && uri.query().is_none();
        let named = uri.host().is_some_and(|host| !host.is_empty()) && uri.port_u16().is_some_and(|port| port > 0);
        if plain && named { Ok(Self(Box::new(uri))) } else { Err(bad()) }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0.authority().map_or("", |authority| authority.as_str()))
    }
}

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The text is not an address.
    #[error("'{0}' is not a coordinator's address: expected http://HOST:PORT, as in http://head:7070")]
    Address(String),
    /// The coordinator does not answer.
    #[error("cannot reach the coordinator at {endpoint}: {cause}")]
    Unreachable {
        /// The address.
        endpoint: Endpoint,
        /// The innermost error.
        cause: String,
    },
}

/// Connects to the coordinator, without retrying.
pub async fn connect(endpoint: &Endpoint) -> Result<Connection, ConnectError> {
    let channel = transport::Endpoint::from(Uri::clone(&endpoint.0))
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(COORDINATOR_KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .connect()
        .await
        .map_err(|error| ConnectError::Unreachable { endpoint: endpoint.clone(), cause: innermost(&error) })?;
    Ok(Connection(channel))
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
