//! The workers of an exchange in shards.

use std::time::Duration;

use super::{PeerAddress, SessionToken, Stripe, WireError, in_range, invalid};
use crate::limits::{MAX_CHUNK_TIMEOUT_MS, MAX_SHARDS};
use crate::proto;

/// The workers of an exchange, from the view of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shards {
    /// The worker's own place.
    pub place: usize,
    /// All members, in the order of their places; 2 to [`MAX_SHARDS`].
    pub members: Vec<ShardMember>,
    /// The time in which a chunk from another member must arrive, in whole milliseconds.
    pub chunk_timeout: Duration,
}

/// A member of an exchange, from the view of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardMember {
    /// The address of the member.
    pub address: PeerAddress,
    /// A key that only these two members know.
    pub key: SessionToken,
}

impl Shards {
    /// Returns the chunks that belong to the member at this place.
    pub fn of(&self, place: usize) -> Stripe {
        Stripe { first: place as u64, stride: self.members.len() as u64 }
    }
}

impl From<Shards> for proto::Shards {
    fn from(shards: Shards) -> Self {
        let Shards { place, members, chunk_timeout } = shards;
        Self {
            place: u32::try_from(place).unwrap_or(u32::MAX),
            keys: members.iter().map(|member| member.key.to_wire()).collect(),
            members: members.iter().map(|member| member.address.to_wire()).collect(),
            chunk_timeout_ms: u32::try_from(chunk_timeout.as_millis()).unwrap_or(u32::MAX),
        }
    }
}

impl TryFrom<proto::Shards> for Shards {
    type Error = WireError;

    fn try_from(shards: proto::Shards) -> Result<Self, WireError> {
        let proto::Shards { keys, place, members, chunk_timeout_ms } = shards;
        let count = in_range("number of members", members.len() as u64, MAX_SHARDS as u64)?;
        if count < 2 || u64::from(place) >= count {
            return Err(invalid("place", format!("{place} of {count}"), format!("one of 2 to {MAX_SHARDS}")));
        }
        if keys.len() != members.len() {
            return Err(invalid("number of keys", keys.len(), members.len().to_string()));
        }
        let member = |(address, key): (&String, &bytes::Bytes)| {
            Ok(ShardMember { address: PeerAddress::from_wire(address)?, key: SessionToken::from_wire(key)? })
        };
        let timeout_ms = in_range("chunk_timeout_ms", chunk_timeout_ms.into(), MAX_CHUNK_TIMEOUT_MS.into())?;
        Ok(Self {
            place: place as usize,
            members: members.iter().zip(&keys).map(member).collect::<Result<_, _>>()?,
            chunk_timeout: Duration::from_millis(timeout_ms),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_has_one_of_several_places() {
        let shards = |place, members: usize, keys, chunk_timeout_ms| {
            let (members, keys) = (vec!["http://rig:7".to_owned(); members], vec![vec![1; 16].into(); keys]);
            Shards::try_from(proto::Shards { keys, place, members, chunk_timeout_ms }).map(|shards| shards.place)
        };
        assert_eq!(shards(1, 2, 2, 1000), Ok(1));
        for (place, members) in [(0, 0), (0, 1), (2, 2), (0, MAX_SHARDS + 1)] {
            assert!(shards(place, members, members, 1000).is_err(), "{place} of {members}");
        }
        assert!(shards(0, 2, 3, 1000).is_err() && shards(0, 2, 2, 0).is_err());
        assert!(shards(0, 2, 2, MAX_CHUNK_TIMEOUT_MS + 1).is_err());
    }
}
