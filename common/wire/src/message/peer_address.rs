//! The address at which other workers reach a worker.

use std::fmt;
use std::net::IpAddr;

use super::{WireError, invalid};
use crate::limits::MAX_TEXT_BYTES;
use ata_net::{Endpoint, JoinToken};

/// The address at which other workers reach a worker.
#[derive(Clone, PartialEq, Eq)]
pub enum PeerAddress {
    /// A `HOST:PORT` without encryption.
    Open(String),
    /// An address with the worker's own key and secret.
    Pinned(JoinToken),
}

impl PeerAddress {
    /// Replaces the host by the one that the coordinator sees, unless the named host is in `allowed`.
    #[must_use]
    pub fn seen_at(self, host: IpAddr, allowed: &[String]) -> Self {
        let place = |address: &str| match address.rsplit_once(':') {
            Some((named, port)) if !allowed.iter().any(|allowed| allowed == named.trim_matches(['[', ']'])) => {
                match host.to_canonical() {
                    IpAddr::V4(host) => format!("{host}:{port}"),
                    IpAddr::V6(host) => format!("[{host}]:{port}"),
                }
            }
            _ => address.to_owned(),
        };
        match self {
            Self::Open(address) => Self::Open(place(&address)),
            Self::Pinned(token) => {
                let address = place(token.address.as_str()).parse().unwrap_or(token.address);
                Self::Pinned(JoinToken { address, ..token })
            }
        }
    }

    /// Returns `true` if the address leads each machine to itself.
    pub fn is_loopback(&self) -> bool {
        let endpoint = self.endpoint();
        let (host, _) = endpoint.host_and_port();
        host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|host| host.is_loopback())
    }

    /// Returns the endpoint to connect to.
    pub fn endpoint(&self) -> Endpoint {
        match self {
            Self::Open(address) => address.parse().expect("it was checked"),
            Self::Pinned(token) => token.clone().into(),
        }
    }

    pub(super) fn to_wire(&self) -> String {
        match self {
            Self::Open(address) => format!("http://{address}"),
            Self::Pinned(token) => token.to_string(),
        }
    }

    pub(super) fn from_wire(text: &str) -> Result<Self, WireError> {
        // The text is not shown, since an invalid token may contain a secret.
        let bad = || invalid("peer address", format!("{} bytes", text.len()), "http://HOST:PORT or a token");
        if text.len() > MAX_TEXT_BYTES {
            return Err(bad());
        }
        match text.strip_prefix("http://") {
            Some(address) => address.parse::<Endpoint>().map(|_| Self::Open(address.into())).map_err(|_| bad()),
            None => text.parse().map(Self::Pinned).map_err(|_| bad()),
        }
    }
}

impl fmt::Display for PeerAddress {
    /// Formats the address without the key and the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(address) => f.write_str(address),
            Self::Pinned(token) => token.address.fmt(f),
        }
    }
}

impl fmt::Debug for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_the_one_that_the_coordinator_sees() {
        let allowed = ["rig".to_owned(), "fd00::7".to_owned()];
        for (text, host, expected) in [
            ("http://0.0.0.0:7", "10.0.0.9", "http://10.0.0.9:7"),
            ("http://0.0.0.0:7", "::ffff:10.0.0.9", "http://10.0.0.9:7"),
            ("http://0.0.0.0:7", "fe80::1", "http://[fe80::1]:7"),
            ("http://127.0.0.1:7", "10.0.0.9", "http://10.0.0.9:7"),
            ("http://other:7", "10.0.0.9", "http://10.0.0.9:7"),
            ("http://rig:7", "10.0.0.9", "http://rig:7"),
            ("http://[fd00::7]:7", "10.0.0.9", "http://[fd00::7]:7"),
        ] {
            let address = PeerAddress::from_wire(text).unwrap().seen_at(host.parse().unwrap(), &allowed);
            assert_eq!(address.endpoint().to_string(), expected);
        }
    }

    #[test]
    fn loopback_leads_to_oneself() {
        for (host, is_loopback) in
            [("127.0.0.9", true), ("[::1]", true), ("localhost", true), ("10.0.0.9", false), ("[fd00::7]", false)]
        {
            let address = PeerAddress::from_wire(&format!("http://{host}:7")).unwrap();
            assert_eq!(address.is_loopback(), is_loopback, "{host}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let long = format!("http://{}:7", "r".repeat(MAX_TEXT_BYTES));
        for text in ["", "http://", "http://rig", "https://rig:7", "rig:7", "ata1-rig:7-x-y", &long] {
            assert!(PeerAddress::from_wire(text).is_err(), "{text}");
        }
    }
}
