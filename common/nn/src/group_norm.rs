//! Group normalisation, followed by the addition and the ReLU of a residual network, and its gradients.
//!
//! Source: Wu and He, "Group Normalization", ECCV 2018.

use pulp::Simd;

use crate::image::Size;
use crate::instructions::by_width;
use crate::tile::{Blocked, load, store};
use crate::{BLOCK, spread, zeros};

/// The number of partial sums over pixels, each of which takes every fourth pixel.
const SUMS: usize = 4;

/// The sizes and constants of a normalisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupGeometry {
    /// The number of images in the batch.
    pub samples: usize,
    /// The size of an image.
    pub size: Size,
    /// The number of groups of channels.
    pub groups: usize,
    /// The number that is added to the variance.
    pub epsilon: f64,
    /// Whether ReLU follows.
    pub relu: bool,
}

/// The mean and scale of a group of channels in one sample.
#[derive(Clone, Copy, Debug, Default)]
pub struct Group {
    mean: f32,
    /// The reciprocal of the standard deviation.
    scale: f32,
}

/// Returns the output, and the statistics by sample and group. All images are channels last; `shortcut` is added before ReLU.
///
/// A sum over the numbers of a group has four partial sums per channel, each over every fourth pixel, which are then added up.
pub fn forward(
    g: GroupGeometry,
    x: &[f32],
    [gamma, beta]: [&[f32]; 2],
    shortcut: Option<&[f32]>,
) -> (Vec<f32>, Vec<Group>) {
    let per_sample = g.size.numbers();
    let mut output = zeros(x.len());
    let mut groups = vec![Group::default(); g.samples * g.groups];
    let samples = output.chunks_exact_mut(per_sample).zip(groups.chunks_exact_mut(g.groups)).enumerate();
    spread(samples, |(n, (output, groups))| {
        let own = n * per_sample..(n + 1) * per_sample;
        let (x, shortcut) = (&x[own.clone()], shortcut.map(|shortcut| &shortcut[own]));
        statistics(g, x, groups);
        let group = |channel: usize| groups[channel / (g.size.channels / g.groups)];
        let factors: Vec<f32> = gamma.iter().enumerate().map(|(c, gamma)| gamma * group(c).scale).collect();
        let terms = beta.iter().zip(&factors).enumerate();
        let terms: Vec<f32> = terms.map(|(c, (beta, factor))| beta - group(c).mean * factor).collect();
        by_width(Normalise { g, x, factors: &factors, terms: &terms, shortcut, output });
    });
    (output, groups)
}

fn statistics(g: GroupGeometry, x: &[f32], groups: &mut [Group]) {
    let (channels, per_group) = (g.size.channels, g.size.channels / g.groups);
    let count = (per_group * g.size.pixels()) as f64;
    let sums = by_width(PixelSums { channels, count: x.len(), term: Plain(x) });
    let mean = |sums: &[f32]| sums.iter().copied().map(f64::from).sum::<f64>() / count;
    for (group, sums) in groups.iter_mut().zip(sums.chunks_exact(per_group)) {
        group.mean = mean(sums) as f32;
    }
    let means: Vec<f32> = groups.iter().flat_map(|group| std::iter::repeat_n(group.mean, per_group)).collect();
    let squares = by_width(PixelSums { channels, count: x.len(), term: Squares { x, means: &means } });
    for (group, squares) in groups.iter_mut().zip(squares.chunks_exact(per_group)) {
        group.scale = (1.0 / (mean(squares) + g.epsilon).sqrt()) as f32;
    }
}

/// The terms of sums over pixels, one sum per channel.
pub(crate) trait Term: Copy {
    /// Adds a block of terms: those of the channels from `channel` on, at the pixel that begins at `at`.
    fn add<S: Simd, const V: usize>(self, simd: S, at: usize, channel: usize, width: usize, sums: &mut [S::f32s; V]);
}

/// Terms that are the numbers themselves.
#[derive(Clone, Copy)]
pub(crate) struct Plain<'a>(pub(super) &'a [f32]);

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
struct Squares<'a> {
    x: &'a [f32],
    means: &'a [f32],
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
            let total = std::array::from_fn(|v| simd.add_f32s(simd.add_f32s(a[v], b[v]), simd.add_f32s(c[v], d[v])));
            store::<S, V>(total, result);
        }
        result
    }
}

struct Normalise<'a> {
    g: GroupGeometry,
    x: &'a [f32],
    /// The factor and the summand of each channel.
    factors: &'a [f32],
    terms: &'a [f32],
    shortcut: Option<&'a [f32]>,
    output: &'a mut [f32],
}

impl Blocked for Normalise<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const P: usize, const V: usize>(self, simd: S) {
        let Self { g, x, factors, terms, shortcut, output } = self;
        let (channels, zero) = (g.size.channels, simd.splat_f32s(0.0));
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
                if g.relu {
                    for value in &mut values {
                        *value = simd.select_f32s(simd.greater_than_f32s(*value, zero), *value, zero);
                    }
                }
                store::<S, V>(values, &mut output[at..][..width]);
            }
        }
    }
}

/// The operands and results of the forward pass that the gradients need, channels last.
#[derive(Clone, Copy, Debug)]
pub struct GroupForward<'a> {
    /// The input images.
    pub x: &'a [f32],
    /// The output, after ReLU if there is one.
    pub output: &'a [f32],
    /// The statistics of the groups.
    pub groups: &'a [Group],
    /// The factors of the channels.
    pub gamma: &'a [f32],
}

/// The gradients of the operands of a normalisation.
#[derive(Debug)]
pub struct GroupGradients {
    /// The gradient of the images.
    pub x: Vec<f32>,
    /// The gradient of the factors.
    pub gamma: Vec<f32>,
    /// The gradient of the summands.
    pub beta: Vec<f32>,
    /// The gradient of the shortcut, which is also that of the normalised numbers before the addition.
    pub shortcut: Vec<f32>,
}

/// Computes the gradients from that of the output. Sums over pixels are computed as in the forward pass; sums over
/// samples are in their order.
pub fn gradients(g: GroupGeometry, saved: GroupForward<'_>, gradient: &[f32]) -> GroupGradients {
    let (per_sample, channels) = (g.size.numbers(), g.size.channels);
    let mut passed = gradient.to_vec();
    let mut x = zeros(gradient.len());
    // For each sample, the gradients of gamma and then those of beta.
    let mut sums = vec![0.0; g.samples * 2 * channels];
    let results = x.chunks_exact_mut(per_sample).zip(passed.chunks_exact_mut(per_sample));
    spread(results.zip(sums.chunks_exact_mut(2 * channels)).enumerate(), |(n, ((x, passed), sums))| {
        let own = n * per_sample..(n + 1) * per_sample;
        if g.relu {
            for (passed, output) in passed.iter_mut().zip(&saved.output[own.clone()]) {
                *passed = if *output > 0.0 { *passed } else { 0.0 };
            }
        }
        let saved = GroupForward { x: &saved.x[own], groups: &saved.groups[n * g.groups..][..g.groups], ..saved };
        of_sample(g, saved, passed, x, sums);
    });
    let [mut gamma, mut beta] = [(); 2].map(|()| vec![0.0; channels]);
    for sums in sums.chunks_exact(2 * channels) {
        gamma.iter_mut().zip(&sums[..channels]).for_each(|(total, sum)| *total += sum);
        beta.iter_mut().zip(&sums[channels..]).for_each(|(total, sum)| *total += sum);
    }
    GroupGradients { x, gamma, beta, shortcut: passed }
}

fn of_sample(g: GroupGeometry, saved: GroupForward<'_>, gradient: &[f32], x: &mut [f32], sums: &mut [f32]) {
    let (channels, per_group) = (g.size.channels, g.size.channels / g.groups);
    let by_channel = |value: fn(&Group) -> f32| -> Vec<f32> {
        saved.groups.iter().flat_map(|group| std::iter::repeat_n(value(group), per_group)).collect()
    };
    let (means, scales) = (by_channel(|group| group.mean), by_channel(|group| group.scale));
    let plain = by_width(PixelSums { channels, count: x.len(), term: Plain(gradient) });
    let products =
        by_width(PixelSums { channels, count: x.len(), term: Products { gradient, x: saved.x, means: &means } });
    let (of_gamma, of_beta) = sums.split_at_mut(channels);
    of_beta.copy_from_slice(&plain);
    for ((of_gamma, product), scale) in of_gamma.iter_mut().zip(products).zip(&scales) {
        *of_gamma = product * scale;
    }
    let count = (per_group * g.size.pixels()) as f64;
    let mut slopes = Slopes { factors: Vec::new(), of_x: Vec::new(), terms: Vec::new(), means };
    for (c, scale) in scales.iter().enumerate() {
        let group = c / per_group * per_group..(c / per_group + 1) * per_group;
        let weighted = |sums: &[f32]| {
            let products = sums[group.clone()].iter().zip(&saved.gamma[group.clone()]);
            products.map(|(sum, gamma)| f64::from(*sum) * f64::from(*gamma)).sum::<f64>() / count
        };
        let scale_f64 = f64::from(*scale);
        slopes.factors.push(saved.gamma[c] * scale);
        slopes.of_x.push((-scale_f64 * scale_f64 * weighted(of_gamma)) as f32);
        slopes.terms.push((-scale_f64 * weighted(of_beta)) as f32);
    }
    by_width(GroupInputGradient { channels, slopes: &slopes, input: saved.x, gradient, x });
}

/// Terms that are the gradient times the difference between the input and its mean.
#[derive(Clone, Copy)]
struct Products<'a> {
    gradient: &'a [f32],
    x: &'a [f32],
    means: &'a [f32],
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

/// The coefficients of each channel: the gradient of an input is `gradient · factor + (input - mean) · of_x + term`.
struct Slopes {
    factors: Vec<f32>,
    of_x: Vec<f32>,
    terms: Vec<f32>,
    means: Vec<f32>,
}

struct GroupInputGradient<'a> {
    channels: usize,
    slopes: &'a Slopes,
    input: &'a [f32],
    gradient: &'a [f32],
    x: &'a mut [f32],
}

impl Blocked for GroupInputGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const P: usize, const V: usize>(self, simd: S) {
        let Self { channels, slopes, input, gradient, x } = self;
        for first in (0..channels).step_by(BLOCK) {
            let width = BLOCK.min(channels - first);
            let of = |numbers: &[f32]| load::<S, V>(simd, &numbers[first..][..width]);
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
