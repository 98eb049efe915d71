//! The gradients of a 3×3 convolution with padding 1.

use pulp::{Simd, WithSimd};

use crate::conv3x3::{Geometry, input_gradient};
use crate::image::ImageView;
use crate::instructions::arch;
use crate::spread;

/// The number of output channels whose sums are kept in registers at a time.
const TILE: usize = 4;

/// The gradients of the operands of a convolution; those that were not requested are empty.
#[derive(Debug)]
pub struct ConvGradients {
    /// The gradient of the images, without a border.
    pub x: Vec<f32>,
    /// The gradient of the weights, [output, input, row, column].
    pub weight: Vec<f32>,
    /// The gradient of the bias.
    pub bias: Vec<f32>,
}

/// Computes the gradients from the input with a border and the gradient of the output.
///
/// The gradients of weights and bias are sums over the samples, the rows and the columns of the output, in this order.
pub fn gradients(
    g: Geometry,
    images: &[f32],
    weight: &[f32],
    gradient: ImageView<'_>,
    [with_x, with_bias]: [bool; 2],
) -> ConvGradients {
    let (x, padded) = if with_x {
        input_gradient(g, gradient, weight)
    } else {
        (Vec::new(), gradient.padded_images(g.samples, g.output()))
    };
    ConvGradients {
        x,
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
    // The sums are indexed by output, row of the kernel, and then column of the kernel and input.
    let mut sums = vec![0.0; g.outputs * 3 * wide];
    // The number of pieces is small, because each one goes through all images.
    let piece = g.outputs.div_ceil(rayon::current_num_threads()).next_multiple_of(TILE);
    spread(sums.chunks_mut(piece * 3 * wide).enumerate(), |(index, sums)| {
        arch().dispatch(ConvWeightGradient { g, images, gradients, first: index * piece, sums });
    });
    unpack_weights(g.input.channels, wide, &sums)
}

/// Reorders weights to [output, input, row, column] from sums by output, row, column and input.
pub(crate) fn unpack_weights(inputs: usize, wide: usize, sums: &[f32]) -> Vec<f32> {
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

/// Computes the gradient of the weights of some output channels, from `first` on.
struct ConvWeightGradient<'a> {
    g: Geometry,
    images: &'a [f32],
    gradients: &'a [f32],
    first: usize,
    sums: &'a mut [f32],
}

impl WithSimd for ConvWeightGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let outputs = self.sums.len() / (3 * self.g.input.wide_run());
        let images = self.images.chunks_exact(self.g.input.padded());
        for (image, gradient) in images.zip(self.gradients.chunks_exact(self.g.output().padded())) {
            let mut done = 0;
            while done + TILE <= outputs {
                self.outputs::<S, TILE>(simd, image, gradient, done);
                done += TILE;
            }
            while done < outputs {
                self.outputs::<S, 1>(simd, image, gradient, done);
                done += 1;
            }
        }
    }
}

impl ConvWeightGradient<'_> {
    /// Adds the contribution of a sample to the sums of `O` outputs.
    #[inline(always)]
    fn outputs<S: Simd, const O: usize>(&mut self, simd: S, image: &[f32], gradient: &[f32], output: usize) {
        let vectors = self.g.input.run().div_ceil(S::F32_LANES);
        // A tile of sums, the vectors that they share and a factor must fit in the registers.
        let at_most = if S::F32_LANES == 16 { 3 } else { 2 };
        for ky in 0..3 {
            let mut done = 0;
            while done < vectors {
                let at = [output, ky, done * S::F32_LANES];
                match at_most.min(vectors - done) {
                    1 => self.tile::<S, O, 1>(simd, image, gradient, at),
                    2 => self.tile::<S, O, 2>(simd, image, gradient, at),
                    _ => self.tile::<S, O, 3>(simd, image, gradient, at),
                }
                done += at_most;
            }
        }
    }

    /// Adds the contribution of a sample to `V` vectors of the sums of `O` outputs and a row of the kernel, from number `at` on.
    #[inline(always)]
    fn tile<S: Simd, const O: usize, const V: usize>(
        &mut self,
        simd: S,
        image: &[f32],
        gradient: &[f32],
        [first, ky, at]: [usize; 3],
    ) {
        let (g, input, output) = (self.g, self.g.input, self.g.output());
        let (wide, length) = (input.wide_run(), V * S::F32_LANES);
        let mut totals = [[simd.splat_f32s(0.0); V]; O];
        for (o, total) in totals.iter_mut().enumerate() {
            total.copy_from_slice(S::as_simd_f32s(&self.sums[(3 * (first + o) + ky) * wide + at..][..length]).0);
        }
        for y in 0..output.height {
            let image = &image[(y * g.stride + ky) * input.row() + at..];
            let gradient = &gradient[(y + 1) * output.row() + g.outputs + self.first + first..];
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
            S::as_mut_simd_f32s(&mut self.sums[(3 * (first + o) + ky) * wide + at..][..length])
                .0
                .copy_from_slice(total);
        }
    }
}
