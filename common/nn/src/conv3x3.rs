//! A 3×3 convolution with padding 1, and the gradient of its input, which is a convolution as well.

use pulp::Simd;

use crate::image::{ImageView, Size};
use crate::instructions::by_width;
use crate::tile::{Blocked, add_products, each, load, store};
use crate::{Aligned, BLOCK, spread, zeros};

/// The sizes of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The number of images in the batch.
    pub samples: usize,
    /// The size of an input image.
    pub input: Size,
    /// The number of output channels.
    pub outputs: usize,
    /// The number of pixels from one patch to the next: 1 or 2.
    pub stride: usize,
}

impl Geometry {
    /// Returns the size of an output image.
    pub fn output(self) -> Size {
        let half = |length: usize| length.div_ceil(self.stride);
        Size { channels: self.outputs, height: half(self.input.height), width: half(self.input.width) }
    }

    /// Returns the size of an output image after 2×2 pooling. A last odd row or column is left out.
    pub fn pooled(self) -> Size {
        Size { channels: self.outputs, height: self.input.height / 2, width: self.input.width / 2 }
    }

    /// Returns the offsets of the four patches of a pooling window, relative to the window.
    pub(crate) fn patches(self) -> [usize; 4] {
        let (pixel, row) = (self.input.channels, self.input.row());
        [0, pixel, row, row + pixel]
    }
}

/// Returns the output, without a border, and the input with a border, which the gradient of the weights needs.
///
/// Each number is the sum over the rows of the kernel, its columns and the input channels, in this order, plus the bias.
pub fn forward(g: Geometry, x: ImageView<'_>, weight: &[f32], bias: &[f32]) -> (Vec<f32>, Aligned) {
    let mut images = Aligned::zeros(g.samples * g.input.padded());
    let mut result = zeros(g.samples * g.output().numbers());
    let pass = forward_pass(g, weight, bias);
    let samples = images.chunks_exact_mut(g.input.padded()).zip(result.chunks_exact_mut(g.output().numbers()));
    spread(samples.enumerate(), |(n, (image, result))| {
        x.copy_padded(n, g.input, image);
        by_width(RowCover { pass: &pass, image, result });
    });
    (result, images)
}

/// Returns only the output.
pub fn forward_only(g: Geometry, x: ImageView<'_>, weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let mut result = zeros(g.samples * g.output().numbers());
    let pass = forward_pass(g, weight, bias);
    let samples = result.chunks_exact_mut(g.output().numbers()).enumerate();
    spread(samples, |(n, result)| {
        by_width(RowCover { pass: &pass, image: &x.padded_image(n, g.input), result });
    });
    result
}

fn forward_pass<'a>(g: Geometry, weight: &[f32], bias: &'a [f32]) -> Pass<'a> {
    let (inputs, output) = (g.input.channels, g.output());
    Pass {
        runs: (0..3).map(|ky| RowRun { offset: ky * g.input.row(), length: g.input.run() }).collect(),
        packed: pack(g.outputs, 9, inputs, |o, tap, i| weight[(o * inputs + i) * 9 + tap]),
        bias: Some(bias),
        size: output,
        from: KernelSteps { start: 0, row: g.stride * g.input.row(), pixel: g.stride * inputs },
        to: KernelSteps { start: 0, row: output.width * g.outputs, pixel: g.outputs },
    }
}

/// Returns the gradient of the input, without a border, and that of the output with a border.
///
/// Each number is the sum over rows, columns and channels of the output's gradient, in this order.
pub(crate) fn input_gradient(g: Geometry, gradient: ImageView<'_>, weight: &[f32]) -> (Vec<f32>, Aligned) {
    let passes: Vec<Pass<'_>> = (0..g.stride * g.stride)
        .map(|class| input_gradient_pass(g, weight, [class / g.stride, class % g.stride]))
        .collect();
    let mut padded = Aligned::zeros(g.samples * g.output().padded());
    let mut result = zeros(g.samples * g.input.numbers());
    let samples = padded.chunks_exact_mut(g.output().padded()).zip(result.chunks_exact_mut(g.input.numbers()));
    spread(samples.enumerate(), |(n, (padded, result))| {
        gradient.copy_padded(n, g.output(), padded);
        for pass in &passes {
            by_width(RowCover { pass, image: padded, result });
        }
    });
    (result, padded)
}

/// Prepares the pass over input pixels whose row and column have these remainders modulo the stride: the same weights reach all of them.
fn input_gradient_pass<'a>(g: Geometry, weight: &[f32], remainders: [usize; 2]) -> Pass<'a> {
    let (inputs, output) = (g.input.channels, g.output());
    // Input pixel `stride · a + remainder` contributes to output pixel `a + near - 1` through this row or column of the kernel.
    let reached = |remainder: usize| {
        let of_kernel = move |near: usize| (remainder + 1 + g.stride).checked_sub(g.stride * near).filter(|k| *k < 3);
        (0..3).filter_map(move |near| Some((near, of_kernel(near)?)))
    };
    let [rows, columns] = remainders.map(|remainder| reached(remainder).collect::<Vec<_>>());
    let taps: Vec<usize> = rows.iter().flat_map(|(_, ky)| columns.iter().map(move |(_, kx)| 3 * ky + kx)).collect();
    let run = |near: &(usize, usize)| RowRun {
        offset: near.0 * output.row() + columns[0].0 * g.outputs,
        length: columns.len() * g.outputs,
    };
    let count = |length: usize, remainder: usize| (length + g.stride - 1 - remainder) / g.stride;
    let row = g.input.width * inputs;
    Pass {
        runs: rows.iter().map(run).collect(),
        packed: pack(inputs, taps.len(), g.outputs, |i, tap, o| weight[(o * inputs + i) * 9 + taps[tap]]),
        bias: None,
        size: Size {
            channels: inputs,
            height: count(g.input.height, remainders[0]),
            width: count(g.input.width, remainders[1]),
        },
        from: KernelSteps { start: 0, row: output.row(), pixel: g.outputs },
        to: KernelSteps {
            start: remainders[0] * row + remainders[1] * inputs,
            row: g.stride * row,
            pixel: g.stride * inputs,
        },
    }
}

/// Reorders weights by block of results, then in the order of summation; the weights of a block are contiguous.
pub(crate) fn pack(
    results: usize,
    taps: usize,
    channels: usize,
    weight: impl Fn(usize, usize, usize) -> f32,
) -> Aligned {
    let mut packed = Aligned::zeros(results.div_ceil(BLOCK) * taps * channels * BLOCK);
    for (block, packed) in packed.chunks_exact_mut(taps * channels * BLOCK).enumerate() {
        let first = block * BLOCK;
        for (tap, packed) in packed.chunks_exact_mut(channels * BLOCK).enumerate() {
            for (channel, packed) in packed.chunks_exact_mut(BLOCK).enumerate() {
                for (result, packed) in (first..results).zip(packed) {
                    *packed = weight(result, tap, channel);
                }
            }
        }
    }
    packed
}

/// A run of neighbouring numbers to which weights are applied. `offset` is the distance of the first one from a pixel.
pub(crate) struct RowRun {
    offset: usize,
    length: usize,
}

/// The positions of the pixels of a grid.
struct KernelSteps {
    start: usize,
    row: usize,
    pixel: usize,
}

/// Applies weights to an image, pixel by pixel.
struct Pass<'a> {
    runs: Vec<RowRun>,
    packed: Aligned,
    bias: Option<&'a [f32]>,
    size: Size,
    from: KernelSteps,
    to: KernelSteps,
}

struct RowCover<'a> {
    pass: &'a Pass<'a>,
    image: &'a [f32],
    result: &'a mut [f32],
}

impl Blocked for RowCover<'_> {
    type Output = ();

    /// Computes `P` pixels of a row at a time, as far as they go.
    #[inline(always)]
    fn run<S: Simd, const P: usize, const V: usize>(mut self, simd: S) {
        let Pass { runs, packed, size, .. } = self.pass;
        let terms: usize = runs.iter().map(|run| run.length).sum();
        for (block, packed) in packed.chunks_exact(terms * BLOCK).take(size.channels.div_ceil(BLOCK)).enumerate() {
            for y in 0..size.height {
                let mut x = 0;
                while x + P <= size.width {
                    self.tile::<S, P, V>(simd, packed, block * BLOCK, [y, x]);
                    x += P;
                }
                while x + 4 <= size.width {
                    self.tile::<S, 4, V>(simd, packed, block * BLOCK, [y, x]);
                    x += 4;
                }
                while x < size.width {
                    self.tile::<S, 1, V>(simd, packed, block * BLOCK, [y, x]);
                    x += 1;
                }
            }
        }
    }
}

impl RowCover<'_> {
    #[inline(always)]
    fn tile<S: Simd, const P: usize, const V: usize>(
        &mut self,
        simd: S,
        packed: &[f32],
        first: usize,
        [y, x]: [usize; 2],
    ) {
        let Pass { runs, bias, size, from, to, .. } = self.pass;
        let mut sums = [[simd.splat_f32s(0.0); V]; P];
        let (start, mut done) = (from.start + y * from.row + x * from.pixel, 0);
        for run in runs {
            let pixel = |p: usize| &self.image[start + run.offset + p * from.pixel..][..run.length];
            add_products(simd, each(pixel), &packed[done * BLOCK..][..run.length * BLOCK], &mut sums);
            done += run.length;
        }
        if let Some(bias) = bias {
            let bias = load::<S, V>(simd, &bias[first..]);
            for (sum, bias) in sums.iter_mut().flat_map(|sums| sums.iter_mut().zip(bias)) {
                *sum = simd.add_f32s(*sum, bias);
            }
        }
        let width = BLOCK.min(size.channels - first);
        for (p, sums) in sums.into_iter().enumerate() {
            store::<S, V>(sums, &mut self.result[to.start + y * to.row + (x + p) * to.pixel + first..][..width]);
        }
    }
}
