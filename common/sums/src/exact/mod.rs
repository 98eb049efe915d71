//! Exact sums of gradients: a task's gradient becomes integers, whose sum does not depend on order or grouping.
//!
//! # Layout
//! - `sizes`: [`TensorSizes`], the position of each tensor in a flat vector
//! - `units`: [`Units`], the power of two per tensor that one integer stands for, and how it follows the gradients
//! - `shifts`: the finer units of blocks of small values
//! - `sum`: [`GradientSum`], the integers of some tasks, and [`Quantizer`], which makes them
//! - `kernels`: the loops over values

mod kernels;
mod shifts;
mod sizes;
mod sum;
#[cfg(test)]
mod tests;
mod units;

pub use kernels::add_sums;
pub(crate) use kernels::{max_bits, power_of_two};
pub(crate) use shifts::{BLOCK, BlockMaxima, block_maxima};
pub(crate) use sizes::Tallies;
pub use sizes::TensorSizes;
pub use sum::{GradientSum, NotFinite, Quantizer, TensorGradient, maxima};
pub(crate) use units::ceil_log2;
pub use units::{Units, UnitsError};
