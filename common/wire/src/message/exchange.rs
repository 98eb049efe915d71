//! Reports about an exchange in shards, from its members.

use ata_types::VectorId;

use super::{WireError, in_range, invalid, truncated};
use crate::limits::{MAX_SHARDS, MAX_TIME};
use crate::proto;
use crate::proto::member_report::Fault;

/// One member's report on an exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct ExchangeReport {
    /// The vector that was exchanged.
    pub vector: VectorId,
    /// Whether the exchange failed, or was abandoned, before this member had its parameters.
    pub has_failed: bool,
    /// Reports on the other members; at most [`MAX_SHARDS`].
    pub members: Vec<MemberReport>,
}

/// A report on another member of an exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberReport {
    /// The other member's place.
    pub place: usize,
    /// Bytes of the chunks that arrived from it.
    pub bytes: u64,
    /// Seconds spent waiting for these chunks.
    pub seconds: f64,
    /// Seconds spent so far waiting for the next chunk.
    pub waiting_s: f64,
    /// The fault of the other member, if any, and a human-readable reason.
    pub fault: Option<(PairFault, String)>,
}

/// A fault that one member of an exchange found in another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairFault {
    /// The member could not connect to it.
    Unreachable,
    /// A chunk did not arrive in time.
    Late,
    /// A call broke off, or its answer broke the protocol.
    Broken,
    /// A chunk could not be decoded.
    Undecodable,
}

impl From<ExchangeReport> for proto::ExchangeReport {
    fn from(report: ExchangeReport) -> Self {
        let ExchangeReport { vector, has_failed, members } = report;
        let member = |MemberReport { place, bytes, seconds, waiting_s, fault }| {
            let (fault, reason) = match fault {
                None => (Fault::Unspecified, String::new()),
                Some((PairFault::Unreachable, reason)) => (Fault::Unreachable, reason),
                Some((PairFault::Late, reason)) => (Fault::Late, reason),
                Some((PairFault::Broken, reason)) => (Fault::Broken, reason),
                Some((PairFault::Undecodable, reason)) => (Fault::Undecodable, reason),
            };
            let (place, reason) = (u32::try_from(place).unwrap_or(u32::MAX), truncated(reason));
            proto::MemberReport { place, bytes, seconds, waiting_s, fault: fault.into(), reason }
        };
        Self { vector: vector.0, failed: has_failed, members: members.into_iter().map(member).collect() }
    }
}

impl TryFrom<proto::ExchangeReport> for ExchangeReport {
    type Error = WireError;

    fn try_from(report: proto::ExchangeReport) -> Result<Self, WireError> {
        let proto::ExchangeReport { vector, failed, members } = report;
        if members.len() > MAX_SHARDS {
            return Err(invalid("number of members", members.len(), format!("{MAX_SHARDS} at most")));
        }
        let members = members.into_iter().map(MemberReport::try_from).collect::<Result<_, _>>()?;
        Ok(Self { vector: VectorId(vector), has_failed: failed, members })
    }
}

impl TryFrom<proto::MemberReport> for MemberReport {
    type Error = WireError;

    fn try_from(report: proto::MemberReport) -> Result<Self, WireError> {
        let fault = match report.fault() {
            Fault::Unspecified => None,
            Fault::Unreachable => Some(PairFault::Unreachable),
            Fault::Late => Some(PairFault::Late),
            Fault::Broken => Some(PairFault::Broken),
            Fault::Undecodable => Some(PairFault::Undecodable),
        };
        let proto::MemberReport { place, bytes, seconds, waiting_s, reason, .. } = report;
        for (field, seconds) in [("seconds", seconds), ("waiting_s", waiting_s)] {
            if !(0.0..=MAX_TIME.as_secs_f64()).contains(&seconds) {
                return Err(invalid(field, seconds, "0 to 1e9"));
            }
        }
        in_range("place", u64::from(place) + 1, MAX_SHARDS as u64)?;
        let fault = fault.map(|fault| (fault, truncated(reason)));
        Ok(Self { place: place as usize, bytes, seconds, waiting_s, fault })
    }
}
