//! What comes before a gradient's chunks, and what it is answered with.

use super::{SessionToken, WireError, in_range, invalid, truncated};
use crate::limits::MAX_LEASE_TASKS;
use crate::proto::{self, gradient_receipt::Verdict};

/// What comes before a gradient's chunks.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientHeader {
    /// Whose it is.
    pub session: SessionToken,
    /// The lease it answers.
    pub lease: u64,
    /// The iteration of that lease.
    pub iteration: u64,
    /// Seconds each task took: finite, not negative, one to [`MAX_LEASE_TASKS`] of them.
    pub busy_s: Vec<f64>,
    /// Sum of the tasks' mean losses, in nats. One that is not finite fails the lease, as a gradient that is not finite does.
    pub loss_sum: f64,
    /// Tasks whose computation outlasted their emulated time.
    pub outlasted: u64,
}

impl From<GradientHeader> for proto::GradientHeader {
    fn from(header: GradientHeader) -> Self {
        let GradientHeader { session, lease, iteration, busy_s, loss_sum, outlasted } = header;
        Self { session: session.to_wire(), lease, iteration, busy_s, loss_sum, outlasted }
    }
}

impl TryFrom<proto::GradientHeader> for GradientHeader {
    type Error = WireError;

    fn try_from(header: proto::GradientHeader) -> Result<Self, WireError> {
        in_range("number of busy_s", header.busy_s.len() as u64, MAX_LEASE_TASKS)?;
        if let Some(time) = header.busy_s.iter().find(|time| !time.is_finite() || **time < 0.0) {
            return Err(invalid("busy_s", time, "finite seconds of at least 0"));
        }
        Ok(Self {
            session: SessionToken::from_wire(&header.session)?,
            lease: header.lease,
            iteration: header.iteration,
            busy_s: header.busy_s,
            loss_sum: header.loss_sum,
            outlasted: header.outlasted,
        })
    }
}

/// What a gradient is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// It counts.
    Accepted,
    /// The session does not hold that lease, or is sending its gradient already.
    NotHeld {
        /// For people.
        reason: String,
    },
    /// It failed a check.
    Refused {
        /// For people.
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
    /// A verdict of a later release is none that we know to be good.
    fn from(receipt: proto::GradientReceipt) -> Self {
        let reason = || truncated(receipt.reason.clone());
        match receipt.verdict() {
            Verdict::Accepted => Self::Accepted,
            Verdict::NotHeld => Self::NotHeld { reason: reason() },
            Verdict::Refused | Verdict::Unspecified => Self::Refused { reason: reason() },
        }
    }
}
