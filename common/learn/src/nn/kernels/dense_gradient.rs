//! The gradients of a 3×3 convolution with padding 1.

use pulp::{Simd, WithSimd};

use super::dense::{Geometry, input_gradient};
use super::image::View;
use super::{arch, spread};

/// Output channels whose weights' gradients are computed at a time.
const PIECE: usize = 4;

/// The gradients of what went into a convolution; empty those that are not wanted.
#[derive(Debug)]
pub(crate) struct Gradients {
    /// Without a border.
    pub(crate) x: Vec<f32>,
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
}

/// The gradients, from the input with a border, and the gradient of the output.
///
/// Those of weights and bias are sums over the samples, the rows and the columns of the output, in this order.
pub(crate) fn gradients(
    g: Geometry,
    images: &[f32],
    weight: &[f32],
    gradient: View<'_>,
    [with_x, with_bias]: [bool; 2],
) -> Gradients {
    let padded = gradient.padded_images(g.samples, g.output());
    Gradients {
        x: if with_x { input_gradient(g, &padded, weight) } else { Vec::new() },
        weight: weight_gradient(g, images, &padded),
        bias: if with_bias { bias_gradient(g, &padded) } else { Vec::new() },
    }
}

fn bias_gradient(g: Geometry, gradients: &[f32]) -> Vec<f32> {
    let output = g.output();
    let mut sums = vec![0.0; g.outputs];
    for gradient in gradients.chunks_exact(output.padded()) {
        for pixel in gradient[output.row()..output.row() * (output.height + 1)].chunks_exact(g.outputs) {
            // The border is zero.
            sums.iter_mut().zip(pixel).for_each(|(sum, value)| *sum += value);
        }
    }
    sums
}

fn weight_gradient(g: Geometry, images: &[f32], gradients: &[f32]) -> Vec<f32> {
    let wide = g.input.wide_run();
    // By output, row of the kernel, and then column of the kernel and input.
    let mut sums = vec![0.0; g.outputs * 3 * wide];
    spread(sums.chunks_mut(PIECE * 3 * wide).enumerate(), |(piece, sums)| {
        arch().dispatch(WeightGradient { g, images, gradients, first: piece * PIECE, sums });
    });
    unpack_weights(g.input.channels, wide, &sums)
}

/// Weights in burn's order, [output, input, row, column], from sums by output, row, column and input.
pub(super) fn unpack_weights(inputs: usize, wide: usize, sums: &[f32]) -> Vec<f32> {
    let mut weights = vec![0.0; sums.len() / (3 * wide) * inputs * 9];
    for (weights, sums) in weights.chunks_exact_mut(9 * inputs).zip(sums.chunks_exact(3 * wide)) {
        for (i, weights) in weights.chunks_exact_mut(9).enumerate() {
            for (tap, weight) in weights.iter_mut().enumerate() {
                *weight = sums[tap / 3 * wide + tap % 3 * inputs + i];
            }
        }
    }
    weights
}

/// Of the weights of up to `PIECE` output channels, from `first` on.
struct WeightGradient<'a> {
    g: Geometry,
    images: &'a [f32],
    gradients: &'a [f32],
    first: usize,
    sums: &'a mut [f32],
}

impl WithSimd for WeightGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        if self.sums.len() == PIECE * 3 * self.g.input.wide_run() {
            self.samples::<S, PIECE>(simd);
        } else {
            for one in 0..self.sums.len() / (3 * self.g.input.wide_run()) {
                self.one(one).samples::<S, 1>(simd);
            }
        }
    }
}

impl WeightGradient<'_> {
    /// One channel of them.
    #[inline(always)]
    fn one(&mut self, at: usize) -> WeightGradient<'_> {
        let per_output = 3 * self.g.input.wide_run();
        let sums = &mut self.sums[at * per_output..][..per_output];
        WeightGradient { g: self.g, images: self.images, gradients: self.gradients, first: self.first + at, sums }
    }

    #[inline(always)]
    fn samples<S: Simd, const O: usize>(&mut self, simd: S) {
        let (input, output) = (self.g.input, self.g.output());
        let vectors = input.run().div_ceil(S::F32_LANES);
        // A tile of sums, the vectors that they share and a factor fit in the registers.
        let at_most = if S::F32_LANES == 16 { 3 } else { 2 };
        let samples = self.images.chunks_exact(input.padded()).zip(self.gradients.chunks_exact(output.padded()));
        for (image, gradient) in samples {
            for ky in 0..3 {
                let mut done = 0;
                while done < vectors {
                    let at = done * S::F32_LANES;
                    match at_most.min(vectors - done) {
                        1 => self.tile::<S, O, 1>(simd, image, gradient, [ky, at]),
                        2 => self.tile::<S, O, 2>(simd, image, gradient, [ky, at]),
                        _ => self.tile::<S, O, 3>(simd, image, gradient, [ky, at]),
                    }
                    done += at_most;
                }
            }
        }
    }

    /// Adds what a sample gives to `V` vectors of the sums of a row of the kernel, from number `at` on.
    #[inline(always)]
    fn tile<S: Simd, const O: usize, const V: usize>(
        &mut self,
        simd: S,
        image: &[f32],
        gradient: &[f32],
        [ky, at]: [usize; 2],
    ) {
        let (g, input, output) = (self.g, self.g.input, self.g.output());
        let (wide, length) = (input.wide_run(), V * S::F32_LANES);
        let mut totals = [[simd.splat_f32s(0.0); V]; O];
        for (o, total) in totals.iter_mut().enumerate() {
            total.copy_from_slice(S::as_simd_f32s(&self.sums[(3 * o + ky) * wide + at..][..length]).0);
        }
        for y in 0..output.height {
            let image = &image[(y * g.stride + ky) * input.row() + at..];
            let gradient = &gradient[(y + 1) * output.row() + g.outputs + self.first..];
            for x in 0..output.width {
                let run = S::as_simd_f32s(&image[x * g.stride * input.channels..][..length]).0;
                for (total, value) in totals.iter_mut().zip(&gradient[x * g.outputs..][..O]) {
                    let value = simd.splat_f32s(*value);
                    for (total, number) in total.iter_mut().zip(run) {
                        *total = simd.mul_add_f32s(value, *number, *total);
                    }
                }
            }
        }
        for (o, total) in totals.iter().enumerate() {
            S::as_mut_simd_f32s(&mut self.sums[(3 * o + ky) * wide + at..][..length]).0.copy_from_slice(total);
        }
    }
}
