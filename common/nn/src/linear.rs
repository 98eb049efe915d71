//! Matrix products, for fully connected layers.

use pulp::Simd;

use crate::instructions::by_width;
use crate::tile::{Blocked, load, store};
use crate::{BLOCK, spread, zeros};

/// The number of rows or columns of a product in one parallel piece, in whole blocks.
const PIECE: usize = 32;

/// The number of columns that are transposed at a time: 16 KiB, which stay in a core's first cache while one row after
/// the other is written to them.
const PACKED_COLUMNS: usize = 256;

/// A matrix of `rows` rows and `columns` columns, in row-major order.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// The `rows × columns` values.
    pub numbers: &'a [f32],
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
}

/// Returns `x · weight + bias`: each number is the sum over the columns of `x` in their order, plus the bias.
pub fn forward(x: Matrix<'_>, weight: Matrix<'_>, bias: &[f32]) -> Vec<f32> {
    let left = Left { numbers: x.numbers, row: x.columns, term: 1 };
    multiply(left, x.rows, &Right::new(weight), Some(bias))
}

/// Returns `gradient · weightᵀ`: each number is the sum over the columns of the gradient in their order.
pub fn input_gradient(gradient: Matrix<'_>, weight: Matrix<'_>) -> Vec<f32> {
    let left = Left { numbers: gradient.numbers, row: gradient.columns, term: 1 };
    let rows = gradient.rows;
    // The columns of the result are computed a block at a time: a few rows of the weight fit in the cache, where they are transposed.
    let mut blocks = zeros(weight.rows * rows);
    let pieces = blocks.chunks_mut(PIECE * rows).zip(weight.numbers.chunks(PIECE * weight.columns));
    spread(pieces, |(blocks, numbers)| {
        let mut packed = vec![0.0; weight.columns * BLOCK];
        for (block, numbers) in blocks.chunks_mut(BLOCK * rows).zip(numbers.chunks(BLOCK * weight.columns)) {
            let right = Right::transposed(numbers, weight.columns, &mut packed);
            by_width(Product { left, right: &right, bias: None, result: block });
        }
    });
    let mut result = zeros(rows * weight.rows);
    for (first, block) in (0..weight.rows).step_by(BLOCK).zip(blocks.chunks(BLOCK * rows)) {
        let width = block.len() / rows;
        for (row, block) in result.chunks_exact_mut(weight.rows).zip(block.chunks_exact(width)) {
            row[first..first + width].copy_from_slice(block);
        }
    }
    result
}

/// Returns `xᵀ · gradient`: each number is the sum over the samples in their order.
pub fn weight_gradient(x: Matrix<'_>, gradient: Matrix<'_>) -> Vec<f32> {
    let left = Left { numbers: x.numbers, row: 1, term: x.columns };
    multiply(left, x.columns, &Right::new(gradient), None)
}

/// Returns the sums of the columns, over the rows in their order.
pub fn column_sums(gradient: Matrix<'_>) -> Vec<f32> {
    let mut sums = vec![0.0; gradient.columns];
    for row in gradient.numbers.chunks_exact(gradient.columns) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    sums
}

/// The left factor, with the distances between its rows and between the terms of a row's sums.
#[derive(Clone, Copy)]
struct Left<'a> {
    numbers: &'a [f32],
    row: usize,
    term: usize,
}

/// The right factor in blocks of columns.
struct Right<'a> {
    /// The whole blocks. `block` and `row` are the distances between blocks and between the rows of a block.
    numbers: &'a [f32],
    block: usize,
    row: usize,
    /// The last block, padded with zeros, if it is not whole.
    tail: Vec<f32>,
    rows: usize,
    columns: usize,
}

impl<'a> Right<'a> {
    fn new(Matrix { numbers, rows, columns }: Matrix<'a>) -> Self {
        let whole = columns / BLOCK * BLOCK;
        let mut tail = vec![0.0; if whole < columns { rows * BLOCK } else { 0 }];
        for (tail, row) in tail.chunks_exact_mut(BLOCK).zip(numbers.chunks_exact(columns)) {
            tail[..columns - whole].copy_from_slice(&row[whole..]);
        }
        Self { numbers, block: BLOCK, row: columns, tail, rows, columns }
    }

    /// Writes the transpose of at most [`BLOCK`] rows to `packed`.
    fn transposed(numbers: &[f32], columns: usize, packed: &'a mut [f32]) -> Self {
        for (at, packed) in packed.chunks_mut(PACKED_COLUMNS * BLOCK).enumerate() {
            for (lane, row) in numbers.chunks_exact(columns).enumerate() {
                let row = &row[at * PACKED_COLUMNS..];
                for (packed, number) in packed.as_chunks_mut::<BLOCK>().0.iter_mut().zip(row) {
                    packed[lane] = *number;
                }
            }
        }
        Self {
            numbers: packed,
            block: 0,
            row: BLOCK,
            tail: Vec::new(),
            rows: columns,
            columns: numbers.len() / columns,
        }
    }

    /// Returns the block of columns from `first` on, and the distance between its rows.
    fn block(&self, first: usize) -> (&[f32], usize) {
        if first + BLOCK > self.columns && !self.tail.is_empty() {
            (&self.tail, BLOCK)
        } else {
            (&self.numbers[first / BLOCK * self.block..], self.row)
        }
    }
}

fn multiply(left: Left<'_>, rows: usize, right: &Right<'_>, bias: Option<&[f32]>) -> Vec<f32> {
    let mut result = zeros(rows * right.columns);
    spread(result.chunks_mut(PIECE * right.columns).enumerate(), |(piece, result)| {
        let left = Left { numbers: &left.numbers[piece * PIECE * left.row..], ..left };
        by_width(Product { left, right, bias, result });
    });
    result
}

struct Product<'a> {
    left: Left<'a>,
    right: &'a Right<'a>,
    bias: Option<&'a [f32]>,
    result: &'a mut [f32],
}

impl Blocked for Product<'_> {
    type Output = ();

    /// Computes `P` rows at a time, as far as they go. For the last few rows, several blocks are computed together, so
    /// that a row of the right factor is read contiguously, and not one block of each row after the other.
    #[inline(always)]
    fn run<S: Simd, const P: usize, const V: usize>(mut self, simd: S) {
        let rows = self.result.len() / self.right.columns;
        let mut row = rows - rows % P;
        for first in (0..self.right.columns).step_by(BLOCK) {
            for row in (0..row).step_by(P) {
                self.tile::<S, P, V, 1>(simd, row, first);
            }
        }
        while row + 2 <= rows {
            self.rows::<S, 2, V, 2>(simd, row);
            row += 2;
        }
        if row < rows {
            self.rows::<S, 1, V, 4>(simd, row);
        }
    }
}

impl Product<'_> {
    /// Computes `P` rows, with `C` blocks at a time where blocks are contiguous.
    #[inline(always)]
    fn rows<S: Simd, const P: usize, const V: usize, const C: usize>(&mut self, simd: S, row: usize) {
        let mut first = 0;
        while self.right.block == BLOCK && first + C * BLOCK <= self.right.columns {
            self.tile::<S, P, V, C>(simd, row, first);
            first += C * BLOCK;
        }
        while first < self.right.columns {
            self.tile::<S, P, V, 1>(simd, row, first);
            first += BLOCK;
        }
    }

    /// Computes `P` rows of `C` contiguous blocks.
    #[inline(always)]
    fn tile<S: Simd, const P: usize, const V: usize, const C: usize>(&mut self, simd: S, row: usize, first: usize) {
        let mut sums = [[[simd.splat_f32s(0.0); V]; C]; P];
        let (blocks, next) = self.right.block(first);
        let left = &self.left.numbers[row * self.left.row..];
        for k in 0..self.right.rows {
            let blocks = S::as_simd_f32s(&blocks[k * next..][..C * BLOCK]).0;
            for (p, sums) in sums.iter_mut().enumerate() {
                let factor = simd.splat_f32s(left[p * self.left.row + k * self.left.term]);
                for (sum, number) in sums.as_flattened_mut().iter_mut().zip(blocks) {
                    *sum = simd.mul_add_f32s(factor, *number, *sum);
                }
            }
        }
        for (p, sums) in sums.into_iter().enumerate() {
            for (c, mut sums) in sums.into_iter().enumerate() {
                let first = first + c * BLOCK;
                let bias = self.bias.map(|bias| load::<S, V>(simd, &bias[first..]));
                for (sum, bias) in sums.iter_mut().zip(bias.iter().flatten()) {
                    *sum = simd.add_f32s(*sum, *bias);
                }
                let width = BLOCK.min(self.right.columns - first);
                store::<S, V>(sums, &mut self.result[(row + p) * self.right.columns + first..][..width]);
            }
        }
    }
}
