//! The gradients of group normalisation.

use pulp::Simd;

use crate::group_norm::{Group, GroupGeometry, PixelSums, Plain, Term};
use crate::instructions::by_width;
use crate::tile::{Blocked, load, store};
use crate::{BLOCK, spread, zeros};

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
