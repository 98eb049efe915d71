//! Spreads work over several threads, and allocates memory for its results.

use rayon::prelude::*;

use crate::BLOCK;

/// Calls `work` on every piece, on the threads of the current pool.
pub(crate) fn spread<T: Send>(pieces: impl ExactSizeIterator<Item = T>, work: impl Fn(T) + Send + Sync) {
    // A single piece, or a single thread, needs no distribution.
    if pieces.len() > 1 && rayon::current_num_threads() > 1 {
        pieces.collect::<Vec<_>>().into_par_iter().for_each(work);
    } else {
        pieces.for_each(work);
    }
}

/// Returns `length` zeros, written by the threads of the current pool: clearing reused memory takes a considerable part
/// of the time of the computation that fills it.
pub(crate) fn zeros<T: Copy + Default + Send + Sync>(length: usize) -> Vec<T> {
    // One thread clears a few numbers faster than several do.
    if length < 1 << 14 || rayon::current_num_threads() == 1 {
        return vec![T::default(); length];
    }
    let blocks: Vec<[T; BLOCK]> = rayon::iter::repeat_n([T::default(); BLOCK], length.div_ceil(BLOCK)).collect();
    let mut zeros = blocks.into_flattened();
    zeros.truncate(length);
    zeros
}

/// Numbers that begin at the beginning of a cache line, so that no vector of them spans two lines.
#[derive(Debug)]
pub struct Aligned {
    numbers: Vec<f32>,
    start: usize,
}

impl Aligned {
    pub(crate) fn zeros(length: usize) -> Self {
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
