//! Blocks of numbers as vectors of the CPU, and the innermost loop of convolutions and matrix products.

use pulp::{Simd, WithSimd};

use crate::BLOCK;

/// A kernel that computes a block of numbers at a time, as `V` vectors. Kernels that reuse a block do so for `P` rows
/// or pixels, as many as keep the sums in registers.
pub(crate) trait Blocked {
    type Output;

    fn run<S: Simd, const P: usize, const V: usize>(self, simd: S) -> Self::Output;
}

/// Runs a kernel with the number of vectors per block that the CPU's width requires.
pub(crate) struct ByWidth<K>(pub(super) K);

impl<K: Blocked> WithSimd for ByWidth<K> {
    type Output = K::Output;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> K::Output {
        match S::F32_LANES {
            16 => self.0.run::<S, 8, 1>(simd),
            8 => self.0.run::<S, 4, 2>(simd),
            4 => self.0.run::<S, 4, 4>(simd),
            _ => self.0.run::<S, 4, 16>(simd),
        }
    }
}

/// Returns `of(p)` for each p. `from_fn` and `map` of arrays are not inlined in every build, and the innermost loop then reads its
/// addresses from memory, which takes up to twice the time.
#[inline(always)]
pub(crate) fn each<T: Copy, const P: usize>(of: impl Fn(usize) -> T) -> [T; P] {
    let mut all = [of(0); P];
    for (p, one) in all.iter_mut().enumerate() {
        *one = of(p);
    }
    all
}

/// For each k in turn, adds `rows[p][k]` times the k-th block of `weights` to `sums[p]`; `V` vectors make a block.
#[inline(always)]
pub(crate) fn add_products<S: Simd, const P: usize, const V: usize>(
    simd: S,
    rows: [&[f32]; P],
    weights: &[f32],
    sums: &mut [[S::f32s; V]; P],
) {
    let weights = S::as_simd_f32s(weights).0;
    let terms = weights.len() / V;
    let rows: [_; P] = each(|p| &rows[p][..terms]);
    for (k, block) in (0..terms).zip(weights.chunks_exact(V)) {
        for (row, sums) in rows.iter().zip(sums.iter_mut()) {
            let factor = simd.splat_f32s(row[k]);
            for (sum, weight) in sums.iter_mut().zip(block) {
                *sum = simd.mul_add_f32s(factor, *weight, *sum);
            }
        }
    }
}

/// Loads a block of numbers; missing ones are zero.
#[inline(always)]
pub(crate) fn load<S: Simd, const V: usize>(simd: S, numbers: &[f32]) -> [S::f32s; V] {
    let mut block = [simd.splat_f32s(0.0); V];
    if numbers.len() < BLOCK {
        let mut padded = [0.0; BLOCK];
        padded[..numbers.len()].copy_from_slice(numbers);
        block.copy_from_slice(S::as_simd_f32s(&padded).0);
    } else {
        // With a constant length, this is a single load.
        block.copy_from_slice(S::as_simd_f32s(&numbers[..BLOCK]).0);
    }
    block
}

/// Stores the first numbers of a block, as many as `to` has room for.
#[inline(always)]
pub(crate) fn store<S: Simd, const V: usize>(block: [S::f32s; V], to: &mut [f32]) {
    if to.len() < BLOCK {
        let mut numbers = [0.0; BLOCK];
        S::as_mut_simd_f32s(&mut numbers).0.copy_from_slice(&block);
        to.copy_from_slice(&numbers[..to.len()]);
    } else {
        S::as_mut_simd_f32s(&mut to[..BLOCK]).0.copy_from_slice(&block);
    }
}
