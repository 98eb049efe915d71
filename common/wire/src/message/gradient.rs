//! The header that precedes a gradient's chunks, and the receipt that answers it.

use ata_types::{Iteration, LeaseId};

use super::{SessionToken, WireError, truncated};
use crate::proto::{self, gradient_receipt::Verdict};

/// The header that precedes a gradient's chunks.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientHeader {
    /// The session that sends it.
    pub session: SessionToken,
    /// The lease that was computed.
    pub lease: LeaseId,
    /// The iteration of that lease.
    pub iteration: Iteration,
    /// What the worker measured.
    pub times: LeaseTimes,
    /// Sum of the tasks' mean losses, in nats. If it is not finite, the lease fails, as with a non-finite gradient.
    pub loss_sum: f64,
}

/// What a worker measured while it computed a lease.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeaseTimes {
    /// Seconds that each task took, or that the whole lease took as one batch. The engine checks whether they are possible, and
    /// fails the lease if they are not.
    pub busy_s: Vec<f64>,
    /// Tasks whose computation took longer than their emulated time.
    pub outlasted: u64,
}

impl From<GradientHeader> for proto::GradientHeader {
    fn from(header: GradientHeader) -> Self {
        let GradientHeader { session, lease, iteration, times: LeaseTimes { busy_s, outlasted }, loss_sum } = header;
        Self { session: session.to_wire(), lease: lease.0, iteration: iteration.number(), busy_s, loss_sum, outlasted }
    }
}

impl TryFrom<proto::GradientHeader> for GradientHeader {
    type Error = WireError;

    fn try_from(header: proto::GradientHeader) -> Result<Self, WireError> {
        Ok(Self {
            session: SessionToken::from_wire(&header.session)?,
            lease: LeaseId(header.lease),
            iteration: Iteration(header.iteration),
            times: LeaseTimes { busy_s: header.busy_s, outlasted: header.outlasted },
            loss_sum: header.loss_sum,
        })
    }
}

/// The coordinator's answer to a gradient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// The gradient counts.
    Accepted,
    /// The session does not hold that lease, or is sending its gradient already.
    NotHeld {
        /// Why, human-readable.
        reason: String,
    },
    /// The gradient failed a check.
    Refused {
        /// Why, human-readable.
        reason: String,
    },
}

impl From<Receipt> for proto::GradientReceipt {
    fn from(receipt: Receipt) -> Self {
        let (verdict, reason) = match receipt {
            Receipt::Accepted => (Verdict::Accepted, String::new()),
            Receipt::NotHeld { reason } => (Verdict::NotHeld, reason),
            Receipt::Refused { reason } => (Verdict::Refused, reason),
        };
        Self { verdict: verdict.into(), reason: truncated(reason) }
    }
}

impl From<proto::GradientReceipt> for Receipt {
    /// A verdict that this release does not know counts as a refusal.
    fn from(receipt: proto::GradientReceipt) -> Self {
        let reason = || truncated(receipt.reason.clone());
        match receipt.verdict() {
            Verdict::Accepted => Self::Accepted,
            Verdict::NotHeld => Self::NotHeld { reason: reason() },
            Verdict::Refused | Verdict::Unspecified => Self::Refused { reason: reason() },
        }
    }
}
