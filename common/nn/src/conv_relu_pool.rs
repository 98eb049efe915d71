//! A 3×3 convolution with padding 1, ReLU and 2×2 max-pooling in one pass.

use pulp::Simd;

use crate::conv3x3::{Geometry, pack};
use crate::image::{ImageView, Size};
use crate::instructions::by_width;
use crate::tile::{Blocked, add_products, each, load, store};
use crate::{Aligned, BLOCK, spread, zeros};

/// The flag in [`ForwardState::chosen`] for an output that is zero, and so has no gradient.
pub(crate) const DEAD: u32 = 1 << 31;

/// Returns `true` if images of this size can be pooled, and their positions fit in a `ForwardState`.
pub fn takes(input: Size) -> bool {
    input.height >= 2 && input.width >= 2 && input.padded() < DEAD as usize
}

/// Results of the forward pass that the gradients need.
#[derive(Debug)]
pub struct ForwardState {
    /// The sizes of the operation.
    pub geometry: Geometry,
    pub(crate) images: Aligned,
    /// For each sample, pooled pixel and output channel, the position in the image of the patch with the largest number.
    pub(crate) chosen: Vec<u32>,
}

/// Returns the output, channels last, and the state that the gradients need.
///
/// Each number before pooling is summed as in a dense convolution; the bias is added after pooling, with the same result.
pub fn forward(g: Geometry, x: ImageView<'_>, weight: &[f32], bias: &[f32]) -> (Vec<f32>, ForwardState) {
    let packed = packed(g, weight);
    let per_sample = g.pooled().numbers();
    let mut images = Aligned::zeros(g.samples * g.input.padded());
    let (mut output, mut chosen) = (zeros(g.samples * per_sample), zeros(g.samples * per_sample));
    let results = output.chunks_exact_mut(per_sample).zip(chosen.chunks_exact_mut(per_sample));
    let samples = images.chunks_exact_mut(g.input.padded()).zip(results).enumerate();
    spread(samples, |(n, (image, (output, chosen)))| {
        x.copy_padded(n, g.input, image);
        by_width(Forward { g, image, packed: &packed, bias, output, chosen });
    });
    (output, ForwardState { geometry: g, images, chosen })
}

/// Returns only the output.
pub fn forward_only(g: Geometry, x: ImageView<'_>, weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let packed = packed(g, weight);
    let per_sample = g.pooled().numbers();
    let mut output = zeros(g.samples * per_sample);
    spread(output.chunks_exact_mut(per_sample).enumerate(), |(n, output)| {
        let image = x.padded_image(n, g.input);
        by_width(Forward { g, image: &image, packed: &packed, bias, output, chosen: &mut [] });
    });
    output
}

fn packed(g: Geometry, weight: &[f32]) -> Aligned {
    let inputs = g.input.channels;
    pack(g.outputs, 9, inputs, |o, tap, i| weight[(o * inputs + i) * 9 + tap])
}

struct Forward<'a> {
    g: Geometry,
    image: &'a [f32],
    packed: &'a [f32],
    bias: &'a [f32],
    output: &'a mut [f32],
    /// The chosen patches; empty if no gradient will be computed.
    chosen: &'a mut [u32],
}

impl Blocked for Forward<'_> {
    type Output = ();

    /// Computes `P` pixels at a time, which is `P / 4` pooling windows, as far as they go.
    #[inline(always)]
    fn run<S: Simd, const P: usize, const V: usize>(mut self, simd: S) {
        let output = self.g.pooled();
        let packed = self.packed;
        let blocks = packed.chunks_exact(9 * self.g.input.channels * BLOCK).take(self.g.outputs.div_ceil(BLOCK));
        for (block, packed) in blocks.enumerate() {
            let first = block * BLOCK;
            for y in 0..output.height {
                let mut x = 0;
                while x + P / 4 <= output.width {
                    self.windows::<S, P, V>(simd, packed, first, [y, x]);
                    x += P / 4;
                }
                while x < output.width {
                    self.windows::<S, 4, V>(simd, packed, first, [y, x]);
                    x += 1;
                }
            }
        }
    }
}

impl Forward<'_> {
    #[inline(always)]
    fn windows<S: Simd, const P: usize, const V: usize>(
        &mut self,
        simd: S,
        packed: &[f32],
        first: usize,
        [y, x]: [usize; 2],
    ) {
        let (row, run, patches) = (self.g.input.row(), self.g.input.run(), self.g.patches());
        let g = self.g;
        let start = |window: usize| 2 * (y * row + (x + window) * g.input.channels);
        let mut sums = [[simd.splat_f32s(0.0); V]; P];
        for (ky, packed) in packed.chunks_exact(run * BLOCK).enumerate() {
            let patch = |p: usize| &self.image[start(p / 4) + patches[p % 4] + ky * row..][..run];
            add_products(simd, each(patch), packed, &mut sums);
        }
        let bias = load::<S, V>(simd, &self.bias[first..]);
        for (window, sums) in sums.as_chunks::<4>().0.iter().enumerate() {
            let at = (y * g.pooled().width + x + window) * g.outputs + first;
            self.pool::<S, V>(simd, sums, bias, [at, first, start(window)]);
        }
    }

    /// Writes the largest of four numbers, and the position of its patch, for the block of channels from `first` on.
    #[inline(always)]
    fn pool<S: Simd, const V: usize>(
        &mut self,
        simd: S,
        sums: &[[S::f32s; V]; 4],
        bias: [S::f32s; V],
        [at, first, start]: [usize; 3],
    ) {
        let zero = simd.splat_f32s(0.0);
        let patches = self.g.patches();
        let starts: [_; 4] = each(|p| simd.splat_u32s((start + patches[p]) as u32));
        let (mut values, mut chosen) = ([zero; V], [0; BLOCK]);
        let chosen_vectors = S::as_mut_simd_u32s(&mut chosen).0;
        for v in 0..V {
            let (mut largest, mut which) = (sums[0][v], starts[0]);
            for (sums, start) in sums.iter().zip(starts).skip(1) {
                let is_larger = simd.greater_than_f32s(sums[v], largest);
                largest = simd.select_f32s(is_larger, sums[v], largest);
                which = simd.select_u32s(is_larger, start, which);
            }
            let value = simd.add_f32s(largest, bias[v]);
            let is_alive = simd.greater_than_f32s(value, zero);
            values[v] = simd.select_f32s(is_alive, value, zero);
            chosen_vectors[v] = simd.select_u32s(is_alive, which, simd.splat_u32s(DEAD));
        }
        let width = BLOCK.min(self.g.outputs - first);
        store::<S, V>(values, &mut self.output[at..][..width]);
        if !self.chosen.is_empty() {
            self.chosen[at..][..width].copy_from_slice(&chosen[..width]);
        }
    }
}
