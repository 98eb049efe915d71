//! Workers that exchange vectors among each other.

use std::fmt;
use std::net::IpAddr;

use super::{SessionToken, Shard, WireError, in_range, invalid};
use crate::limits::{MAX_SHARDS, MAX_TEXT_BYTES};
use crate::net::Endpoint;
use crate::proto;
use crate::security::JoinToken;

/// The workers among whom a sum is added up, as one of them gets to know them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shards {
    /// Authorizes them to each other.
    pub key: SessionToken,
    /// The worker's own place.
    pub place: usize,
    /// All of them, in the order of their places; 2 to [`MAX_SHARDS`].
    pub members: Vec<PeerAddress>,
}

impl Shards {
    /// The chunks that belong to the member at some place.
    pub fn of(&self, place: usize) -> Shard {
        Shard { first: place as u64, stride: self.members.len() as u64 }
    }
}

impl From<Shards> for proto::Shards {
    fn from(shards: Shards) -> Self {
        let Shards { key, place, members } = shards;
        let members = members.iter().map(PeerAddress::to_wire).collect();
        Self { key: key.to_wire(), place: u32::try_from(place).unwrap_or(u32::MAX), members }
    }
}

impl TryFrom<proto::Shards> for Shards {
    type Error = WireError;

    fn try_from(shards: proto::Shards) -> Result<Self, WireError> {
        let proto::Shards { key, place, members } = shards;
        let count = in_range("number of members", members.len() as u64, MAX_SHARDS as u64)?;
        if count < 2 || u64::from(place) >= count {
            return Err(invalid("place", format!("{place} of {count}"), format!("one of 2 to {MAX_SHARDS}")));
        }
        Ok(Self {
            key: SessionToken::from_wire(&key)?,
            place: place as usize,
            members: members.iter().map(|member| PeerAddress::from_wire(member)).collect::<Result<_, _>>()?,
        })
    }
}

/// How other workers reach a worker.
#[derive(Clone, PartialEq, Eq)]
pub enum PeerAddress {
    /// At `HOST:PORT`, without encryption.
    Open(String),
    /// With a key and a secret of the worker's own.
    Pinned(JoinToken),
}

impl PeerAddress {
    /// The same, with `host` in place of the unspecified address.
    #[must_use]
    pub fn seen_at(self, host: IpAddr) -> Self {
        let place = |address: &str| match address.rsplit_once(':') {
            Some(("0.0.0.0" | "[::]", port)) => match host.to_canonical() {
                IpAddr::V4(host) => format!("{host}:{port}"),
                IpAddr::V6(host) => format!("[{host}]:{port}"),
            },
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

    /// Where to connect.
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
        // What is wrong with a token may be a secret.
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
    /// Without key and secret.
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
    fn an_address_is_completed_by_what_the_coordinator_sees() {
        let seen = |text: &str, host: &str| {
            let address = PeerAddress::from_wire(text).unwrap().seen_at(host.parse().unwrap());
            address.endpoint().to_string()
        };
        assert_eq!(seen("http://0.0.0.0:7", "10.0.0.9"), "http://10.0.0.9:7");
        assert_eq!(seen("http://0.0.0.0:7", "::ffff:10.0.0.9"), "http://10.0.0.9:7");
        assert_eq!(seen("http://0.0.0.0:7", "fe80::1"), "http://[fe80::1]:7");
        assert_eq!(seen("http://rig:7", "10.0.0.9"), "http://rig:7");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "http://", "http://rig", "https://rig:7", "rig:7", "ata1-rig:7-x-y"] {
            assert!(PeerAddress::from_wire(text).is_err(), "{text}");
        }
        assert!(PeerAddress::from_wire(&format!("http://{}:7", "r".repeat(MAX_TEXT_BYTES))).is_err());
    }

    #[test]
    fn a_worker_has_one_of_several_places() {
        let shards = |place, members: usize| {
            let members = vec!["http://rig:7".to_owned(); members];
            Shards::try_from(proto::Shards { key: vec![1; 16].into(), place, members }).map(|shards| shards.place)
        };
        assert_eq!(shards(1, 2), Ok(1));
        for (place, members) in [(0, 0), (0, 1), (2, 2), (0, MAX_SHARDS + 1)] {
            assert!(shards(place, members).is_err(), "{place} of {members}");
        }
    }
}
