//! CPU kernels of neural networks, on plain slices, whose results are bit-identical on every CPU.
//!
//! Each number is summed in one order, which depends on the shapes alone: not on the width of the registers, the size of
//! the caches or the number of threads. The documentation of each kernel states its order. Products are added by fused
//! multiply-add, whose single rounding is the same everywhere, and exponentials and logarithms are those of the crate `libm`.
//!
//! Images are channels last inside this crate. Kernels use the threads of the current rayon pool.
//!
//! # Layout
//! - [`conv3x3`], [`conv_relu_pool`]: convolutions, whose gradients have a module each
//! - [`group_norm`], [`batch_norm`]: normalisations, of the passes over pixels in [`normalise`]
//! - [`linear`]: matrix products; [`cross_entropy`]: the loss; [`average`], [`subsample`]: operations without parameters
//! - [`image`]: sizes of images, and views of tensors in other layouts
//! - `tile`: the innermost loops, by the width of the registers
//! - `instructions`: selects the instruction set of a kernel

#![allow(
    clippy::inline_always,
    reason = "what a kernel calls is compiled for its instructions only if it is a part of it"
)]

pub mod average;
pub mod batch_norm;
pub mod conv3x3;
pub mod conv3x3_gradient;
pub mod conv_relu_pool;
pub mod conv_relu_pool_gradient;
pub mod cross_entropy;
pub mod group_norm;
pub mod image;
mod instructions;
pub mod linear;
mod memory;
pub mod normalise;
pub mod subsample;
mod tile;

pub use instructions::{vectorized, with_each_instruction_set};
pub use memory::Aligned;

use memory::{spread, zeros};

/// The number of values that are computed together: an AVX-512 register, two of AVX2, four of NEON.
pub const BLOCK: usize = 16;
