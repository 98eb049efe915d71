//! Domain types, valid by construction.
//!
//! # Layout
//! - here: names, tokens, and [`WireError`]
//! - `from_worker`, `to_worker`: messages on the control stream
//! - `run`: everything a worker must know about the run
//! - `computed`: the times and losses that a worker measured while it computed a lease
//! - `measured`: the measurement of a batch of the test data
//! - `collection`: requests for vectors
//! - `gradient`: the header and the receipt of a sum of gradients
//! - `set`: the header of a set of parameters
//! - `shards`: the workers of an exchange in shards; `exchange`: their reports about it
//! - `peer_address`: the address at which other workers reach a worker
//! - `batch`: splits lists that are too long for one message
//! - `probe`: the messages of a probe, which measures the link to the coordinator

mod batch;
mod computed;
mod exchange;
mod from_worker;
mod gradient;
mod measured;
mod peer_address;
mod probe;
mod run;
mod set;
mod shards;
mod to_worker;
mod vector_request;

pub use computed::{ComputedLease, LeaseTimes};
pub use exchange::{ExchangeReport, MemberReport, PairFault};
pub use from_worker::{FromWorker, Hello};
pub use gradient::{GradientHeader, Receipt};
pub use measured::{BatchFigures, MeasuredBatch};
pub use peer_address::PeerAddress;
pub use probe::{ProbeIntake, ProbeSummary};
pub use run::{DataSpec, RunSpec};
pub use set::{SetHeader, Stripe};
pub use shards::{ShardMember, Shards};
pub use to_worker::{Assignment, FarewellReason, ToWorker, Welcome};
pub use vector_request::VectorRequest;

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use tonic::Status;

use self::batch::{batches, check_batch, first_batch};
use crate::PROTOCOL;
use crate::limits::{MAX_NAME_CHARS, MAX_TENSORS, MAX_TEXT_BYTES};

/// The reason why a message violates the contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A field is missing or has an invalid value.
    #[error("{field} is {found}: expected {expected}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// The value it holds.
        found: String,
        /// A description of a valid value.
        expected: String,
    },
    /// The other side speaks another protocol version.
    #[error("protocol version {0}: expected {PROTOCOL}; use the same release of ata on all machines")]
    Protocol(u32),
}

impl From<WireError> for Status {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Invalid { .. } => Self::invalid_argument(error.to_string()),
            WireError::Protocol(_) => Self::failed_precondition(error.to_string()),
        }
    }
}

fn invalid(field: &'static str, found: impl fmt::Display, expected: impl Into<String>) -> WireError {
    WireError::Invalid { field, found: found.to_string(), expected: expected.into() }
}

fn missing(field: &'static str) -> WireError {
    invalid(field, "missing", "a value")
}

fn in_range(field: &'static str, value: u64, max: u64) -> Result<u64, WireError> {
    if (1..=max).contains(&value) { Ok(value) } else { Err(invalid(field, value, format!("1 to {max}"))) }
}

fn at_most(field: &'static str, value: u64, max: u64) -> Result<u64, WireError> {
    if value <= max { Ok(value) } else { Err(invalid(field, value, format!("{max} at most"))) }
}

/// Checks the exponents of the tensors' units.
fn units_of(exponents: Vec<i32>) -> Result<Vec<i16>, WireError> {
    at_most("number of units", exponents.len() as u64, MAX_TENSORS as u64)?;
    let unit = |exponent: i32| i16::try_from(exponent).map_err(|_| invalid("unit", exponent, "an exponent of 16 bits"));
    exponents.into_iter().map(unit).collect()
}

/// Returns the checksum of a gradient's units: the CRC-32C of their exponents and shifts, as [`ToWorker::Units`] has them.
pub fn units_crc32c(exponents: &[i16], shifts: &[u8]) -> u32 {
    let mut bytes: Vec<u8> = exponents.iter().flat_map(|exponent| exponent.to_le_bytes()).collect();
    bytes.extend_from_slice(shifts);
    crc_fast::crc32_iscsi(&bytes)
}

fn array<const N: usize>(field: &'static str, bytes: &[u8]) -> Result<[u8; N], WireError> {
    bytes.try_into().map_err(|_| invalid(field, format!("{} bytes", bytes.len()), format!("{N} bytes")))
}

/// Truncates a text to [`MAX_TEXT_BYTES`], at a character boundary.
pub fn truncated(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
    text
}

/// The secret that identifies a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionToken(pub [u8; 16]);

impl fmt::Debug for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionToken(secret)")
    }
}

impl SessionToken {
    /// Reads a token from the bytes of a request.
    pub fn from_wire(bytes: &[u8]) -> Result<Self, WireError> {
        Ok(Self(array("session", bytes)?))
    }

    /// Returns the bytes that a request carries.
    pub fn to_wire(self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }
}

/// A worker's name: 1 to 64 letters, digits, '.', '_' or '-'.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerName(String);

impl FromStr for WorkerName {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if (1..=MAX_NAME_CHARS).contains(&text.len()) && text.chars().all(valid) {
            return Ok(Self(text.into()));
        }
        let quoted: String = text.chars().take(MAX_NAME_CHARS).flat_map(char::escape_debug).collect();
        let expected = format!("1 to {MAX_NAME_CHARS} letters, digits, '.', '_' or '-'");
        Err(invalid("worker name", format!("'{quoted}'"), expected))
    }
}

impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
