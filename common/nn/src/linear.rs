//! Matrix products, for fully connected layers.

use pulp::Simd;

use crate::instructions::by_width;
use crate::tile::{Blocked, numbers, vectors};
use crate::{BLOCK, spread, zeros};

/// Rows of a product that are computed as one parallel piece.
const PIECE: usize = 32;

/// A matrix of `rows` rows and `columns` columns, row by row.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// `rows × columns` numbers.
    pub numbers: &'a [f32],
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
}

/// `x · weight + bias`: each number is the sum over the columns of `x` in their order, plus the bias.
pub fn forward(x: Matrix<'_>, weight: Matrix<'_>, bias: &[f32]) -> Vec<f32> {
    let left = Left { numbers: x.numbers, row: x.columns, term: 1 };
    multiply(left, x.rows, &Right::new(weight), Some(bias))
}

/// `gradient · weightᵀ`: each number is the sum over the columns of the gradient in their order.
pub fn input_gradient(gradient: Matrix<'_>, weight: Matrix<'_>) -> Vec<f32> {
    let left = Left { numbers: gradient.numbers, row: gradient.columns, term: 1 };
    multiply(left, gradient.rows, &Right::transposed(weight), None)
}

/// `xᵀ · gradient`: each number is the sum over the samples in their order.
pub fn weight_gradient(x: Matrix<'_>, gradient: Matrix<'_>) -> Vec<f32> {
    let left = Left { numbers: x.numbers, row: 1, term: x.columns };
    multiply(left, x.columns, &Right::new(gradient), None)
}

/// The sums of the columns, over the rows in their order.
pub fn column_sums(gradient: Matrix<'_>) -> Vec<f32> {
    let mut sums = vec![0.0; gradient.columns];
    for row in gradient.numbers.chunks_exact(gradient.columns) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    sums
}

/// The left factor: how far apart its rows, and the terms of a row's sums, lie.
#[derive(Clone, Copy)]
struct Left<'a> {
    numbers: &'a [f32],
    row: usize,
    term: usize,
}

/// The right factor in blocks of columns.
struct Right<'a> {
    /// Whole blocks: where the first begins, how far apart blocks and the rows of a block lie.
    numbers: std::borrow::Cow<'a, [f32]>,
    block: usize,
    row: usize,
    /// The last block, filled up with zeros, if it is not whole.
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
        Self { numbers: numbers.into(), block: BLOCK, row: columns, tail, rows, columns }
    }

    /// The transpose: all of it is copied, block by block.
    fn transposed(Matrix { numbers, rows, columns }: Matrix<'a>) -> Self {
        let mut packed = zeros(rows.div_ceil(BLOCK) * columns * BLOCK);
        let blocks = packed.chunks_exact_mut(columns * BLOCK).zip(numbers.chunks(columns * BLOCK));
        spread(blocks, |(packed, numbers)| {
            for (lane, row) in numbers.chunks_exact(columns).enumerate() {
                for (packed, number) in packed.chunks_exact_mut(BLOCK).zip(row) {
                    packed[lane] = *number;
                }
            }
        });
        let (block, row) = (columns * BLOCK, BLOCK);
        Self { numbers: packed.into(), block, row, tail: Vec::new(), rows: columns, columns: rows }
    }

    /// The block of columns from `first` on, and how far apart its rows lie.
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

/// Some rows of a product.
struct Product<'a> {
    left: Left<'a>,
    right: &'a Right<'a>,
    bias: Option<&'a [f32]>,
    result: &'a mut [f32],
}

impl Blocked for Product<'_> {
    type Output = ();

    /// `P` rows at a time, as far as they go.
    #[inline(always)]
    fn run<S: Simd, const P: usize, const V: usize>(mut self, simd: S) {
        let rows = self.result.len() / self.right.columns;
        for first in (0..self.right.columns).step_by(BLOCK) {
            let mut row = 0;
            while row + P <= rows {
                self.tile::<S, P, V>(simd, row, first);
                row += P;
            }
            while row + 2 <= rows {
                self.tile::<S, 2, V>(simd, row, first);
                row += 2;
            }
            if row < rows {
                self.tile::<S, 1, V>(simd, row, first);
            }
        }
    }
}

impl Product<'_> {
    #[inline(always)]
    fn tile<S: Simd, const P: usize, const V: usize>(&mut self, simd: S, row: usize, first: usize) {
        let mut sums = [[simd.splat_f32s(0.0); V]; P];
        let (block, next) = self.right.block(first);
        let left = &self.left.numbers[row * self.left.row..];
        for k in 0..self.right.rows {
            let block = S::as_simd_f32s(&block[k * next..][..BLOCK]).0;
            for (p, sums) in sums.iter_mut().enumerate() {
                let factor = simd.splat_f32s(left[p * self.left.row + k * self.left.term]);
                for (sum, number) in sums.iter_mut().zip(block) {
                    *sum = simd.mul_add_f32s(factor, *number, *sum);
                }
            }
        }
        let bias = self.bias.map(|bias| vectors::<S, V>(simd, &bias[first..]));
        let width = BLOCK.min(self.right.columns - first);
        for (p, mut sums) in sums.into_iter().enumerate() {
            for (sum, bias) in sums.iter_mut().zip(bias.iter().flatten()) {
                *sum = simd.add_f32s(*sum, *bias);
            }
            let result = &mut self.result[(row + p) * self.right.columns + first..][..width];
            result.copy_from_slice(&numbers::<S, V>(sums)[..width]);
        }
    }
}
