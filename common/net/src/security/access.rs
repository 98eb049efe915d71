//! The coordinator's demands on its peers, and the check of every request.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use super::credentials::read_secret;
use super::reload::Reloaded;
use super::{Credentials, Role, Secret, SecurityError, ServerTls};
use crate::peer::Peer;

/// The call that begins a session.
const SESSION: &str = "/ata.v1.Coordinator/Session";

/// The only call that belongs to no session.
const PROBE: &str = "/ata.v1.Coordinator/Probe";

/// The delay of the answer to a request without a valid secret. It does not matter to a user who made a mistake, and
/// slows down a peer that tries secrets, since it has few streams.
const REFUSAL_DELAY: Duration = Duration::from_secs(1);

/// The number of earlier secrets that are remembered. Rotating more often than this within a run ends the oldest sessions.
const EARLIER_SECRETS: usize = 16;

/// The coordinator's demands on its peers.
pub enum Security {
    /// The coordinator demands nothing. Connections are not encrypted, which suits loopback and trusted networks.
    Open,
    /// The coordinator demands a secret, over TLS.
    Secret(ServerTls, Secrets),
    /// The coordinator demands a certificate of the worker, over TLS.
    Certificates(ServerTls),
}

impl Security {
    pub(crate) fn tls(&self) -> Option<&ServerTls> {
        match self {
            Self::Open => None,
            Self::Secret(tls, _) | Self::Certificates(tls) => Some(tls),
        }
    }

    /// Checks whether a request is allowed; an error says why not. Certificates were checked in the TLS handshake.
    fn check(&self, request: &Request<Body>) -> Result<(), &'static str> {
        let Self::Secret(_, secrets) = self else { return Ok(()) };
        let presented = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let presented = presented
            .and_then(|value| value.strip_prefix("Bearer "))
            .ok_or("no join token was presented: use --join")?;
        secrets.check(presented, request.uri().path())
    }
}

/// The valid secrets, which are read again when their files are replaced.
pub struct Secrets {
    current: Reloaded<Current>,
    /// Earlier secrets, under which open sessions may have begun.
    earlier: Mutex<Vec<Secret>>,
}

struct Current {
    worker: Secret,
    status: Secret,
}

impl Secrets {
    /// Reads the secrets from a folder.
    pub fn of(credentials: &Credentials) -> Result<Self, SecurityError> {
        let (worker, status) = (credentials.secret_file(Role::Worker), credentials.secret_file(Role::Status));
        let files = vec![worker.clone(), status.clone()];
        let read = move || Ok(Current { worker: read_secret(&worker)?, status: read_secret(&status)? });
        Ok(Self { current: Reloaded::new(files, read)?, earlier: Mutex::default() })
    }

    /// Returns `true` if this secret permits reading the state of the run.
    pub fn lets_read(&self, presented: &str) -> bool {
        presented.parse().is_ok_and(|presented| self.current.current().status.is(&presented))
    }

    /// Checks a secret. A session begins with the current secret, and goes on with the one that it began with.
    fn check(&self, presented: &str, call: &str) -> Result<(), &'static str> {
        const INVALID: &str =
            "the join token is not valid (any more): `ata token show` at the coordinator prints the current one";
        let presented: Secret = presented.parse().map_err(|_| INVALID)?;
        let current = self.current.current();
        let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        if current.worker.is(&presented) {
            if call == SESSION && !earlier.contains(&presented) {
                earlier.push(presented);
                let surplus = earlier.len().saturating_sub(EARLIER_SECRETS);
                earlier.drain(..surplus);
            }
            return Ok(());
        }
        if current.status.is(&presented) {
            return Err("that secret is for reading the status only: workers have another one");
        }
        let goes_on = !matches!(call, SESSION | PROBE);
        if goes_on && earlier.iter().any(|secret| secret.is(&presented)) { Ok(()) } else { Err(INVALID) }
    }
}

/// A service that passes allowed requests to an inner service, and refuses the others.
#[derive(Clone)]
pub(crate) struct Guard<S> {
    pub(crate) security: Arc<Security>,
    pub(crate) inner: S,
}

type GuardAnswer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<S> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = GuardAnswer;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> GuardAnswer {
        let Err(reason) = self.security.check(&request) else { return Box::pin(self.inner.call(request)) };
        Peer::of(request.extensions()).warn(format_args!("was refused: {reason}"));
        // The body of the request is dropped unread.
        drop(request);
        Box::pin(async move {
            tokio::time::sleep(REFUSAL_DELAY).await;
            Ok(Status::permission_denied(reason).into_http())
        })
    }
}
