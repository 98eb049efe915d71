//! Batch normalisation of each task's samples, followed by the addition and the ReLU of a residual network, and its gradients.
//!
//! Sources: Ioffe and Szegedy, "Batch Normalization", ICML 2015; Hoffer, Hubara and Soudry, "Train longer, generalize better", NeurIPS
//! 2017, section 4, for the normalisation of parts of a batch.

use crate::instructions::by_width;
use crate::normalise::{
    NormForward, NormGeometry, NormGradients, NormInputGradient, Normalise, PixelSums, Plain, Products, Slopes,
    Squares, before_relu,
};
use crate::{spread, zeros};

/// The means and variances by which each task and channel is normalised.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// The means, by task and channel.
    pub means: Vec<f32>,
    /// The biased variances, by task and channel.
    pub variances: Vec<f32>,
    /// Whether these are the statistics of the images themselves, so that gradients pass through them, too.
    pub of_images: bool,
}

impl NormGeometry {
    /// Returns the number of pixels in the images of a task.
    pub fn pixels(self) -> usize {
        self.samples / self.parts * self.size.pixels()
    }

    /// Returns the means over the tasks of values by task and channel.
    pub fn mean_of_tasks(self, values: &[f32]) -> Vec<f32> {
        let mean = |c: usize| {
            let sum: f64 = values[c..].iter().step_by(self.size.channels).copied().map(f64::from).sum();
            (sum / self.parts as f64) as f32
        };
        (0..self.size.channels).map(mean).collect()
    }

    /// Returns the channels of an image's task in values by task and channel.
    fn of_task(self, sample: usize) -> std::ops::Range<usize> {
        let first = sample / (self.samples / self.parts) * self.size.channels;
        first..first + self.size.channels
    }

    /// Adds up values by image and channel, in the order of the images: by task and channel.
    fn by_task(self, sums: &[f32]) -> Vec<f64> {
        let mut totals = vec![0.0; self.parts * self.size.channels];
        for (n, sums) in sums.chunks_exact(self.size.channels).enumerate() {
            totals[self.of_task(n)].iter_mut().zip(sums).for_each(|(total, sum)| *total += f64::from(*sum));
        }
        totals
    }

    fn scale(self, variance: f32) -> f32 {
        (1.0 / (f64::from(variance) + self.epsilon).sqrt()) as f32
    }
}

/// Returns the statistics of images, which are channels last.
///
/// A sum has four partial sums per image, each over every fourth pixel, which are then added up; those of images are added in their order.
pub fn statistics(g: NormGeometry, x: &[f32]) -> Statistics {
    let channels = g.size.channels;
    let sums_of_images = |sum: &(dyn Fn(usize, &[f32]) -> Vec<f32> + Sync)| {
        let mut sums = vec![0.0; g.samples * channels];
        let images = sums.chunks_exact_mut(channels).zip(x.chunks_exact(g.size.numbers())).enumerate();
        spread(images, |(n, (sums, x))| sums.copy_from_slice(&sum(n, x)));
        g.by_task(&sums).into_iter().map(|sum| (sum / g.pixels() as f64) as f32).collect::<Vec<_>>()
    };
    let means = sums_of_images(&|_, x| by_width(PixelSums { channels, count: x.len(), term: Plain(x) }));
    let variances = sums_of_images(&|n, x| {
        let means = &means[g.of_task(n)];
        by_width(PixelSums { channels, count: x.len(), term: Squares { x, means } })
    });
    Statistics { means, variances, of_images: true }
}

/// Returns the output. All images are channels last; `shortcut` is added before ReLU.
pub fn forward(
    g: NormGeometry,
    x: &[f32],
    [gamma, beta]: [&[f32]; 2],
    shortcut: Option<&[f32]>,
    statistics: &Statistics,
) -> Vec<f32> {
    let per_sample = g.size.numbers();
    let gammas = gamma.iter().cycle().zip(&statistics.variances);
    let factors: Vec<f32> = gammas.map(|(gamma, variance)| gamma * g.scale(*variance)).collect();
    let terms = beta.iter().cycle().zip(&factors).zip(&statistics.means);
    let terms: Vec<f32> = terms.map(|((beta, factor), mean)| beta - mean * factor).collect();
    let mut output = zeros(x.len());
    spread(output.chunks_exact_mut(per_sample).enumerate(), |(n, output)| {
        let own = n * per_sample..(n + 1) * per_sample;
        let (x, shortcut) = (&x[own.clone()], shortcut.map(|shortcut| &shortcut[own]));
        let (factors, terms) = (&factors[g.of_task(n)], &terms[g.of_task(n)]);
        by_width(Normalise { channels: g.size.channels, relu: g.relu, x, factors, terms, shortcut, output });
    });
    output
}

/// Computes the gradients from that of the output. Sums are computed as in [`statistics`]; those of tasks are added in their order.
pub fn gradients(g: NormGeometry, saved: NormForward<'_>, statistics: &Statistics, gradient: &[f32]) -> NormGradients {
    let (per_sample, channels) = (g.size.numbers(), g.size.channels);
    let Statistics { means, variances, of_images } = statistics;
    let mut passed = gradient.to_vec();
    // For each image, the sums of the gradient, and of its products with the differences between the input and its mean.
    let [mut plain, mut products] = [(); 2].map(|()| vec![0.0; g.samples * channels]);
    let sums = plain.chunks_exact_mut(channels).zip(products.chunks_exact_mut(channels));
    spread(passed.chunks_exact_mut(per_sample).zip(sums).enumerate(), |(n, (passed, (plain, products)))| {
        let own = n * per_sample..(n + 1) * per_sample;
        if g.relu {
            before_relu(passed, &saved.output[own.clone()]);
        }
        let (count, gradient, means) = (per_sample, &*passed, &means[g.of_task(n)]);
        plain.copy_from_slice(&by_width(PixelSums { channels, count, term: Plain(gradient) }));
        let term = Products { gradient, x: &saved.x[own], means };
        products.copy_from_slice(&by_width(PixelSums { channels, count, term }));
    });
    let (plain, products) = (g.by_task(&plain), g.by_task(&products));
    let [mut of_gamma, mut of_beta] = [(); 2].map(|()| vec![0.0_f64; channels]);
    let mut slopes = Slopes::default();
    for (at, variance) in variances.iter().enumerate() {
        let (c, scale) = (at % channels, g.scale(*variance));
        let (scale_f64, gamma) = (f64::from(scale), f64::from(saved.gamma[c]));
        of_gamma[c] += products[at] * scale_f64;
        of_beta[c] += plain[at];
        // With given statistics, the output is a linear function of the input.
        let through = if *of_images { gamma * scale_f64 / g.pixels() as f64 } else { 0.0 };
        slopes.factors.push(saved.gamma[c] * scale);
        slopes.of_x.push((-through * scale_f64 * scale_f64 * products[at]) as f32);
        slopes.terms.push((-through * plain[at]) as f32);
    }
    slopes.means.clone_from(means);
    let mut x = zeros(gradient.len());
    spread(x.chunks_exact_mut(per_sample).enumerate(), |(n, x)| {
        let own = n * per_sample..(n + 1) * per_sample;
        let (channels, slopes) = (g.of_task(n), &slopes);
        by_width(NormInputGradient { slopes, channels, input: &saved.x[own.clone()], gradient: &passed[own], x });
    });
    let [gamma, beta] = [of_gamma, of_beta].map(|sums| sums.into_iter().map(|sum| sum as f32).collect());
    NormGradients { x, gamma, beta, shortcut: passed }
}
