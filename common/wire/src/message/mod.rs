//! Domain types, valid by construction.
//!
//! # Layout
//! - here: names, tokens, [`WireError`], checks of fields, and the division of lists that are too long for one message
//! - `from_worker`, `to_worker`: messages on the control stream
//! - `reports`: what a worker reports: computed leases, measured batches, exchanges with other workers
//! - `run`: everything a worker must know about the run, down to the optimizer of local steps
//! - `vector_request`: requests for vectors, and the workers of an exchange in shards
//! - `headers`: the headers of vectors and of sets of parameters
//! - `peer_address`: the address at which other workers reach a worker
//! - `probe`: the messages of a probe, which measures the link to the coordinator

mod from_worker;
mod headers;
mod peer_address;
mod probe;
mod reports;
mod run;
mod to_worker;
mod vector_request;

pub use from_worker::{FromWorker, Hello, ProcessUsage};
pub use headers::{GradientHeader, Receipt, SetHeader, Stripe};
pub use peer_address::PeerAddress;
pub use probe::{ProbeIntake, ProbeSummary};
pub use reports::{BatchFigures, ComputedLease, ExchangeReport, LeaseTimes, MeasuredBatch, MemberReport, PairFault};
pub use run::{DataSpec, RunSpec};
pub use to_worker::{Assignment, FarewellReason, ToWorker, Welcome};
pub use vector_request::{ShardMember, Shards, VectorRequest};

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use tonic::Status;

use crate::PROTOCOL;
use crate::limits::{MAX_BATCH, MAX_BATCH_ENTRIES, MAX_NAME_CHARS, MAX_TENSORS, MAX_TEXT_BYTES};

/// The reason why a message violates the contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A field is missing or has an invalid value.
    #[error("{0}")]
    Invalid(String),
    /// The other side speaks another protocol version.
    #[error("protocol version {0}: expected {PROTOCOL}; use the same release of ata on all machines")]
    Protocol(u32),
}

impl From<WireError> for Status {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Invalid(_) => Self::invalid_argument(error.to_string()),
            WireError::Protocol(_) => Self::failed_precondition(error.to_string()),
        }
    }
}

fn invalid(field: &str, found: impl fmt::Display, expected: impl fmt::Display) -> WireError {
    WireError::Invalid(format!("{field} is {found}: expected {expected}"))
}

fn missing(field: &str) -> WireError {
    invalid(field, "missing", "a value")
}

fn in_range<T: Copy + PartialOrd + fmt::Display + From<u8>>(field: &str, value: T, max: T) -> Result<T, WireError> {
    if (T::from(1)..=max).contains(&value) { Ok(value) } else { Err(invalid(field, value, format!("1 to {max}"))) }
}

fn at_most<T: Copy + PartialOrd + fmt::Display>(field: &str, value: T, max: T) -> Result<T, WireError> {
    if value <= max { Ok(value) } else { Err(invalid(field, value, format!("{max} at most"))) }
}

fn as_many(field: &str, found: usize, expected: usize, why: &str) -> Result<(), WireError> {
    if found == expected { Ok(()) } else { Err(invalid(field, found, format!("{expected}, {why}"))) }
}

fn check_protocol(version: u32) -> Result<(), WireError> {
    if version == PROTOCOL { Ok(()) } else { Err(WireError::Protocol(version)) }
}

/// Removes from the front as many items as fit in one message, at most [`MAX_BATCH`] with [`MAX_BATCH_ENTRIES`] entries; at least one.
fn first_batch<T>(items: &mut Vec<T>, entries: impl Fn(&T) -> usize) -> Vec<T> {
    let mut sum = 0;
    let fits = |item: &&T| {
        sum += entries(item);
        sum <= MAX_BATCH_ENTRIES
    };
    let most = items.iter().take(MAX_BATCH).take_while(fits).count();
    items.drain(..most.max(1).min(items.len())).collect()
}

fn check_batch<T>(field: &str, items: &[T], entries: impl Fn(&T) -> usize) -> Result<(), WireError> {
    in_range(field, items.len(), MAX_BATCH)?;
    at_most("number of entries", items.iter().map(entries).sum::<usize>(), MAX_BATCH_ENTRIES)?;
    Ok(())
}

fn units_of(exponents: Vec<i32>) -> Result<Vec<i16>, WireError> {
    at_most("number of units", exponents.len(), MAX_TENSORS)?;
    let unit = |exponent: i32| i16::try_from(exponent).map_err(|_| invalid("unit", exponent, "an exponent of 16 bits"));
    exponents.into_iter().map(unit).collect()
}

/// Returns the checksum of a gradient's units: the CRC-32C of their exponents and shifts, as [`ToWorker::Units`] has them.
pub fn units_crc32c(exponents: &[i16], shifts: &[u8]) -> u32 {
    let mut bytes: Vec<u8> = exponents.iter().flat_map(|exponent| exponent.to_le_bytes()).collect();
    bytes.extend_from_slice(shifts);
    crc_fast::crc32_iscsi(&bytes)
}

fn array<const N: usize>(field: &str, bytes: &[u8]) -> Result<[u8; N], WireError> {
    bytes.try_into().map_err(|_| invalid(field, format!("{} bytes", bytes.len()), format!("{N} bytes")))
}

/// Truncates a text to [`MAX_TEXT_BYTES`], at a character boundary.
pub fn truncated(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
    text
}

/// The secret that identifies a session.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
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

impl WorkerName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

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
