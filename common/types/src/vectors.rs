//! Vectors: their representation on the wire, the ways in which workers exchange them, and the squares of gradients.

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

/// The most workers that exchange vectors among each other in one step. Each connects to all others, and the time of such a step
/// hardly falls beyond a dozen workers.
pub const MAX_SHARDS: usize = 32;

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

impl fmt::Display for WireFormat {
    /// Writes the name, as `--wire` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32Exact => "f32-exact",
            Self::Compact => "compact",
        })
    }
}

impl FromStr for WireFormat {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        named(&[Self::F32Exact, Self::Compact], text, "f32-exact or compact")
    }
}

/// The way in which workers exchange vectors. The bits of a run do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExchangeChoice {
    /// Workers use shards where that takes less time, and otherwise the coordinator's link.
    #[default]
    Auto,
    /// Workers use the coordinator's link.
    Star,
    /// Workers use shards wherever they can reach each other; each sums a part of the vector.
    Shards,
}

impl fmt::Display for ExchangeChoice {
    /// Writes the name, as `--exchange` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Star => "star",
            Self::Shards => "shards",
        })
    }
}

impl FromStr for ExchangeChoice {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        named(&[Self::Auto, Self::Star, Self::Shards], text, "auto, star or shards")
    }
}

fn named<T: Copy + fmt::Display>(all: &[T], text: &str, expected: &'static str) -> Result<T, NameError> {
    let found = all.iter().copied().find(|value| value.to_string() == text);
    found.ok_or_else(|| NameError { text: text.into(), expected })
}

/// The squares of the gradients of a step, in the norm of its optimizer: Σᵢ wᵢ·gᵢ², where wᵢ is 1/√vᵢ for Adam, and 1 for SGD.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GradientSquares {
    /// The sum of the squares of the tasks' gradients. Tasks that are computed as one batch add that of their sum, divided by their number.
    pub of_tasks: f64,
    /// The square of the sum of all of these gradients.
    pub of_sum: f64,
}
