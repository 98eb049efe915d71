//! The address that a worker connects to.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use http::uri::Authority;
use tonic::transport::{self, Uri};

use crate::congestion;
use crate::limits::{CONNECT_TIMEOUT, CONNECTION_WINDOWS, FRAME_BYTES, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT};
use crate::obstacle::Obstacle;
use crate::security::{AuthorizedChannel, JoinToken, SecurityError, Trust, address_of, why_refused};
use crate::warnings::Protocol;

/// The address of a coordinator, and how a worker authenticates it: a [`JoinToken`], or `[http://]HOST:PORT` without encryption.
#[derive(Clone, Debug)]
pub struct Endpoint {
    address: Authority,
    trust: Arc<Trust>,
}

impl Endpoint {
    /// Creates the endpoint of a coordinator at `https://HOST:PORT` or `HOST:PORT`.
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

    /// Returns the host and the port; an IPv6 address has no brackets.
    pub fn host_and_port(&self) -> (&str, u16) {
        let host = self.address.host();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        (bare, self.address.port_u16().expect("an address has a port"))
    }

    /// Returns how the worker authenticates the coordinator.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Connects to the coordinator, without retrying.
    pub async fn connect(&self) -> Result<AuthorizedChannel, ConnectError> {
        let uri: Uri = self.to_string().parse().map_err(|_| ConnectError::Address(self.to_string()))?;
        let [window_bytes, ..] = CONNECTION_WINDOWS;
        let channel = transport::Endpoint::from(uri)
            .connect_timeout(CONNECT_TIMEOUT)
            .initial_stream_window_size(window_bytes / 2)
            .initial_connection_window_size(window_bytes)
            .max_frame_size(FRAME_BYTES)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        let certificates = |error| ConnectError::Certificates(self.clone(), innermost(&error));
        let channel = self.trust.apply(channel).map_err(certificates)?;
        let error = match congestion::connect(channel).await {
            Ok(channel) => return Ok(AuthorizedChannel { channel, authorization: self.trust.authorization() }),
            Err(error) => error,
        };
        if let Some(reason) = why_refused(&error) {
            return Err(ConnectError::Distrusted(self.clone(), reason));
        }
        let unknown = || Obstacle { found: innermost(&error), fix: "see the coordinator's log".into() };
        Err(ConnectError::Unreachable(self.clone(), self.obstacle().await.unwrap_or_else(unknown)))
    }

    /// Looks for what keeps this machine from the coordinator; `None` if a server of the right kind answers.
    pub async fn obstacle(&self) -> Option<Obstacle> {
        Obstacle::find(self.host_and_port(), Protocol::Grpc, !matches!(*self.trust, Trust::Open)).await
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

/// An error while connecting.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The text is not an address.
    #[error(
        "'{0}' is not a coordinator's address: expected http://HOST:PORT, as in http://head:7070, or https:// with --tls-ca; \
         a join token goes with --join"
    )]
    Address(String),
    /// The certificate or the key is not valid.
    #[error("the certificates for {0} cannot be used: {1}")]
    Certificates(Endpoint, String),
    /// The coordinator does not answer.
    #[error("cannot reach the coordinator at {0}: {1}")]
    Unreachable(Endpoint, Obstacle),
    /// The peer is not trusted. Nothing was sent to it.
    #[error("the coordinator at {0} is not trusted: {1}")]
    Distrusted(Endpoint, String),
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
        for text in ["", "http://head", "https://head:1", "head:0", "head:99999", "http://:1", "http://h:1/x", "a b:1"]
        {
            assert!(matches!(text.parse::<Endpoint>(), Err(ConnectError::Address(_))), "{text}");
        }
    }
}
