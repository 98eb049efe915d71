//! Everything a worker needs to join, in one string.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE32_NOPAD_NOCASE;
use http::uri::Authority;
use rand::TryRng;
use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::SecurityError;

/// The size of a secret, in bytes. Guessing 128 bits is hopeless at any rate.
const SECRET_BYTES: usize = 16;

/// A random secret that admits a worker, written as 26 letters and digits (base32).
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; SECRET_BYTES]);

impl Secret {
    /// Generates a new secret.
    pub fn random() -> Result<Self, SecurityError> {
        let mut secret = [0; SECRET_BYTES];
        rand::rngs::SysRng.try_fill_bytes(&mut secret).map_err(|_| SecurityError::NoRandomness)?;
        Ok(Self(secret))
    }

    /// Compares two secrets, in a time that does not reveal where they differ.
    pub fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE32_NOPAD_NOCASE.encode(&self.0).to_lowercase())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl FromStr for Secret {
    type Err = SecurityError;

    fn from_str(text: &str) -> Result<Self, SecurityError> {
        decoded(text).map(Self).ok_or(SecurityError::Secret)
    }
}

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
        decoded(text).map(Self).ok_or(SecurityError::Pin)
    }
}

fn decoded<const N: usize>(base32: &str) -> Option<[u8; N]> {
    BASE32_NOPAD_NOCASE.decode(base32.as_bytes()).ok()?.try_into().ok()
}

/// The prefix of a token, which names its kind and version.
const PREFIX: &str = "ata1-";

/// The address of a coordinator, the pin of its key, and the secret for its workers: `ata1-HOST:PORT-KEY-SECRET`, with
/// key and secret in base32. k3s and Docker Swarm use such tokens, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinToken {
    /// The host and port of the coordinator.
    pub address: Authority,
    /// The pin of the coordinator's key.
    pub pin: KeyPin,
    /// The secret for workers.
    pub secret: Secret,
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, pin, secret } = self;
        write!(f, "{PREFIX}{address}-{pin}-{secret}")
    }
}

impl FromStr for JoinToken {
    type Err = SecurityError;

    fn from_str(text: &str) -> Result<Self, SecurityError> {
        let rest = text.trim().strip_prefix(PREFIX).ok_or(SecurityError::Token)?;
        // Host names contain hyphens, too.
        let mut parts = rest.rsplitn(3, '-');
        let (Some(secret), Some(pin), Some(address)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(SecurityError::Token);
        };
        Ok(Self { address: address_of(address)?, pin: pin.parse()?, secret: secret.parse()? })
    }
}

/// Parses `HOST:PORT`.
pub(crate) fn address_of(text: &str) -> Result<Authority, SecurityError> {
    let bad = || SecurityError::Address(text.into());
    let address: Authority = text.parse().map_err(|_| bad())?;
    let is_whole = !address.host().is_empty() && address.port_u16().is_some_and(|port| port > 0);
    if is_whole && !text.contains('@') { Ok(address) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::generate_simple_self_signed;

    fn token(address: &str) -> JoinToken {
        let made = generate_simple_self_signed(["ata".to_owned()]).unwrap();
        let pin = KeyPin::of_certificate(made.cert.der()).unwrap();
        JoinToken { address: address.parse().unwrap(), pin, secret: Secret::random().unwrap() }
    }

    #[test]
    fn a_token_is_one_string() {
        for address in ["head:7070", "gpu-rack-1.example.org:1", "10.0.0.7:7070", "[fe80::1]:7070"] {
            let token = token(address);
            let text = token.to_string();
            assert!(text.starts_with("ata1-") && text.len() == 5 + address.len() + 1 + 52 + 1 + 26, "{text}");
            assert_eq!(format!(" {text}\n").parse::<JoinToken>().unwrap(), token);
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_secret() {
        let token = token("head:7070");
        let (text, secret, pin) = (token.to_string(), token.secret.to_string(), token.pin.to_string());
        for (bad, said) in [
            (String::new(), "ata1-HOST:PORT"),
            (text.replace("ata1", "ata9"), "ata1-HOST:PORT"),
            (text[..text.len() - 1].into(), "secret"),
            (text.replace(&pin, &pin[1..]), "key"),
            (text.replace("head:7070", "head"), "'head'"),
            (text.replace("head:7070", "a@head:7"), "'a@head:7'"),
        ] {
            let error = bad.parse::<JoinToken>().unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains(&secret), "{bad}: {error}");
        }
    }

    #[test]
    fn a_secret_is_written_and_read_and_never_logged() {
        let secret = Secret::random().unwrap();
        let text = secret.to_string();
        assert!(secret.is(&text.parse().unwrap()) && secret.is(&text.to_uppercase().parse().unwrap()));
        assert!(!secret.is(&Secret::random().unwrap()) && !format!("{secret:?}").contains(&text));
        for bad in ["", "a", &text[1..], &format!("{text}aa"), &text.replace(&text[..1], "1")] {
            assert!(bad.parse::<Secret>().is_err(), "{bad}");
        }
    }
}
