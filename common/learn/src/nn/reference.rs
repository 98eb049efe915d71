//! The gradient of the built-in network, computed by plain loops in the documented order of summation.

use crate::{DeviceChoice, TaskGradient, builtin_model, on_one_thread};
use ata_data::DataSource;
use ata_data::{Images, Split, TaskSampler, Tasks};
use ata_types::Iteration;

/// An image, channels last.
#[derive(Clone)]
struct Image {
    size: usize,
    channels: usize,
    numbers: Vec<f32>,
}

impl Image {
    fn zeros(size: usize, channels: usize) -> Self {
        Self { size, channels, numbers: vec![0.0; size * size * channels] }
    }

    /// Returns the index of a number, in coordinates that begin with the border; `None` on the border.
    fn at(&self, y: usize, x: usize, channel: usize) -> Option<usize> {
        let inside = |at: usize| at.checked_sub(1).filter(|at| *at < self.size);
        Some((inside(y)? * self.size + inside(x)?) * self.channels + channel)
    }

    fn get(&self, y: usize, x: usize, channel: usize) -> f32 {
        self.at(y, x, channel).map_or(0.0, |at| self.numbers[at])
    }
}

/// A layer's parameters, in burn's order.
#[derive(Clone)]
struct Layer {
    inputs: usize,
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Layer {
    fn of_convolution(&self, output: usize, input: usize, ky: usize, kx: usize) -> usize {
        (output * self.inputs + input) * 9 + 3 * ky + kx
    }

    fn zeros(&self) -> Self {
        Self { inputs: self.inputs, weight: vec![0.0; self.weight.len()], bias: vec![0.0; self.bias.len()] }
    }
}

/// Computes convolution, pooling and ReLU, and the pixel that each number came from, if it has a gradient.
fn convolve(layer: &Layer, x: &Image) -> (Image, Vec<Option<(usize, usize)>>) {
    let mut output = Image::zeros(x.size / 2, layer.bias.len());
    let mut chosen = Vec::new();
    for window in 0..output.size * output.size {
        for (o, bias) in layer.bias.iter().enumerate() {
            let mut largest = (f32::NEG_INFINITY, (0, 0));
            for pixel in 0..4 {
                let (py, px) = (window / output.size * 2 + pixel / 2, window % output.size * 2 + pixel % 2);
                let mut sum = 0.0_f32;
                for (ky, kx, i) in kernel(x.channels) {
                    sum = x.get(py + ky, px + kx, i).mul_add(layer.weight[layer.of_convolution(o, i, ky, kx)], sum);
                }
                if sum > largest.0 {
                    largest = (sum, (py, px));
                }
            }
            let value = largest.0 + bias;
            output.numbers[chosen.len()] = value.max(0.0);
            chosen.push((value > 0.0).then_some(largest.1));
        }
    }
    (output, chosen)
}

/// Returns the numbers of a patch: row, column and channel.
fn kernel(channels: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..9).flat_map(move |tap| (0..channels).map(move |i| (tap / 3, tap % 3, i)))
}

/// Adds the gradients of a convolution's parameters, and returns that of its input.
fn convolve_back(
    layer: &Layer,
    x: &Image,
    chosen: &[Option<(usize, usize)>],
    gradient: &[f32],
    sums: &mut Layer,
) -> Image {
    let outputs = layer.bias.len();
    for (at, (chosen, value)) in chosen.iter().zip(gradient).enumerate() {
        let Some((py, px)) = *chosen else { continue };
        sums.bias[at % outputs] += value;
        for (ky, kx, i) in kernel(x.channels) {
            let sum = &mut sums.weight[layer.of_convolution(at % outputs, i, ky, kx)];
            *sum = value.mul_add(x.get(py + ky, px + kx, i), *sum);
        }
    }
    let mut of_x = Image::zeros(x.size, x.channels);
    for window in 0..chosen.len() / outputs {
        for pixel in 0..4 {
            let (y, x) = (window / (x.size / 2) * 2 + pixel / 2, window % (x.size / 2) * 2 + pixel % 2);
            for (ky, kx, i) in kernel(of_x.channels) {
                let mut total = 0.0_f32;
                for o in (0..outputs).filter(|o| chosen[window * outputs + o] == Some((y, x))) {
                    let weight = layer.weight[layer.of_convolution(o, i, ky, kx)];
                    total = gradient[window * outputs + o].mul_add(weight, total);
                }
                if let Some(at) = of_x.at(y + ky, x + kx, i) {
                    of_x.numbers[at] += total;
                }
            }
        }
    }
    of_x
}

fn connect(layer: &Layer, x: &[f32]) -> Vec<f32> {
    let outputs = layer.bias.len();
    let sum = |o: usize| (0..x.len()).fold(0.0_f32, |sum, k| x[k].mul_add(layer.weight[k * outputs + o], sum));
    layer.bias.iter().enumerate().map(|(o, bias)| sum(o) + bias).collect()
}

fn connect_back(layer: &Layer, x: &[f32], gradient: &[f32], sums: &mut Layer) -> Vec<f32> {
    let outputs = gradient.len();
    sums.bias.iter_mut().zip(gradient).for_each(|(sum, value)| *sum += value);
    for (at, sum) in sums.weight.iter_mut().enumerate() {
        *sum = x[at / outputs].mul_add(gradient[at % outputs], *sum);
    }
    let sum = |k: usize| (0..outputs).fold(0.0_f32, |sum, o| gradient[o].mul_add(layer.weight[k * outputs + o], sum));
    (0..x.len()).map(sum).collect()
}

/// Returns the loss of a sample, and the gradient of its scores.
fn cross_entropy(scores: &[f32], label: usize, samples: usize) -> (f64, Vec<f32>) {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = scores.iter().map(|score| libm::expf(score - largest)).collect();
    let sum: f64 = powers.iter().copied().map(f64::from).sum();
    let loss = libm::log(sum) - f64::from(scores[label] - largest);
    let probability = |at: usize| powers[at] * (1.0 / sum) as f32 - if at == label { 1.0 } else { 0.0 };
    (loss, (0..scores.len()).map(|at| probability(at) * (1.0 / samples as f32)).collect())
}

/// Moves the channel of a flat image from one end of the index to the other.
fn reordered(numbers: &[f32], outer: usize) -> Vec<f32> {
    let inner = numbers.len() / outer;
    (0..numbers.len()).map(|at| numbers[at % outer * inner + at / outer]).collect()
}

/// Adds the gradient of a sample to `sums`, and returns its loss.
fn sample(layers: &[Layer], image: Image, label: usize, samples: usize, sums: &mut [Layer]) -> f64 {
    let mut images = vec![(image, Vec::new())];
    for layer in &layers[..3] {
        images.push(convolve(layer, &images.last().expect("the first").0));
    }
    let last = &images[3].0;
    let flat = reordered(&last.numbers, last.size * last.size);
    let hidden: Vec<f32> = connect(&layers[3], &flat).iter().map(|value| value.max(0.0)).collect();
    let (loss, of_scores) = cross_entropy(&connect(&layers[4], &hidden), label, samples);
    let mut of_hidden = connect_back(&layers[4], &hidden, &of_scores, &mut sums[4]);
    of_hidden.iter_mut().zip(&hidden).for_each(|(gradient, value)| *gradient *= f32::from(*value > 0.0));
    let of_flat = connect_back(&layers[3], &flat, &of_hidden, &mut sums[3]);
    let mut gradient = reordered(&of_flat, last.channels);
    for at in (0..3).rev() {
        gradient = convolve_back(&layers[at], &images[at].0, &images[at + 1].1, &gradient, &mut sums[at]).numbers;
    }
    loss
}

/// Splits the flat vector into the parameters of the layers.
fn layers([c1, c2, c3, hidden]: [usize; 4], mut flat: &[f32]) -> Vec<Layer> {
    let shapes = [(3, 9, c1), (c1, 9, c2), (c2, 9, c3), (16 * c3, 1, hidden), (hidden, 1, 100)];
    let layer = |(inputs, taps, outputs): (usize, usize, usize)| {
        let (weight, rest) = flat.split_at(inputs * taps * outputs);
        let (bias, rest) = rest.split_at(outputs);
        flat = rest;
        Layer { inputs, weight: weight.into(), bias: bias.into() }
    };
    shapes.map(layer).into()
}

fn check([c1, c2, c3, hidden]: [usize; 4], task_batch: u32) {
    let model = builtin_model(&format!("cnn:widths={c1}/{c2}/{c3}/{hidden}")).unwrap();
    let tasks = Tasks { seed: 1, budget: 1, task_batch };
    let (parameters, source) = (model.initial_parameters(1).unwrap(), DataSource::Generated { seed: 1 });
    let mut learner = model.open(&source, Split::Train).unwrap().learner(&DeviceChoice::Cpu.open().unwrap(), tasks);
    learner.load(&parameters);
    let found = learner.gradient(Iteration(1), 0).unwrap();
    assert!(on_one_thread(|| learner.gradient(Iteration(1), 0)).unwrap() == found, "another gradient on one thread");
    let TaskGradient { gradient, loss } = found;

    let data = Images::open(&source, Split::Train).unwrap();
    let batch =
        crate::ImageBatch::read(&data, &TaskSampler::new(tasks, data.count()).samples(Iteration(1), 0)).unwrap();
    let layers = layers([c1, c2, c3, hidden], &parameters);
    let mut sums: Vec<Layer> = layers.iter().map(Layer::zeros).collect();
    let mut total = 0.0;
    for (planes, label) in batch.images.chunks_exact(3 * 1024).zip(&batch.labels) {
        let image = Image { size: 32, channels: 3, numbers: reordered(planes, 3) };
        total += sample(&layers, image, *label as usize, task_batch as usize, &mut sums);
    }
    let expected: Vec<f32> = sums.into_iter().flat_map(|layer| [layer.weight, layer.bias].concat()).collect();
    assert!(gradient == expected, "another gradient");
    assert_eq!(loss, f64::from((total / f64::from(task_batch)) as f32));
}

/// The result depends on the documented order only, not on the caches, the vectors or the threads of this machine.
#[test]
fn a_gradient_follows_from_the_documented_order() {
    check([16, 32, 64, 120], 3);
    check([5, 7, 20, 24], 4);
}
