//! Layers with the CPU operations of [`ata_nn`], which are faster than burn's and have the same results on every CPU.
//!
//! A layer takes over the parameters of burn's layer of the same kind, with their names, shapes and initial values:
//!
//! ```
//! use ata_learn::nn::ConvReluPool;
//! use burn::nn::PaddingConfig2d;
//! use burn::nn::conv::Conv2dConfig;
//! # let device = burn::tensor::Device::flex();
//! let config = Conv2dConfig::new([3, 16], [3, 3]).with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1));
//! let layer = ConvReluPool::new(config.init(&device));
//! ```
//!
//! On devices other than the CPU, and for numbers other than `f32`, a layer uses burn's operations.
//!
//! # The same results on every CPU
//! The results of these layers depend on parameters and inputs alone, bit by bit. Each number is summed in a fixed order, which the
//! documentation of the operation states, whatever the width of the registers (AVX-512, AVX2, NEON or none), the size of the caches and the
//! number of threads; products are added by fused multiply-add everywhere; and exponentials and logarithms are those of the crate `libm`,
//! not of the C library. So for the built-in models it does not matter which CPU computed a gradient or an evaluation.
//!
//! This also holds for your own modules if they consist of
//! - the layers of this module, [`global_average`], [`cross_entropy`] and [`cross_entropy_of_targets`],
//! - burn's operations that only move numbers (reshape, transpose, slice, concatenate, gather),
//! - burn's operations that compute each number from one of each operand by `+`, `-`, `*`, `/`, a comparison or a square root
//!   (addition, ReLU, a mask).
//!
//! It does not hold for sums by burn's CPU device: matrix products (including those of convolutions and attention) are
//! blocked by the sizes of the caches, and sums, means and softmax depend on the width of the registers. It does not
//! hold for exponentials, logarithms and trigonometric functions either (sigmoid, tanh, GELU), which come from the C
//! library. Two machines can differ in the last bits there. GPUs always have their own order.

mod batch_norm;
mod convolution;
mod cross_entropy;
mod dropout;
mod factors;
mod flex;
mod group_norm;
mod linear;
mod normalise;
mod pixels;
mod pointwise;
mod tasks;
#[cfg(test)]
pub(crate) mod tests;

pub use ata_nn::cross_entropy::{MixedLabels, Targets};
pub use batch_norm::BatchNorm;
pub use convolution::{Conv3x3, ConvReluPool};
pub use cross_entropy::{cross_entropy, cross_entropy_of_targets};
pub use dropout::Dropout;
pub(crate) use factors::{Factors, keeping_factors, take_factors};
pub use flex::by_burn;
pub use group_norm::GroupNorm;
pub use linear::Linear;
pub use pixels::{global_average, subsample};
pub use pointwise::Pointwise;
pub(crate) use tasks::{BatchTasks, LeftValues, computing};
