//! Matrix products, for fully connected layers.

use pulp::Simd;

use crate::instructions::by_width;
use crate::tile::{Blocked, load, store};
use crate::{BLOCK, spread, zeros};

/// The number of rows of a product in one piece, which a thread computes.
const PIECE: usize = 32;

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
    Product { left, rows: x.rows, right: Right::new(weight), bias: Some(bias) }.numbers()
}

/// Returns `gradient · weightᵀ`: each number is the sum over the columns of the gradient in their order.
pub fn input_gradient(gradient: Matrix<'_>, weight: Matrix<'_>) -> Vec<f32> {
    // The gradient is transposed rather than the weight, which is far larger.
    let columns = transposed(gradient);
    let right = Right::new(Matrix { numbers: &columns, rows: gradient.columns, columns: gradient.rows });
    let left = Left { numbers: weight.numbers, row: weight.columns, term: 1 };
    let product = Product { left, rows: weight.rows, right, bias: None };
    transposed(Matrix { numbers: &product.numbers(), rows: weight.rows, columns: gradient.rows })
}

/// Returns the transpose, in row-major order.
fn transposed(Matrix { numbers, rows, columns }: Matrix<'_>) -> Vec<f32> {
    let mut result = vec![0.0; rows * columns];
    // A cache line of each row of the result is written at a time.
    for first in (0..rows).step_by(BLOCK) {
        let lines = &numbers[first * columns..];
        for (column, row) in result.chunks_exact_mut(rows).enumerate() {
            for (number, line) in row[first..].iter_mut().take(BLOCK).zip(lines.chunks_exact(columns)) {
                *number = line[column];
            }
        }
    }
    result
}

/// Returns `xᵀ · gradient`: each number is the sum over the samples in their order.
pub fn weight_gradient<'a>(x: Matrix<'a>, gradient: Matrix<'a>) -> Product<'a> {
    let left = Left { numbers: x.numbers, row: 1, term: x.columns };
    Product { left, rows: x.columns, right: Right::new(gradient), bias: None }
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
    numbers: &'a [f32],
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
        Self { numbers, tail, rows, columns }
    }

    /// Returns the block of columns from `first` on, and the distance between its rows.
    fn block(&self, first: usize) -> (&[f32], usize) {
        if first + BLOCK > self.columns && !self.tail.is_empty() {
            (&self.tail, BLOCK)
        } else {
            (&self.numbers[first..], self.columns)
        }
    }
}

/// A product of two matrices, which is often far larger than they are.
pub struct Product<'a> {
    left: Left<'a>,
    rows: usize,
    right: Right<'a>,
    bias: Option<&'a [f32]>,
}

impl Product<'_> {
    /// Returns the numbers in row-major order.
    pub fn numbers(&self) -> Vec<f32> {
        let count = self.rows * self.right.columns;
        if rayon::current_num_threads() == 1 {
            // Memory that is written once need not be cleared before.
            let mut result = Vec::with_capacity(count);
            self.in_pieces(|piece| result.extend_from_slice(piece));
            return result;
        }
        let mut result = zeros(count);
        spread(result.chunks_mut(PIECE * self.right.columns).enumerate(), |(at, piece)| self.compute(at, piece));
        result
    }

    /// Computes the numbers in row-major order, and calls `visit` for each piece of them while it is in a cache.
    pub fn in_pieces(&self, mut visit: impl FnMut(&[f32])) {
        let mut buffer = vec![0.0; self.rows.min(PIECE) * self.right.columns];
        for at in 0..self.rows.div_ceil(PIECE) {
            let piece = &mut buffer[..(self.rows - at * PIECE).min(PIECE) * self.right.columns];
            self.compute(at, piece);
            visit(piece);
        }
    }

    fn compute(&self, piece: usize, result: &mut [f32]) {
        let left = Left { numbers: &self.left.numbers[piece * PIECE * self.left.row..], ..self.left };
        by_width(Piece { left, right: &self.right, bias: self.bias, result });
    }
}

/// Successive rows of a product.
struct Piece<'a> {
    left: Left<'a>,
    right: &'a Right<'a>,
    bias: Option<&'a [f32]>,
    result: &'a mut [f32],
}

impl Blocked for Piece<'_> {
    type Output = ();

    /// Computes `P` rows at a time, as far as they go. For the last few rows, several blocks are computed together, so
    /// that a row of the right factor is read contiguously, and not one block of each row after the other.
    #[inline(always)]
    fn run<S: Simd, const P: usize, const V: usize>(mut self, simd: S) {
        let rows = self.result.len() / self.right.columns;
        let mut row = rows - rows % P;
        let mut first = 0;
        while first < self.right.columns {
            // The sums of two blocks fit in the registers if a block is one of them.
            let pair = V == 1 && first + 2 * BLOCK <= self.right.columns;
            for row in (0..row).step_by(P) {
                if pair { self.tile::<S, P, V, 2>(simd, row, first) } else { self.tile::<S, P, V, 1>(simd, row, first) }
            }
            first += if pair { 2 * BLOCK } else { BLOCK };
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

impl Piece<'_> {
    /// Computes `P` rows, with `C` blocks at a time as far as they go.
    #[inline(always)]
    fn rows<S: Simd, const P: usize, const V: usize, const C: usize>(&mut self, simd: S, row: usize) {
        let mut first = 0;
        while first + C * BLOCK <= self.right.columns {
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
