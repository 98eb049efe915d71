//! Checks certificates and keys without using them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage};

use super::{SecurityError, ServerTls, TlsFiles, server_tls::certificates};

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
    super::credentials::check_private(&key)
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
