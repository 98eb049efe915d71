//! The worker's demands on a coordinator, and the credentials that it presents.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use h2::Reason;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme, version,
};
use tonic::body::Body;
use tonic::transport::{self, Certificate, Channel, ClientTlsConfig, Identity, channel};
use tower_service::Service;

use super::{KeyPin, Secret};
use crate::limits::CONNECT_TIMEOUT;

/// How a worker authenticates its coordinator and itself.
#[derive(Clone)]
pub enum Trust {
    /// Neither side is authenticated, and the connection is not encrypted.
    Open,
    /// The coordinator is authenticated by its key, and the worker by a secret.
    Pinned {
        /// The coordinator's key.
        pin: KeyPin,
        /// The secret that the worker presents.
        secret: Secret,
    },
    /// The coordinator, and optionally the worker, are authenticated by certificates.
    Certificates {
        /// The authority's certificates, in PEM.
        ca: Certificate,
        /// The worker's certificate and key, if it presents them.
        identity: Option<Identity>,
    },
}

impl fmt::Debug for Trust {
    /// Formats the kind of trust without keys and secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "Open",
            Self::Pinned { .. } => "Pinned",
            Self::Certificates { .. } => "Certificates",
        })
    }
}

impl Trust {
    pub(crate) fn scheme(&self) -> &'static str {
        if matches!(self, Self::Open) { "http" } else { "https" }
    }

    pub(crate) fn apply(&self, endpoint: transport::Endpoint) -> Result<transport::Endpoint, transport::Error> {
        let tls = ClientTlsConfig::new().timeout(CONNECT_TIMEOUT);
        match self {
            Self::Open => Ok(endpoint),
            Self::Pinned { pin, .. } => endpoint.tls_config_with_verifier(tls, PinVerifier::new(Some(*pin))),
            Self::Certificates { ca, identity } => {
                let tls = tls.ca_certificate(ca.clone());
                endpoint.tls_config(identity.iter().cloned().fold(tls, ClientTlsConfig::identity))
            }
        }
    }

    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        let Self::Pinned { secret, .. } = self else { return None };
        let mut value = HeaderValue::try_from(format!("Bearer {secret}")).expect("letters and digits");
        // Marking the value as sensitive keeps it out of logs and of HTTP/2's compression table.
        value.set_sensitive(true);
        Some(value)
    }
}

/// A channel whose requests carry a secret.
#[derive(Clone, Debug)]
pub struct AuthorizedChannel {
    pub(crate) channel: Channel,
    pub(crate) authorization: Option<HeaderValue>,
}

impl Service<Request<Body>> for AuthorizedChannel {
    type Response = Response<Body>;
    type Error = transport::Error;
    type Future = channel::ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), transport::Error>> {
        self.channel.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        self.channel.call(request)
    }
}

/// Returns why one side does not trust the other, if that caused the error: then, and only then, trying again does not help.
pub fn why_refused(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return in_words(error);
    }
    if error.downcast_ref::<h2::Error>().and_then(h2::Error::reason) == Some(Reason::INADEQUATE_SECURITY) {
        return Some("it speaks TLS only: use --join with the token that `ata token show` prints there".into());
    }
    // The error within an I/O error is not its source.
    if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        // HTTP/2 keeps only the text of an error.
        return why_refused(inner).or_else(|| certificate_refused(inner.to_string().strip_prefix(ALERT)?));
    }
    why_refused(error.source()?)
}

/// The prefix of rustls's message about an alert from the other side.
const ALERT: &str = "received fatal alert: ";

/// The alerts by which a server refuses a certificate (RFC 8446, section 6.2), as rustls names them. The last means another authority.
const CERTIFICATE_ALERTS: [&str; 9] = [
    "BadCertificate",
    "UnsupportedCertificate",
    "CertificateRevoked",
    "CertificateExpired",
    "CertificateUnknown",
    "UnknownCA",
    "AccessDenied",
    "CertificateRequired",
    "DecryptError",
];

fn certificate_refused(alert: &str) -> Option<String> {
    let in_words =
        || format!("it refuses this worker's certificate, or the lack of one (TLS alert {alert}): see --tls-cert");
    CERTIFICATE_ALERTS.contains(&alert).then(in_words)
}

fn in_words(error: &rustls::Error) -> Option<String> {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) => Some(other.0.to_string()),
        rustls::Error::InvalidCertificate(cause) => Some(format!("its certificate is not valid: {cause}")),
        // A coordinator without TLS says so by this alert.
        rustls::Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            Some("it does not speak TLS: if it was started with --insecure, use --coordinator http://HOST:PORT, and no --join".into())
        }
        rustls::Error::AlertReceived(alert) => certificate_refused(&format!("{alert:?}")),
        _ => None,
    }
}

/// The coordinator has another key than the join token names.
#[derive(Debug, thiserror::Error)]
#[error(
    "it holds another key than the join token names. Either it was set up anew, and `ata token show` there prints the new \
     token, or someone else answers at its address"
)]
struct OtherKey;

/// Returns the TLS configuration for HTTP/1.1 with the peer that holds this key or, without a pin, any peer, which must not be trusted.
pub fn http_client(pin: Option<KeyPin>) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .expect("ring has TLS 1.3");
    let builder = builder.dangerous().with_custom_certificate_verifier(PinVerifier::new(pin));
    Arc::new(builder.with_no_client_auth())
}

/// Accepts the certificate of one key, or of any key, if the peer proves that it holds the key.
#[derive(Debug)]
struct PinVerifier {
    pin: Option<KeyPin>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PinVerifier {
    fn new(pin: Option<KeyPin>) -> Arc<Self> {
        Arc::new(Self { pin, algorithms: ring::default_provider().signature_verification_algorithms })
    }
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = KeyPin::of_certificate(end_entity)?;
        if self.pin.is_none_or(|pin| pin == found) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::Other(OtherError(Arc::new(OtherKey))).into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
