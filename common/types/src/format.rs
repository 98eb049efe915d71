//! The representation of vectors on the wire.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::NameError;

/// The number of values in a chunk of a vector: 128 KiB of f32. Chunks of half or twice the size are as fast on a shaped link; eight
/// times the size is 5 % slower, because a chunk is processed only when all of it has arrived.
pub const CHUNK_VALUES: usize = 1 << 15;

/// The most blocks of a vector whose units may differ. Blocks have 256 values, or a multiple of it in vectors of more than 2^28. Their
/// shifts, of four bits, take at most 512 KiB, which fit into a control message with the exponents.
pub const MAX_SHIFTED_BLOCKS: usize = 1 << 20;

/// The possible numbers of bits of a value of a compact difference. A compact gradient has as many as the most.
pub const DIFFERENCE_BITS: RangeInclusive<u32> = 2..=16;

/// The representation of gradients and parameters on the wire. With every format, a run's bits do not depend on which worker computes what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WireFormat {
    /// Sums of gradients are sent as i32, parameters as f32.
    #[default]
    F32Exact,
    /// Sums of gradients are sent in blocks of as few bits as can represent them in a coarser unit; parameters are sent as 8-bit
    /// differences from the previous ones.
    Compact,
}

impl WireFormat {
    /// Returns the name, as `--wire` takes it.
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
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let format = [Self::F32Exact, Self::Compact].into_iter().find(|format| format.name() == text);
        format.ok_or_else(|| NameError { text: text.into(), expected: "f32-exact or compact" })
    }
}
