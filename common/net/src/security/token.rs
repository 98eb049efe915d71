//! Everything a worker needs to join, in one string.

use std::fmt;
use std::str::FromStr;

use http::uri::Authority;

use super::{KeyPin, Secret, SecurityError};

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
    use proptest::prelude::*;
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

    proptest! {
        #[test]
        fn any_text_is_borne(text in ".{0,120}") {
            drop(text.parse::<JoinToken>());
            drop(format!("ata1-{text}").parse::<JoinToken>());
        }
    }
}
