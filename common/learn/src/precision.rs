//! The precision of gradients.

use std::fmt;
use std::str::FromStr;

use burn::tensor::FloatDType;
use serde::{Deserialize, Serialize};

/// The number format of gradients. Trained parameters, sums of gradients and evaluations are always f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Gradients are computed in 32 bits.
    #[default]
    F32,
    /// Gradients are computed in 16 bits with the range of f32: the network's copy of the parameters, activations and their gradients.
    /// Normalisation, means and losses are f32. A CPU computes each operation in f32 and rounds the result.
    Bf16,
}

impl Precision {
    /// Returns the name, in the form of `--precision`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = [Self::F32, Self::Bf16].into_iter().find(|precision| precision.name() == text);
        named.ok_or_else(|| format!("'{text}': expected f32 or bf16"))
    }
}

impl From<Precision> for FloatDType {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::F32,
            Precision::Bf16 => Self::BF16,
        }
    }
}
