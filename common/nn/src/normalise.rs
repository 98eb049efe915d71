//! The passes over pixels of which group and batch normalisation consist: sums by channel, the normalisation, and its gradient.

use std::ops::Range;

use pulp::Simd;

use crate::BLOCK;
use crate::image::Size;
use crate::tile::{Blocked, each, load, store};

/// The number of partial sums over pixels, each of which takes every fourth pixel.
const SUMS: usize = 4;

/// The terms of sums over pixels, one sum per channel.
pub(crate) trait Term: Copy {
    /// Adds a block of terms: those of the channels from `channel` on, at the pixel that begins at `at`.
    fn add<S: Simd, const V: usize>(self, simd: S, at: usize, channel: usize, width: usize, sums: &mut [S::f32s; V]);
}

/// Terms that are the numbers themselves.
#[derive(Clone, Copy)]
pub(crate) struct Plain<'a>(pub(crate) &'a [f32]);

impl Term for Plain<'_> {
    #[inline(always)]
    fn add<S: Simd, const V: usize>(self, simd: S, at: usize, channel: usize, width: usize, sums: &mut [S::f32s; V]) {
        let x = load::<S, V>(simd, &self.0[at + channel..][..width]);
        for (sum, x) in sums.iter_mut().zip(x) {
            *sum = simd.add_f32s(*sum, x);
        }
    }
}

/// Terms that are the squared differences between the numbers and a mean.
#[derive(Clone, Copy)]
pub(crate) struct Squares<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) means: &'a [f32],
}

impl Term for Squares<'_> {
    #[inline(always)]
    fn add<S: Simd, const V: usize>(self, simd: S, at: usize, channel: usize, width: usize, sums: &mut [S::f32s; V]) {
        let x = load::<S, V>(simd, &self.x[at + channel..][..width]);
        let means = load::<S, V>(simd, &self.means[channel..][..width]);
        for ((sum, x), mean) in sums.iter_mut().zip(x).zip(means) {
            let apart = simd.sub_f32s(x, mean);
            *sum = simd.mul_add_f32s(apart, apart, *sum);
        }
    }
}

/// Terms that are the gradient times the difference between the input and its mean.
#[derive(Clone, Copy)]
pub(crate) struct Products<'a> {
    pub(crate) gradient: &'a [f32],
    pub(crate) x: &'a [f32],
    pub(crate) means: &'a [f32],
}

impl Term for Products<'_> {
    #[inline(always)]
    fn add<S: Simd, const V: usize>(self, simd: S, at: usize, channel: usize, width: usize, sums: &mut [S::f32s; V]) {
        let gradient = load::<S, V>(simd, &self.gradient[at + channel..][..width]);
        let x = load::<S, V>(simd, &self.x[at + channel..][..width]);
        let means = load::<S, V>(simd, &self.means[channel..][..width]);
        for (((sum, gradient), x), mean) in sums.iter_mut().zip(gradient).zip(x).zip(means) {
            *sum = simd.mul_add_f32s(gradient, simd.sub_f32s(x, mean), *sum);
        }
    }
}

pub(crate) struct PixelSums<T> {
    pub(crate) channels: usize,
    /// The number of values in all pixels.
    pub(crate) count: usize,
    pub(crate) term: T,
}

impl<T: Term> Blocked for PixelSums<T> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<S: Simd, const P: usize, const V: usize>(self, simd: S) -> Vec<f32> {
        let Self { channels, count, term } = self;
        let mut result = vec![0.0; channels];
        for (first, result) in (0..).step_by(BLOCK).zip(result.chunks_mut(BLOCK)) {
            let mut sums = [[simd.splat_f32s(0.0); V]; SUMS];
            let mut at = 0;
            while at + SUMS * channels <= count {
                for sums in &mut sums {
                    term.add::<S, V>(simd, at, first, result.len(), sums);
                    at += channels;
                }
            }
            for sums in sums.iter_mut().take((count - at) / channels) {
                term.add::<S, V>(simd, at, first, result.len(), sums);
                at += channels;
            }
            let [a, b, c, d] = sums;
            let total = each(|v| simd.add_f32s(simd.add_f32s(a[v], b[v]), simd.add_f32s(c[v], d[v])));
            store::<S, V>(total, result);
        }
        result
    }
}

/// Multiplies and adds a number for each channel, adds the shortcut, and applies ReLU if `relu` is set.
pub(crate) struct Normalise<'a> {
    pub(crate) channels: usize,
    pub(crate) relu: bool,
    pub(crate) x: &'a [f32],
    /// The factor and the summand of each channel.
    pub(crate) factors: &'a [f32],
    pub(crate) terms: &'a [f32],
    pub(crate) shortcut: Option<&'a [f32]>,
    pub(crate) output: &'a mut [f32],
}

impl Blocked for Normalise<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const P: usize, const V: usize>(self, simd: S) {
        let Self { channels, relu, x, factors, terms, shortcut, output } = self;
        let zero = simd.splat_f32s(0.0);
        for first in (0..channels).step_by(BLOCK) {
            let width = BLOCK.min(channels - first);
            let factors = load::<S, V>(simd, &factors[first..][..width]);
            let terms = load::<S, V>(simd, &terms[first..][..width]);
            for at in (first..x.len()).step_by(channels) {
                let mut values = load::<S, V>(simd, &x[at..][..width]);
                for ((value, factor), term) in values.iter_mut().zip(factors).zip(terms) {
                    *value = simd.mul_add_f32s(*value, factor, term);
                }
                if let Some(shortcut) = shortcut {
                    for (value, more) in values.iter_mut().zip(load::<S, V>(simd, &shortcut[at..][..width])) {
                        *value = simd.add_f32s(*value, more);
                    }
                }
                if relu {
                    for value in &mut values {
                        *value = simd.select_f32s(simd.greater_than_f32s(*value, zero), *value, zero);
                    }
                }
                store::<S, V>(values, &mut output[at..][..width]);
            }
        }
    }
}

/// The coefficients of each channel: the gradient of an input is `gradient · factor + (input - mean) · of_x + term`.
#[derive(Default)]
pub(crate) struct Slopes {
    pub(crate) factors: Vec<f32>,
    pub(crate) of_x: Vec<f32>,
    pub(crate) terms: Vec<f32>,
    pub(crate) means: Vec<f32>,
}

pub(crate) struct NormInputGradient<'a> {
    pub(crate) slopes: &'a Slopes,
    /// The coefficients of the channels.
    pub(crate) channels: Range<usize>,
    pub(crate) input: &'a [f32],
    pub(crate) gradient: &'a [f32],
    pub(crate) x: &'a mut [f32],
}

impl Blocked for NormInputGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const P: usize, const V: usize>(self, simd: S) {
        let Self { slopes, channels: own, input, gradient, x } = self;
        let channels = own.len();
        for first in (0..channels).step_by(BLOCK) {
            let width = BLOCK.min(channels - first);
            let of = |numbers: &[f32]| load::<S, V>(simd, &numbers[own.start + first..][..width]);
            let (factors, of_x, terms, means) =
                (of(&slopes.factors), of(&slopes.of_x), of(&slopes.terms), of(&slopes.means));
            for at in (first..input.len()).step_by(channels) {
                let mut values = load::<S, V>(simd, &input[at..][..width]);
                let gradient = load::<S, V>(simd, &gradient[at..][..width]);
                for (v, value) in values.iter_mut().enumerate() {
                    let apart = simd.sub_f32s(*value, means[v]);
                    *value = simd.mul_add_f32s(gradient[v], factors[v], simd.mul_add_f32s(apart, of_x[v], terms[v]));
                }
                store::<S, V>(values, &mut x[at..][..width]);
            }
        }
    }
}

/// The sizes and constants of a normalisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormGeometry {
    /// The number of images in the batch.
    pub samples: usize,
    /// The size of an image.
    pub size: Size,
    /// The number of parts that are normalised by their own statistics: tasks, which have equally many successive images, or the groups of
    /// channels in each image.
    pub parts: usize,
    /// The number that is added to the variance.
    pub epsilon: f64,
    /// Whether ReLU follows.
    pub relu: bool,
}

/// The operands and results of the forward pass that the gradients need, channels last.
#[derive(Clone, Copy, Debug)]
pub struct NormForward<'a> {
    /// The input images.
    pub x: &'a [f32],
    /// The output, after ReLU if there is one.
    pub output: &'a [f32],
    /// The factors of the channels.
    pub gamma: &'a [f32],
}

/// The gradients of the operands of a normalisation.
#[derive(Debug)]
pub struct NormGradients {
    /// The gradient of the images.
    pub x: Vec<f32>,
    /// The gradient of the factors.
    pub gamma: Vec<f32>,
    /// The gradient of the summands.
    pub beta: Vec<f32>,
    /// The gradient of the shortcut, which is also that of the normalised numbers before the addition.
    pub shortcut: Vec<f32>,
}

/// Computes the gradient before ReLU.
pub(crate) fn before_relu(gradient: &mut [f32], output: &[f32]) {
    for (gradient, output) in gradient.iter_mut().zip(output) {
        *gradient = if *output > 0.0 { *gradient } else { 0.0 };
    }
}
