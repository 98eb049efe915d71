//! A client of a coordinator's HTTP server, for `ata status` and other commands.

use std::str::FromStr;
use std::time::Duration;

use ata_net::{JoinToken, KeyPin, Obstacle, Protocol, Secret, http_client};
use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::uri::Authority;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The maximum size of an answer, in bytes: a run of thousands of workers takes less than a tenth of it.
const MOST_BYTES: usize = 64 << 20;

/// The time limit for an answer: explanations of old iterations take some time.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// A client of one server, with its address and the credentials for it.
#[derive(Clone, Debug)]
pub struct Client {
    address: Authority,
    is_encrypted: bool,
    pin: Option<KeyPin>,
    secret: Option<Secret>,
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The text is not an address.
    #[error("'{0}': expected http://HOST:PORT, https://HOST:PORT or a status token (ata1-…)")]
    Address(String),
    /// There is no connection, or not to the right server, for a reason.
    #[error("cannot reach {0}: {1}")]
    Unreachable(Authority, String),
    /// The secret is missing or wrong.
    #[error("{0} wants the status secret: --token-file takes the file status-token of its credentials folder")]
    Refused(Authority),
    /// The address is the one that workers connect to.
    #[error(
        "{0} is where workers connect, and this is the token for them; expected the status token: the file status-token in the \
         coordinator's credentials folder, with --token-file"
    )]
    ForWorkers(Authority),
    /// The server is starting, or too busy, by its own answer.
    #[error("{0} does not serve: {1}")]
    Unavailable(Authority, String),
    /// The server does not have the requested path.
    #[error("{0}")]
    NotFound(String),
}

impl FromStr for Client {
    type Err = ClientError;

    fn from_str(text: &str) -> Result<Self, ClientError> {
        if let Ok(JoinToken { address, pin, secret }) = text.parse() {
            return Ok(Self { address, is_encrypted: true, pin: Some(pin), secret: Some(secret) });
        }
        let bad = || ClientError::Address(text.into());
        let uri: Uri = text.parse().map_err(|_| bad())?;
        let (default, is_encrypted) = match uri.scheme_str() {
            Some("http") => (80, false),
            Some("https") => (443, true),
            _ => return Err(bad()),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(bad)?;
        let address = format!("{host}:{}", uri.port_u16().unwrap_or(default)).parse().map_err(|_| bad())?;
        Ok(Self { address, is_encrypted, pin: None, secret: None })
    }
}

impl Client {
    /// Returns a client of the same server at another address, for example through a tunnel.
    #[must_use]
    pub fn at(self, other: Self) -> Self {
        Self { address: other.address, ..self }
    }

    /// Gets a path, such as `/api/state`.
    pub async fn get(&self, path: &str) -> Result<Bytes, ClientError> {
        match tokio::time::timeout(ANSWER_TIMEOUT, self.ask(path)).await {
            Ok(Ok((StatusCode::OK, body))) => Ok(body),
            Ok(Ok((StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _))) => {
                Err(ClientError::Refused(self.address.clone()))
            }
            Ok(Ok((status, body))) => {
                let text = String::from_utf8_lossy(&body).trim().to_owned();
                if text.starts_with('<') {
                    return Err(self.unreachable(&format!(
                        "it is another web server, which answers {status}: give the address that the coordinator prints as its dashboard"
                    )));
                }
                let cause = if text.is_empty() { status.to_string() } else { text };
                // A dashboard with TLS says so to those who speak without.
                if status == StatusCode::BAD_REQUEST && !self.is_encrypted {
                    return Err(self.explained(cause).await);
                }
                if status.is_server_error() {
                    return Err(ClientError::Unavailable(self.address.clone(), cause));
                }
                Err(ClientError::NotFound(cause))
            }
            Ok(Err(ClientError::Unreachable(_, cause))) => Err(self.explained(cause).await),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(self.explained("no answer in time".into()).await),
        }
    }

    /// Returns the error with what keeps this machine from the server, if anything does.
    async fn explained(&self, cause: String) -> ClientError {
        let host = self.host();
        let port = self.address.port_u16().expect("an address has a port");
        let found = Obstacle::find((&host, port), Protocol::Http, self.is_encrypted).await;
        self.unreachable(&found.map_or(cause, |obstacle| obstacle.to_string()))
    }

    /// Returns the host; an IPv6 address has no brackets.
    fn host(&self) -> String {
        self.address.host().trim_start_matches('[').trim_end_matches(']').to_owned()
    }

    fn unreachable(&self, cause: &dyn ToString) -> ClientError {
        ClientError::Unreachable(self.address.clone(), cause.to_string())
    }

    fn no_answer(&self, error: &hyper::Error) -> ClientError {
        // The workers' port only serves HTTP/2: either its answer cannot be parsed, or the connection ends before the request is sent.
        if self.secret.is_some() && (error.is_parse() || error.is_canceled()) {
            return ClientError::ForWorkers(self.address.clone());
        }
        self.unreachable(error)
    }

    async fn ask(&self, path: &str) -> Result<(StatusCode, Bytes), ClientError> {
        let stream = TcpStream::connect(self.address.as_str()).await.map_err(|error| self.unreachable(&error))?;
        if !self.is_encrypted {
            return self.speak(stream, path).await;
        }
        let name = ServerName::try_from(self.host()).map_err(|error| self.unreachable(&error))?;
        let stream = TlsConnector::from(http_client(self.pin)).connect(name, stream).await;
        let stream = stream.map_err(|error| self.unreachable(&error))?;
        self.speak(stream, path).await
    }

    async fn speak(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        path: &str,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.unreachable(&error))?;
        let driver = tokio::spawn(connection);
        let mut request = Request::get(path).header(HOST, self.address.as_str());
        if let Some(secret) = &self.secret {
            request = request.header(AUTHORIZATION, format!("Bearer {secret}"));
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| self.unreachable(&error))?;
        let answer = match sender.send_request(request).await {
            Ok(answer) => answer,
            Err(error) => {
                // The error that ended the connection is more specific than the fact that it ended.
                let of_connection = if error.is_canceled() { driver.await.ok().and_then(Result::err) } else { None };
                return Err(self.no_answer(&of_connection.unwrap_or(error)));
            }
        };
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
        driver.abort();
        Ok((status, body.map_err(|error| self.unreachable(&error))?.to_bytes()))
    }
}
