//! Group normalisation, followed by the addition and the ReLU of a residual network, and its gradients.
//!
//! Source: Wu and He, "Group Normalization", ECCV 2018.

use crate::instructions::by_width;
use crate::normalise::{
    NormForward, NormGeometry, NormGradients, NormInputGradient, Normalise, PixelSums, Plain, Products, Slopes,
    Squares, before_relu,
};
use crate::{spread, zeros};

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
    g: NormGeometry,
    x: &[f32],
    [gamma, beta]: [&[f32]; 2],
    shortcut: Option<&[f32]>,
) -> (Vec<f32>, Vec<Group>) {
    let per_sample = g.size.numbers();
    let mut output = zeros(x.len());
    let mut groups = vec![Group::default(); g.samples * g.parts];
    let samples = output.chunks_exact_mut(per_sample).zip(groups.chunks_exact_mut(g.parts)).enumerate();
    spread(samples, |(n, (output, groups))| {
        let own = n * per_sample..(n + 1) * per_sample;
        let (x, shortcut) = (&x[own.clone()], shortcut.map(|shortcut| &shortcut[own]));
        statistics(g, x, groups);
        let group = |channel: usize| groups[channel / (g.size.channels / g.parts)];
        let factors: Vec<f32> = gamma.iter().enumerate().map(|(c, gamma)| gamma * group(c).scale).collect();
        let terms = beta.iter().zip(&factors).enumerate();
        let terms: Vec<f32> = terms.map(|(c, (beta, factor))| beta - group(c).mean * factor).collect();
        let (channels, relu, factors, terms) = (g.size.channels, g.relu, &factors[..], &terms[..]);
        by_width(Normalise { channels, relu, x, factors, terms, shortcut, output });
    });
    (output, groups)
}

fn statistics(g: NormGeometry, x: &[f32], groups: &mut [Group]) {
    let (channels, per_group) = (g.size.channels, g.size.channels / g.parts);
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

/// Computes the gradients from that of the output. Sums over pixels are computed as in the forward pass; sums over
/// samples are in their order.
pub fn gradients(g: NormGeometry, saved: NormForward<'_>, groups: &[Group], gradient: &[f32]) -> NormGradients {
    let (per_sample, channels) = (g.size.numbers(), g.size.channels);
    let mut passed = gradient.to_vec();
    let mut x = zeros(gradient.len());
    // For each sample, the gradients of gamma and then those of beta.
    let mut sums = vec![0.0; g.samples * 2 * channels];
    let results = x.chunks_exact_mut(per_sample).zip(passed.chunks_exact_mut(per_sample));
    spread(results.zip(sums.chunks_exact_mut(2 * channels)).enumerate(), |(n, ((x, passed), sums))| {
        let own = n * per_sample..(n + 1) * per_sample;
        if g.relu {
            before_relu(passed, &saved.output[own.clone()]);
        }
        let (saved, groups) = (NormForward { x: &saved.x[own], ..saved }, &groups[n * g.parts..][..g.parts]);
        of_sample(g, saved, groups, passed, x, sums);
    });
    let [mut gamma, mut beta] = [(); 2].map(|()| vec![0.0; channels]);
    for sums in sums.chunks_exact(2 * channels) {
        gamma.iter_mut().zip(&sums[..channels]).for_each(|(total, sum)| *total += sum);
        beta.iter_mut().zip(&sums[channels..]).for_each(|(total, sum)| *total += sum);
    }
    NormGradients { x, gamma, beta, shortcut: passed }
}

fn of_sample(
    g: NormGeometry,
    saved: NormForward<'_>,
    groups: &[Group],
    gradient: &[f32],
    x: &mut [f32],
    sums: &mut [f32],
) {
    let (channels, per_group) = (g.size.channels, g.size.channels / g.parts);
    let by_channel = |value: fn(&Group) -> f32| -> Vec<f32> {
        groups.iter().flat_map(|group| std::iter::repeat_n(value(group), per_group)).collect()
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
    let mut slopes = Slopes { means, ..Slopes::default() };
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
    by_width(NormInputGradient { slopes: &slopes, channels: 0..channels, input: saved.x, gradient, x });
}
