//! The representation of vectors on the wire.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Values in a chunk of a vector: 128 KiB of f32. Chunks of half or of twice the size are as fast on a shaped link; eight times
/// as much is 5 % slower, because a chunk is stepped only when all of it has arrived.
pub const CHUNK_VALUES: usize = 1 << 15;

/// Blocks of a vector whose units may differ: of 256 values each, or of a multiple in vectors of more than 2^28. Their shifts, of four
/// bits, take at most 512 KiB, which fit into a control message with the exponents.
pub const MAX_SHIFTED_BLOCKS: usize = 1 << 20;

/// How gradients and parameters are represented on the wire. Every format keeps a run's bits independent of who computes what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WireFormat {
    /// Sums of gradients as i32, parameters as f32.
    #[default]
    F32Exact,
    /// Sums of gradients in blocks of as few bits as hold them, of a coarser unit; parameters as 8-bit differences from
    /// the last ones.
    Compact,
}

/// The text does not name a [`WireFormat`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}': expected f32-exact or compact")]
pub struct WireFormatError(String);

impl WireFormat {
    /// Its name, as `--wire` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32Exact => "f32-exact",
            Self::Compact => "compact",
        }
    }
}

impl fmt::Display for WireFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WireFormat {
    type Err = WireFormatError;

    fn from_str(text: &str) -> Result<Self, WireFormatError> {
        [Self::F32Exact, Self::Compact]
            .into_iter()
            .find(|format| format.name() == text)
            .ok_or_else(|| WireFormatError(text.into()))
    }
}
