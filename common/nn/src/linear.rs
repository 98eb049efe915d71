//! Matrix products, for fully connected layers.

use std::ops::Range;

use pulp::Simd;

use crate::instructions::by_width;
use crate::tile::{Blocked, each, load, store};
use crate::{BLOCK, spread, zeros};

/// The number of values of a product that stay in a core's first cache while they are computed and used.
const PIECE: usize = 1 << 13;

/// The number of values of the right factor that are multiplied with all rows of a piece before the next ones: they stay in the
/// second cache, and their few rows are read from memory in order.
const PANEL: usize = 1 << 15;

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
    let left = Left { numbers: x.numbers, columns: x.columns, transposed: false };
    let mut result = Product { left, rows: x.rows, right: Right::new(weight) }.numbers();
    for row in result.chunks_exact_mut(bias.len()) {
        row.iter_mut().zip(bias).for_each(|(sum, bias)| *sum += bias);
    }
    result
}

/// Returns `gradient · weightᵀ`: each number is the sum over the columns of the gradient in their order.
pub fn input_gradient(gradient: Matrix<'_>, weight: Matrix<'_>) -> Vec<f32> {
    // The gradient is transposed rather than the weight, which is far larger.
    let columns = transposed(gradient);
    let right = Right::new(Matrix { numbers: &columns, rows: gradient.columns, columns: gradient.rows });
    let left = Left { numbers: weight.numbers, columns: weight.columns, transposed: false };
    let product = Product { left, rows: weight.rows, right };
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
    let left = Left { numbers: x.numbers, columns: x.columns, transposed: true };
    Product { left, rows: x.columns, right: Right::new(gradient) }
}

/// Returns the sums of the columns, over the rows in their order.
pub fn column_sums(gradient: Matrix<'_>) -> Vec<f32> {
    let mut sums = vec![0.0; gradient.columns];
    for row in gradient.numbers.chunks_exact(gradient.columns) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    sums
}

/// The left factor: a matrix of `columns` columns, or its transpose.
#[derive(Clone, Copy)]
struct Left<'a> {
    numbers: &'a [f32],
    columns: usize,
    transposed: bool,
}

impl Left<'_> {
    /// Returns the factor without its first rows.
    fn after(self, rows: usize) -> Self {
        let at = if self.transposed { rows } else { rows * self.columns };
        Self { numbers: &self.numbers[at..], ..self }
    }
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
}

impl Product<'_> {
    /// Returns the numbers in row-major order.
    pub fn numbers(&self) -> Vec<f32> {
        let mut result = zeros(self.rows * self.right.columns);
        let rows = self.rows_of_piece();
        spread(result.chunks_mut(rows * self.right.columns).enumerate(), |(at, piece)| self.compute(at * rows, piece));
        result
    }

    /// Computes the numbers in row-major order, and calls `visit` for each piece of them while it is in a cache.
    pub fn in_pieces(&self, mut visit: impl FnMut(&[f32])) {
        let mut buffer = vec![0.0; self.rows.min(self.rows_of_piece()) * self.right.columns];
        for first in (0..self.rows).step_by(self.rows_of_piece()) {
            let piece = &mut buffer[..(self.rows - first).min(self.rows_of_piece()) * self.right.columns];
            self.compute(first, piece);
            visit(piece);
        }
    }

    /// Returns the number of rows of a piece, a multiple of the 8 that are computed at a time: as many as stay in a core's first cache,
    /// or 32 if the right factor does not stay in the second, as it is read from memory for each piece.
    fn rows_of_piece(&self) -> usize {
        let columns = self.right.columns;
        if self.right.rows * columns > PANEL { 32 } else { (PIECE / columns / 8).max(1) * 8 }
    }

    /// Computes the rows from `first` on.
    fn compute(&self, first: usize, result: &mut [f32]) {
        by_width(Piece { left: self.left.after(first), right: &self.right, result, terms: 0..0 });
    }
}

/// Successive rows of a product.
struct Piece<'a> {
    left: Left<'a>,
    right: &'a Right<'a>,
    result: &'a mut [f32],
    /// The terms of each sum that are added now.
    terms: Range<usize>,
}

impl Blocked for Piece<'_> {
    type Output = ();

    /// Computes `P` rows at a time as far as they go, a panel of the right factor after the other.
    #[inline(always)]
    fn run<S: Simd, const P: usize, const V: usize>(mut self, simd: S) {
        let rows = self.result.len() / self.right.columns;
        let panel = (PANEL / self.right.columns).max(BLOCK);
        for first in (0..self.right.rows).step_by(panel) {
            self.terms = first..self.right.rows.min(first + panel);
            let mut row = 0;
            while row + P <= rows {
                // The sums of two blocks fit in the registers if a block is one of them.
                match V {
                    1 => self.rows::<S, P, V, 2>(simd, row),
                    _ => self.rows::<S, P, V, 1>(simd, row),
                }
                row += P;
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
}

impl Piece<'_> {
    /// Adds the terms to `P` rows, with `C` blocks at a time as far as they go.
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

    /// Adds the terms to `P` rows of `C` contiguous blocks.
    #[inline(always)]
    fn tile<S: Simd, const P: usize, const V: usize, const C: usize>(&mut self, simd: S, row: usize, first: usize) {
        let columns = self.right.columns;
        let own = |p: usize, c: usize| {
            let first = first + c * BLOCK;
            (row + p) * columns + first..(row + p) * columns + columns.min(first + BLOCK)
        };
        let mut sums = [[[simd.splat_f32s(0.0); V]; C]; P];
        if self.terms.start > 0 {
            for (p, sums) in sums.iter_mut().enumerate() {
                for (c, sums) in sums.iter_mut().enumerate() {
                    *sums = load(simd, &self.result[own(p, c)]);
                }
            }
        }
        let (blocks, next) = self.right.block(first);
        let block = |k: usize| &blocks[k * next..][..C * BLOCK];
        let left = self.left.after(row);
        if left.transposed {
            for k in self.terms.clone() {
                add(simd, left.numbers[k * left.columns..][..P].iter(), block(k), &mut sums);
            }
        } else {
            let rows: [_; P] = each(|p| &left.numbers[p * left.columns..][..self.terms.end]);
            for k in self.terms.clone() {
                add(simd, rows.iter().map(|row| &row[k]), block(k), &mut sums);
            }
        }
        for (p, sums) in sums.into_iter().enumerate() {
            for (c, sums) in sums.into_iter().enumerate() {
                store::<S, V>(sums, &mut self.result[own(p, c)]);
            }
        }
    }
}

/// Adds the products of a block with each row's factor to the sums of the rows.
#[inline(always)]
fn add<'a, S: Simd, const P: usize, const V: usize, const C: usize>(
    simd: S,
    factors: impl Iterator<Item = &'a f32>,
    block: &[f32],
    sums: &mut [[[S::f32s; V]; C]; P],
) {
    let block = S::as_simd_f32s(block).0;
    for (factor, sums) in factors.zip(sums) {
        let factor = simd.splat_f32s(*factor);
        for (sum, number) in sums.as_flattened_mut().iter_mut().zip(block) {
            *sum = simd.mul_add_f32s(factor, *number, *sum);
        }
    }
}
