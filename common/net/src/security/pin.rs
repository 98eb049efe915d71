//! Trust in a peer that holds a certain key.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme, version};

use super::KeyPin;

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
