//! The digest of a coordinator's key.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use data_encoding::BASE32_NOPAD_NOCASE;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme, version};
use sha2::{Digest, Sha256};

use super::SecurityError;

/// The SHA-256 of a public key in the form of certificates (SubjectPublicKeyInfo, RFC 5280, section 4.1.2.7), as in RFC
/// 7469. A new certificate for the same key has the same pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPin([u8; 32]);

impl KeyPin {
    /// Returns the pin of a certificate's key.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Result<Self, rustls::Error> {
        let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        Ok(Self(Sha256::digest(&key).into()))
    }
}

impl fmt::Display for KeyPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE32_NOPAD_NOCASE.encode(&self.0).to_lowercase())
    }
}

impl FromStr for KeyPin {
    type Err = SecurityError;

    fn from_str(text: &str) -> Result<Self, SecurityError> {
        let decoded = BASE32_NOPAD_NOCASE.decode(text.as_bytes()).ok();
        let bytes = decoded.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(SecurityError::Pin)
    }
}

/// The coordinator has another key than the join token names.
#[derive(Debug, thiserror::Error)]
#[error(
    "it holds another key than the join token names. Either it was set up anew, and `ata token show` there prints the new \
     token, or someone else answers at its address"
)]
struct OtherKey;

/// Returns the TLS configuration for HTTP/1.1 with the peer that holds this key. Without a pin it accepts any peer,
/// which must not be trusted then.
pub fn http_client(pin: Option<KeyPin>) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .expect("ring has TLS 1.3");
    let builder = builder.dangerous().with_custom_certificate_verifier(PinVerifier::new(pin));
    Arc::new(builder.with_no_client_auth())
}

/// Accepts the certificate of one key, or of any key, if the peer proves that it holds the key.
#[derive(Debug)]
pub(crate) struct PinVerifier {
    pin: Option<KeyPin>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PinVerifier {
    pub(crate) fn new(pin: Option<KeyPin>) -> Arc<Self> {
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
