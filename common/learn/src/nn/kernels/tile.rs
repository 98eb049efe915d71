//! The innermost loop of convolutions and matrix products.

use pulp::Simd;

use super::BLOCK;

/// Adds to `sums[p]`, for each k in turn, `rows[p][k]` times the k-th block of `weights`; `V` vectors make a block.
#[inline(always)]
pub(super) fn add_products<S: Simd, const P: usize, const V: usize>(
    simd: S,
    rows: [&[f32]; P],
    weights: &[f32],
    sums: &mut [[S::f32s; V]; P],
) {
    let weights = S::as_simd_f32s(weights).0;
    let terms = weights.len() / V;
    let rows = rows.map(|row| &row[..terms]);
    for (k, block) in (0..terms).zip(weights.chunks_exact(V)) {
        for (row, sums) in rows.iter().zip(sums.iter_mut()) {
            let factor = simd.splat_f32s(row[k]);
            for (sum, weight) in sums.iter_mut().zip(block) {
                *sum = simd.mul_add_f32s(factor, *weight, *sum);
            }
        }
    }
}

/// The numbers of `V` vectors, which make a block.
#[inline(always)]
pub(super) fn numbers<S: Simd, const V: usize>(vectors: [S::f32s; V]) -> [f32; BLOCK] {
    let mut numbers = [0.0; BLOCK];
    S::as_mut_simd_f32s(&mut numbers).0.copy_from_slice(&vectors);
    numbers
}

/// The `V` vectors of a block, from numbers that may be fewer: the others are zero.
#[inline(always)]
pub(super) fn vectors<S: Simd, const V: usize>(simd: S, numbers: &[f32]) -> [S::f32s; V] {
    let mut block = [0.0; BLOCK];
    let length = numbers.len().min(BLOCK);
    block[..length].copy_from_slice(&numbers[..length]);
    let mut vectors = [simd.splat_f32s(0.0); V];
    vectors.copy_from_slice(S::as_simd_f32s(&block).0);
    vectors
}
