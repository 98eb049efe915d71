//! The place of a lease in the trace of its iteration.

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};

/// Length of a `traceparent` of version 00, with 2 digits of the version, 32 of the trace, 16 of the span and 2 of flags.
const CHARS: usize = 55;

/// The only flag that version 00 defines.
const SAMPLED: u8 = 1;

/// A span that spans of other threads and processes can be children of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Identifies the trace.
    pub trace: NonZeroU128,
    /// Identifies the span within it.
    pub span: NonZeroU64,
    /// Whether the trace is kept.
    pub is_sampled: bool,
}

impl TraceContext {
    /// Parses a `traceparent`; returns `None` if the text is anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let is_lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_valid = |(at, byte)| if matches!(at, 2 | 35 | 52) { byte == b'-' } else { is_lower_hex(byte) };
        if text.len() != CHARS || !text.bytes().enumerate().all(is_valid) || !text.starts_with("00") {
            return None;
        }
        Some(Self {
            trace: NonZeroU128::new(u128::from_str_radix(&text[3..35], 16).ok()?)?,
            span: NonZeroU64::new(u64::from_str_radix(&text[36..52], 16).ok()?)?,
            is_sampled: u8::from_str_radix(&text[53..], 16).ok()? & SAMPLED != 0,
        })
    }
}

impl fmt::Display for TraceContext {
    /// Writes the `traceparent`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = if self.is_sampled { SAMPLED } else { 0 };
        write!(f, "00-{:032x}-{:016x}-{flags:02x}", self.trace, self.span)
    }
}
