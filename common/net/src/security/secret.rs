//! The secret that admits a worker.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE32_NOPAD_NOCASE;
use rand::TryRng;
use subtle::ConstantTimeEq;

use super::SecurityError;

/// The size of a secret, in bytes. Guessing 128 bits is hopeless at any rate.
const BYTES: usize = 16;

/// A random secret, written as 26 letters and digits (base32).
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; BYTES]);

impl Secret {
    /// Generates a new secret.
    pub fn random() -> Result<Self, SecurityError> {
        let mut secret = [0; BYTES];
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
        let decoded = BASE32_NOPAD_NOCASE.decode(text.as_bytes()).ok();
        let bytes = decoded.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(SecurityError::Secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_written_and_read_and_never_logged() {
        let secret = Secret::random().unwrap();
        let text = secret.to_string();
        assert_eq!(text.len(), 26);
        assert!(secret.is(&text.parse().unwrap()) && secret.is(&text.to_uppercase().parse().unwrap()));
        assert!(!secret.is(&Secret::random().unwrap()));
        assert!(!format!("{secret:?}").contains(&text));
        for bad in ["", "a", &text[1..], &format!("{text}aa"), &text.replace(&text[..1], "1")] {
            assert!(bad.parse::<Secret>().is_err(), "{bad}");
        }
    }
}
