//! What the operations of this module compute, on plain slices: no burn here.
//!
//! Every number is summed in one order, which depends on the shapes alone: not on the width of the registers, the size of
//! the caches or the number of threads. Products are added by fused multiply-add, whose one rounding is the same everywhere.

#![allow(
    clippy::inline_always,
    reason = "what a kernel calls is compiled for its instructions only if it is a part of it"
)]

pub(crate) mod dense;
pub(crate) mod dense_gradient;
pub(crate) mod image;
pub(crate) mod loss;
pub(crate) mod matrix;
pub(crate) mod norm;
pub(crate) mod norm_gradient;
pub(crate) mod pooled;
pub(crate) mod pooled_gradient;
#[cfg(test)]
pub(crate) mod testing;
mod tile;

use pulp::Arch;
use rayon::prelude::*;

/// Numbers that are computed side by side: an AVX-512 register, two of AVX2, four of NEON.
pub(crate) const BLOCK: usize = 16;

/// The instructions to use.
fn arch() -> Arch {
    #[cfg(test)]
    if let Some(arch) = testing::forced_arch() {
        return arch;
    }
    Arch::new()
}

/// Runs a kernel with these instructions.
fn by_width<K: tile::Blocked>(kernel: K) -> K::Output {
    arch().dispatch(tile::ByWidth(kernel))
}

/// Does `work` on every piece, on the threads that [`crate::limit_threads`] allows.
fn spread<T: Send>(pieces: impl ExactSizeIterator<Item = T>, work: impl Fn(T) + Send + Sync) {
    // A lone piece, and a lone thread, need no handing over.
    if pieces.len() > 1 && rayon::current_num_threads() > 1 {
        pieces.collect::<Vec<_>>().into_par_iter().for_each(work);
    } else {
        pieces.for_each(work);
    }
}

/// `length` zeros, written by the threads that [`crate::limit_threads`] allows: memory that was used before has to be cleared,
/// which takes as long as a good part of what is computed into it.
fn zeros<T: Copy + Default + Send + Sync>(length: usize) -> Vec<T> {
    // Few are cleared faster by one thread.
    if length < 1 << 14 || rayon::current_num_threads() == 1 {
        return vec![T::default(); length];
    }
    let blocks: Vec<[T; BLOCK]> = rayon::iter::repeat_n([T::default(); BLOCK], length.div_ceil(BLOCK)).collect();
    let mut zeros = blocks.into_flattened();
    zeros.truncate(length);
    zeros
}

/// Zeros that begin at the beginning of a cache line, so that no vector of theirs lies in two.
#[derive(Debug)]
pub(crate) struct Aligned {
    numbers: Vec<f32>,
    start: usize,
}

impl Aligned {
    /// `length` zeros.
    fn zeros(length: usize) -> Self {
        let numbers = zeros::<f32>(length + BLOCK - 1);
        let start = numbers.as_ptr().align_offset(4 * BLOCK).min(BLOCK - 1);
        Self { numbers, start }
    }
}

impl std::ops::Deref for Aligned {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.numbers[self.start..]
    }
}

impl std::ops::DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.numbers[self.start..]
    }
}
