//! The coordinator's TLS configuration, and checks of certificates and keys without using them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, version};
use webpki::{EndEntityCert, Error, KeyUsage};

use super::credentials::check_private;
use super::reload::Reloaded;
use super::{KeyPin, SecurityError};

/// The application protocol of gRPC (RFC 7301).
const ALPN: &[u8] = b"h2";

const HTTP_ALPN: &[u8] = b"http/1.1";

/// The PEM files of a TLS server.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The coordinator's certificate, followed by the intermediate ones.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// Root certificates for the workers' certificates, if workers must present one.
    pub client_ca: Option<PathBuf>,
}

/// A TLS configuration with the current content of the files, which may be replaced.
pub struct ServerTls(Reloaded<ServerConfig>);

impl ServerTls {
    /// Reads the files.
    pub fn new(files: TlsFiles) -> Result<Self, SecurityError> {
        let watched = [&files.certificate, &files.key].into_iter().chain(&files.client_ca).cloned().collect();
        Ok(Self(Reloaded::new(watched, move || server_config(&files))?))
    }

    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        self.0.current()
    }

    /// Returns the configuration for HTTP/1.1 instead of gRPC.
    pub fn for_http(&self) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.0.current());
        config.alpn_protocols = vec![HTTP_ALPN.into()];
        Arc::new(config)
    }
}

impl TlsFiles {
    /// Returns the pin of the coordinator's key.
    pub fn pin(&self) -> Result<KeyPin, SecurityError> {
        let chain = certificates(&self.certificate)?;
        KeyPin::of_certificate(&chain[0]).map_err(|cause| SecurityError::file(&self.certificate, &cause))
    }
}

fn server_config(files: &TlsFiles) -> Result<ServerConfig, SecurityError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS13])
        .map_err(|cause| SecurityError::file(&files.certificate, &cause))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(path)?), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|cause| SecurityError::file(path, &cause))?)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|cause| pem_error(&files.key, cause))?;
    let mut config = builder
        .with_single_cert(certificates(&files.certificate)?, key)
        .map_err(|cause| SecurityError::file(&files.certificate, &cause))?;
    config.alpn_protocols = vec![ALPN.into()];
    Ok(config)
}

fn roots(path: &Path) -> Result<RootCertStore, SecurityError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|cause| SecurityError::file(path, &cause))?;
    }
    Ok(roots)
}

/// Reads the certificates of a file; at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SecurityError> {
    let pem = |cause| pem_error(path, cause);
    let all = CertificateDer::pem_file_iter(path).map_err(pem)?.collect::<Result<Vec<_>, _>>().map_err(pem)?;
    if all.is_empty() { Err(pem(pem::Error::NoItemsFound)) } else { Ok(all) }
}

fn pem_error(path: &Path, cause: pem::Error) -> SecurityError {
    match cause {
        pem::Error::Io(cause) => SecurityError::file(path, &cause),
        cause => SecurityError::file(path, &format!("{cause}: expected PEM, as in -----BEGIN …-----")),
    }
}

/// Returns the DNS names in a certificate.
pub(crate) fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let parsed = EndEntityCert::try_from(certificate);
    parsed.map_or_else(|_| Vec::new(), |parsed| parsed.valid_dns_names().map(str::to_owned).collect())
}

/// The period in which a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub from_s: u64,
    /// The last second.
    pub until_s: u64,
}

/// Returns the period in which all certificates of a PEM file are valid.
pub fn validity(path: &Path) -> Result<Validity, SecurityError> {
    let of = |certificate: &CertificateDer<'_>| {
        validity_of(certificate).map_err(|cause| SecurityError::file(path, &format!("{cause:?}")))
    };
    let all = certificates(path)?.iter().map(of).collect::<Result<Vec<_>, _>>()?;
    let common =
        |a: Validity, b: Validity| Validity { from_s: a.from_s.max(b.from_s), until_s: a.until_s.min(b.until_s) };
    Ok(all.into_iter().reduce(common).expect("at least one"))
}

/// Derives the validity from the errors with which webpki refuses a certificate too early and too late, which it checks first.
fn validity_of(certificate: &CertificateDer<'_>) -> Result<Validity, Error> {
    let certificate = EndEntityCert::try_from(certificate)?;
    let at = |seconds| {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        certificate.verify_for_usage(&[], &[], &[], time, KeyUsage::server_auth(), None, None).map(drop)
    };
    let from_s = match at(0) {
        Err(Error::CertNotValidYet { not_before, .. }) => not_before.as_secs(),
        Err(error @ (Error::BadDer | Error::BadDerTime | Error::InvalidCertValidity)) => return Err(error),
        _ => 0,
    };
    let until_s = match at(u64::MAX) {
        Err(Error::CertExpired { not_after, .. }) => not_after.as_secs(),
        _ => u64::MAX,
    };
    Ok(Validity { from_s, until_s })
}

/// Checks that the certificate and the key exist and belong together, and that only the owner can read the key.
pub fn check_key(certificate: &Path, key: &Path) -> Result<(), SecurityError> {
    let (certificate, key): (PathBuf, PathBuf) = (certificate.into(), key.into());
    drop(ServerTls::new(TlsFiles { certificate, key: key.clone(), client_ca: None })?);
    check_private(&key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    #[test]
    fn a_certificate_says_when_it_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = |from, until| {
            let mut params = CertificateParams::new(vec!["rig".to_owned()]).unwrap();
            (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(until, 1, 1));
            params.self_signed(&key).unwrap().pem()
        };
        let path = folder.path().join("chain.pem");
        std::fs::write(&path, certificate(2000, 2030) + &certificate(2010, 2040)).unwrap();
        assert_eq!(validity(&path).unwrap(), Validity { from_s: 1_262_304_000, until_s: 1_893_456_000 });
        std::fs::write(&path, "no certificate").unwrap();
        assert!(validity(&path).unwrap_err().to_string().contains("PEM"));
    }
}
