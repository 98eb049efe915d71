//! The gradients of a convolution with ReLU and pooling.
//!
//! Pooling selects one of four pixels, and it only has a gradient if ReLU lets it through: both sums need less than a
//! quarter of the multiplications of a dense convolution.

use pulp::{Simd, WithSimd};

use crate::conv_relu_pool::{DEAD, ForwardState};
use crate::conv3x3::Geometry;
use crate::conv3x3_gradient::{ConvGradients, unpack_weights};
use crate::image::ImageView;
use crate::instructions::arch;
use crate::{Aligned, spread, zeros};

/// The number of output channels whose weights' gradients are computed at a time.
const PIECE: usize = 8;

/// Calls a function for all vectors of a run: `V` at a time, from number `at` on.
macro_rules! in_vectors {
    ($S:ident, $g:ident, |$at:ident, $V:ident| $call:expr) => {
        let vectors = $g.input.run().div_ceil($S::F32_LANES);
        let mut done = 0;
        while done < vectors {
            let $at = done * $S::F32_LANES;
            // There should be as few groups as possible whose three rows of sums fit in the registers.
            done += match vectors - done {
                1 => in_vectors!(@group $V = 1, $call),
                2 => in_vectors!(@group $V = 2, $call),
                3 | 5 | 6 => in_vectors!(@group $V = 3, $call),
                _ => in_vectors!(@group $V = 4, $call),
            };
        }
    };
    (@group $V:ident = $count:literal, $call:expr) => {{
        const $V: usize = $count;
        $call;
        $V
    }};
}

/// Computes the gradients of the operands from the gradient of the output. The gradient of the input is only computed if `with_x` is set.
///
/// The gradients of weights and bias are sums over the samples and pooled pixels, row by row. `InputGradient` documents
/// the gradient of the input.
pub fn gradients(saved: &ForwardState, weight: &[f32], gradient: ImageView<'_>, with_x: bool) -> ConvGradients {
    let g = saved.geometry;
    let gradient = gradient.images(g.samples, g.pooled());
    let wide = g.input.wide_run();
    // The sums are indexed by output, row of the kernel, and then column of the kernel and input.
    let mut sums = vec![0.0; g.outputs * 3 * wide];
    let mut bias = vec![0.0; g.outputs];
    let pieces = sums.chunks_mut(PIECE * 3 * wide).zip(bias.chunks_mut(PIECE)).enumerate();
    spread(pieces, |(piece, (sums, bias))| {
        arch().dispatch(PooledWeightGradient { saved, gradient: &gradient, first: piece * PIECE, sums, bias });
    });
    let x = if with_x { input_gradient(saved, weight, &gradient) } else { Vec::new() };
    ConvGradients { x, weight: unpack_weights(g.input.channels, wide, &sums), bias }
}

/// A pixel with a gradient: the position of its patch or the output that it belongs to, and its value.
type Alive = (usize, f32);

/// Computes the gradient of the weights and biases of up to `PIECE` output channels, from `first` on.
struct PooledWeightGradient<'a> {
    saved: &'a ForwardState,
    gradient: &'a [f32],
    first: usize,
    sums: &'a mut [f32],
    bias: &'a mut [f32],
}

impl WithSimd for PooledWeightGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { saved, gradient, first, sums, bias } = self;
        let g = saved.geometry;
        let pixels = g.pooled().pixels();
        let mut lists = vec![(0, 0.0); bias.len() * pixels];
        let images = saved.images.chunks_exact(g.input.padded());
        let per_sample = g.pooled().numbers();
        let samples = images.zip(saved.chosen.chunks_exact(per_sample).zip(gradient.chunks_exact(per_sample)));
        for (image, (chosen, gradient)) in samples {
            let lengths = list_by_output(g, chosen, gradient, first..first + bias.len(), &mut lists);
            let lists = lists.chunks_exact(pixels).zip(lengths).map(|(list, length)| &list[..length]);
            for ((sums, bias), list) in sums.chunks_exact_mut(3 * g.input.wide_run()).zip(bias.iter_mut()).zip(lists) {
                for (_, value) in list {
                    *bias += value;
                }
                in_vectors!(S, g, |at, V| add_patches::<S, V>(simd, g, list, &image[at..], &mut sums[at..]));
            }
        }
    }
}

/// Lists the pixels of a sample that have a gradient, for each of the `outputs`. Returns the length of each list.
#[inline(always)]
fn list_by_output(
    g: Geometry,
    chosen: &[u32],
    gradient: &[f32],
    outputs: std::ops::Range<usize>,
    lists: &mut [Alive],
) -> [usize; PIECE] {
    let (mut lengths, pixels) = ([0; PIECE], g.pooled().pixels());
    for (chosen, gradient) in chosen.chunks_exact(g.outputs).zip(gradient.chunks_exact(g.outputs)) {
        let numbers = chosen[outputs.clone()].iter().zip(&gradient[outputs.clone()]);
        for (o, ((chosen, value), length)) in numbers.zip(&mut lengths).enumerate() {
            lists[o * pixels + *length] = (*chosen as usize, *value);
            *length += usize::from(*chosen != DEAD);
        }
    }
    lengths
}

/// Adds the patches of a list, each multiplied by its value, to `V` vectors of each of the three runs of sums.
#[inline(always)]
fn add_patches<S: Simd, const V: usize>(simd: S, g: Geometry, list: &[Alive], image: &[f32], sums: &mut [f32]) {
    let (row, wide, length) = (g.input.row(), g.input.wide_run(), V * S::F32_LANES);
    let mut totals = [[simd.splat_f32s(0.0); V]; 3];
    for (total, sums) in totals.iter_mut().zip(sums.chunks(wide)) {
        total.copy_from_slice(S::as_simd_f32s(&sums[..length]).0);
    }
    for (start, value) in list {
        let value = simd.splat_f32s(*value);
        let patch = &image[*start..][..2 * row + length];
        for (ky, total) in totals.iter_mut().enumerate() {
            for (total, number) in total.iter_mut().zip(S::as_simd_f32s(&patch[ky * row..][..length]).0) {
                *total = simd.mul_add_f32s(value, *number, *total);
            }
        }
    }
    for (total, sums) in totals.iter().zip(sums.chunks_mut(wide)) {
        S::as_mut_simd_f32s(&mut sums[..length]).0.copy_from_slice(total);
    }
}

fn input_gradient(saved: &ForwardState, weight: &[f32], gradient: &[f32]) -> Vec<f32> {
    let g = saved.geometry;
    let (inputs, wide, per_sample) = (g.input.channels, g.input.wide_run(), g.pooled().numbers());
    // The weights are indexed by output, row of the kernel, and then column of the kernel and input.
    let mut packed = Aligned::zeros(g.outputs * 3 * wide);
    for (packed, weight) in packed.chunks_exact_mut(3 * wide).zip(weight.chunks_exact(9 * inputs)) {
        for (i, weight) in weight.chunks_exact(9).enumerate() {
            for (tap, weight) in weight.iter().enumerate() {
                packed[tap / 3 * wide + tap % 3 * inputs + i] = *weight;
            }
        }
    }
    let mut x = zeros(g.samples * g.input.numbers());
    let samples = saved.chosen.chunks_exact(per_sample).zip(gradient.chunks_exact(per_sample));
    spread(x.chunks_exact_mut(g.input.numbers()).zip(samples), |(x, (chosen, gradient))| {
        let mut image = Aligned::zeros(g.input.padded());
        arch().dispatch(InputGradient { g, chosen, gradient, packed: &packed, image: &mut image });
        let (row, pixel) = (g.input.row(), inputs);
        for (to, from) in x.chunks_exact_mut(g.input.width * pixel).zip(image[row..].chunks_exact(row)) {
            to.copy_from_slice(&from[pixel..row - pixel]);
        }
    });
    x
}

/// Computes the gradient of the input of one sample, in an image with a border.
///
/// For each pooling window, row by row, and each of its four pixels, the weights of the outputs that chose this pixel
/// are added up in the order of the outputs; then this sum is added to the image.
struct InputGradient<'a> {
    g: Geometry,
    chosen: &'a [u32],
    gradient: &'a [f32],
    packed: &'a [f32],
    image: &'a mut [f32],
}

impl WithSimd for InputGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { g, chosen, gradient, packed, image } = self;
        let (row, patches, width) = (g.input.row(), g.patches(), g.pooled().width);
        let mut lists = vec![(0, 0.0); 4 * g.outputs];
        let windows = chosen.chunks_exact(g.outputs).zip(gradient.chunks_exact(g.outputs));
        for (window, (chosen, gradient)) in windows.enumerate() {
            let start = 2 * (window / width * row + window % width * g.input.channels);
            let mut lengths = [0; 4];
            for (o, (chosen, value)) in chosen.iter().zip(gradient).enumerate() {
                let offset = (*chosen as usize).wrapping_sub(start);
                let below = usize::from(offset >= row);
                let pixel = 2 * below + usize::from(offset != below * row);
                lists[pixel * g.outputs + lengths[pixel]] = (o * 3 * g.input.wide_run(), *value);
                lengths[pixel] += usize::from(*chosen != DEAD);
            }
            for ((list, length), offset) in lists.chunks_exact(g.outputs).zip(lengths).zip(patches) {
                let (list, patch) = (&list[..length], &mut image[start + offset..]);
                in_vectors!(S, g, |at, V| add_weights::<S, V>(simd, g, list, &packed[at..], &mut patch[at..]));
            }
        }
    }
}

/// Adds the weights of a list, each multiplied by its value, to `V` vectors of each of the three runs of a patch.
#[inline(always)]
fn add_weights<S: Simd, const V: usize>(simd: S, g: Geometry, list: &[Alive], packed: &[f32], patch: &mut [f32]) {
    let (row, wide, length) = (g.input.row(), g.input.wide_run(), V * S::F32_LANES);
    let mut totals = [[simd.splat_f32s(0.0); V]; 3];
    for (start, value) in list {
        let value = simd.splat_f32s(*value);
        let weights = &packed[*start..][..2 * wide + length];
        for (ky, total) in totals.iter_mut().enumerate() {
            for (total, weight) in total.iter_mut().zip(S::as_simd_f32s(&weights[ky * wide..][..length]).0) {
                *total = simd.mul_add_f32s(value, *weight, *total);
            }
        }
    }
    for (ky, total) in totals.iter().enumerate() {
        for (number, total) in S::as_mut_simd_f32s(&mut patch[ky * row..][..length]).0.iter_mut().zip(total) {
            *number = simd.add_f32s(*number, *total);
        }
    }
}
