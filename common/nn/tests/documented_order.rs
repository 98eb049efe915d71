//! Compares kernels with plain loops in the documented order, bit by bit, with every instruction set, and on one thread.

use ata_nn::conv3x3::{self, Geometry};
use ata_nn::cross_entropy::{MixedLabels, Targets};
use ata_nn::image::{ImageView, Size};
use ata_nn::linear::{self, Matrix};
use ata_nn::{average, conv_relu_pool, conv_relu_pool_gradient, cross_entropy, subsample, with_each_instruction_set};

/// Returns numbers of both signs, without a pattern that sums could hide.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + 13) % 1009) as f32 / 503.0 - 1.0).collect()
}

fn check(what: &str, expected: &[f32], kernel: impl Fn() -> Vec<f32> + Sync) {
    for (instructions, found) in with_each_instruction_set(&kernel) {
        assert!(found == expected, "{what}, with {instructions}");
    }
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert!(one_thread.install(&kernel) == expected, "{what}, on one thread");
}

/// Returns a view of a tensor of shape [samples, channels, height, width], in this order.
fn view(numbers: &[f32], size: Size) -> ImageView<'_> {
    ImageView { numbers, strides: [size.numbers(), size.pixels(), size.width, 1] }
}

/// Returns a number of an image, in coordinates that begin with the border, which is zero.
fn pixel(x: &[f32], size: Size, n: usize, [y, column]: [usize; 2], i: usize) -> f32 {
    let is_inside = (1..=size.height).contains(&y) && (1..=size.width).contains(&column);
    if is_inside { x[((n * size.channels + i) * size.height + y - 1) * size.width + column - 1] } else { 0.0 }
}

/// Returns the numbers of a patch in order: the position in the kernel, and the channel.
fn patch(channels: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..9).flat_map(move |tap| (0..channels).map(move |i| (tap, i)))
}

/// Returns the sums of a 3×3 convolution with padding 1, without bias, channels last.
fn convolved(samples: usize, size: Size, outputs: usize, stride: usize, x: &[f32], weight: &[f32]) -> Vec<f32> {
    let mut result = Vec::new();
    for n in 0..samples {
        for (y, column) in
            (0..size.height).step_by(stride).flat_map(|y| (0..size.width).step_by(stride).map(move |x| (y, x)))
        {
            for o in 0..outputs {
                let term = |sum, (tap, i): (usize, usize)| {
                    let weight = weight[(o * size.channels + i) * 9 + tap];
                    pixel(x, size, n, [y + tap / 3, column + tap % 3], i).mul_add(weight, sum)
                };
                result.push(patch(size.channels).fold(0.0, term));
            }
        }
    }
    result
}

#[test]
fn convolution() {
    for (samples, [channels, height, width], outputs) in [(2, [3, 7, 9], 21), (1, [17, 4, 33], 16), (3, [1, 1, 1], 1)] {
        for stride in [1, 2] {
            let size = Size { channels, height, width };
            let (x, weight) = (numbers(samples * size.numbers()), numbers(outputs * channels * 9));
            let bias = numbers(outputs);
            let mut expected = convolved(samples, size, outputs, stride, &x, &weight);
            expected.iter_mut().enumerate().for_each(|(at, value)| *value += bias[at % outputs]);
            let g = Geometry { samples, input: size, outputs, stride };
            check(&format!("{g:?}"), &expected, || conv3x3::forward_only(g, view(&x, size), &weight, &bias));
        }
    }
}

/// The gradients of weights and bias are sums over the samples and pooled pixels, row by row. For that of the input, the outputs that
/// chose a pixel are added up first.
#[test]
fn convolution_with_relu_and_pooling() {
    let (samples, outputs, size) = (2, 19, Size { channels: 5, height: 6, width: 9 });
    let (x, weight, bias) = (numbers(samples * size.numbers()), numbers(outputs * 5 * 9), numbers(outputs));
    let sums = convolved(samples, size, outputs, 1, &x, &weight);
    let g = Geometry { samples, input: size, outputs, stride: 1 };
    let of_output = numbers(samples * g.pooled().numbers());
    let mut expected = Vec::new();
    let [mut of_x, mut of_weight, mut of_bias] = [x.len(), weight.len(), outputs].map(|length| vec![0.0_f32; length]);
    for at in 0..samples * 3 * 4 {
        let (n, y, column) = (at / 12, at / 4 % 3, at % 4);
        let window = [0, 1, 2, 3].map(|pixel| [2 * y + pixel / 2, 2 * column + pixel % 2]);
        // The outputs that have a gradient, with the pixel that they chose, and the gradient.
        let mut chosen = Vec::new();
        for (o, bias) in bias.iter().enumerate() {
            let sum = |pixel: usize| sums[((n * 6 + window[pixel][0]) * 9 + window[pixel][1]) * outputs + o];
            let largest = (1..4).fold(0, |largest, pixel| if sum(pixel) > sum(largest) { pixel } else { largest });
            let gradient = of_output[expected.len()];
            expected.push((sum(largest) + bias).max(0.0));
            if sum(largest) + bias > 0.0 {
                chosen.push((o, largest, gradient));
                of_bias[o] += gradient;
                let [y, column] = window[largest];
                for (tap, i) in patch(5) {
                    let sum = &mut of_weight[(o * 5 + i) * 9 + tap];
                    *sum = gradient.mul_add(pixel(&x, size, n, [y + tap / 3, column + tap % 3], i), *sum);
                }
            }
        }
        for (pixel, [y, column]) in window.into_iter().enumerate() {
            for (tap, i) in patch(5) {
                let (y, column) = (y + tap / 3, column + tap % 3);
                let own = chosen.iter().filter(|(_, chosen, _)| *chosen == pixel);
                let term =
                    |sum, (o, _, gradient): &(usize, usize, f32)| gradient.mul_add(weight[(o * 5 + i) * 9 + tap], sum);
                if (1..=6).contains(&y) && (1..=9).contains(&column) {
                    of_x[((n * 6 + y - 1) * 9 + column - 1) * 5 + i] += own.fold(0.0, term);
                }
            }
        }
    }
    check("pooled", &expected, || conv_relu_pool::forward_only(g, view(&x, size), &weight, &bias));
    let gradient = ImageView { numbers: &of_output, strides: [12 * outputs, 1, 4 * outputs, outputs] };
    check("gradients of the pooled", &[of_x, of_weight, of_bias].concat(), || {
        let (_, saved) = conv_relu_pool::forward(g, view(&x, size), &weight, &bias);
        let found = conv_relu_pool_gradient::gradients(&saved, &weight, gradient, true);
        [found.x, found.weight, found.bias].concat()
    });
}

#[test]
fn matrix_products() {
    // The last one has more terms than are multiplied at a time, in each of the three products.
    for [rows, inner, columns] in [[6, 100, 120], [1, 7, 5], [70, 17, 33], [130, 260, 290]] {
        let (x, weight, bias) = (numbers(rows * inner), numbers(inner * columns), numbers(columns));
        let sum = |at: usize| {
            let term =
                |sum: f32, k: usize| x[at / columns * inner + k].mul_add(weight[k * columns + at % columns], sum);
            (0..inner).fold(0.0, term)
        };
        let expected: Vec<f32> = (0..rows * columns).map(|at| sum(at) + bias[at % columns]).collect();
        let x = Matrix { numbers: &x, rows, columns: inner };
        let weight = Matrix { numbers: &weight, rows: inner, columns };
        check("product", &expected, || linear::forward(x, weight, &bias));

        let gradient = numbers(rows * columns);
        let gradient = Matrix { numbers: &gradient, rows, columns };
        let of_x = |at: usize| {
            let term = |sum: f32, o: usize| {
                gradient.numbers[at / inner * columns + o].mul_add(weight.numbers[at % inner * columns + o], sum)
            };
            (0..columns).fold(0.0, term)
        };
        let expected: Vec<f32> = (0..rows * inner).map(of_x).collect();
        check("gradient of the input", &expected, || linear::input_gradient(gradient, weight));
        let of_weight = |at: usize| {
            let term = |sum: f32, row: usize| {
                x.numbers[row * inner + at / columns].mul_add(gradient.numbers[row * columns + at % columns], sum)
            };
            (0..rows).fold(0.0, term)
        };
        let expected: Vec<f32> = (0..inner * columns).map(of_weight).collect();
        check("gradient of the weights", &expected, || linear::weight_gradient(x, gradient).numbers());
        let of_bias = |o: usize| gradient.numbers.chunks_exact(columns).fold(0.0, |sum, row| sum + row[o]);
        let expected: Vec<f32> = (0..columns).map(of_bias).collect();
        check("gradient of the bias", &expected, || linear::column_sums(gradient));
    }
}

#[test]
fn averages_and_subsamples() {
    let size = Size { channels: 3, height: 3, width: 3 };
    // The images have small integers, whose sums are exact in any order.
    let images: Vec<f32> = (0..2 * size.numbers()).map(|i| (i % 7) as f32).collect();
    let mean = |n: usize, c: usize| (0..9).map(|pixel| images[(n * 9 + pixel) * 3 + c]).sum::<f32>() / 9.0;
    let expected: Vec<f32> = (0..6).map(|at| mean(at / 3, at % 3)).collect();
    check("average", &expected, || average::forward(size, &images));
    assert_eq!(average::gradient(size, &[9.0, 18.0, 27.0]), [1.0, 2.0, 3.0].repeat(9));

    let small = subsample::forward(size, 4, &images[..27]);
    let expected: Vec<f32> = [0, 2, 6, 8].iter().flat_map(|p| [&images[3 * p..3 * p + 3], &[0.0]].concat()).collect();
    assert_eq!(small, expected);
    let back = subsample::gradient(size, 4, &small);
    assert!((0..9).all(|p| back[3 * p..][..3]
        == if p % 2 == 0 && p != 4 { [images[3 * p], images[3 * p + 1], images[3 * p + 2]] } else { [0.0; 3] }));
}

#[test]
fn loss() {
    let targets = Targets::of_labels(&[0, 1]);
    let (loss, probabilities) = cross_entropy::forward(&[0.0, 0.0, 1.0, 1.0], 2, &targets);
    assert!((loss - 2.0_f64.ln()).abs() < 1e-12);
    assert_eq!(probabilities, [0.5; 4]);
    assert_eq!(cross_entropy::gradient(probabilities, 2, &targets, 1.0), [-0.25, 0.25, 0.25, -0.25]);

    let scores = numbers(7);
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = scores.iter().map(|score| libm::expf(score - largest)).collect();
    let sum: f64 = powers.iter().copied().map(f64::from).sum();
    let expected: Vec<f32> = powers.iter().map(|power| power * (1.0 / sum) as f32).collect();
    let found = cross_entropy::forward(&scores, 7, &Targets::of_labels(&[3]));
    assert_eq!(found, (libm::log(sum) - f64::from(scores[3] - largest), expected));
}

/// The loss follows its definition: the mean over the targets 1 − ε + ε/K and ε/K, and over those of two mixed samples.
#[test]
fn loss_with_label_smoothing_and_mixed_samples() {
    let smoothed = Targets { smoothing: 0.3, ..Targets::of_labels(&[1]) };
    check_loss(&smoothed, [0.075, 0.775, 0.075, 0.075]);
    let mixed = |labels| Some(MixedLabels { labels, weights: vec![0.75] });
    check_loss(&Targets { mixed: mixed(vec![3]), ..Targets::of_labels(&[1]) }, [0.0, 0.75, 0.0, 0.25]);
    check_loss(&Targets { mixed: mixed(vec![1]), ..Targets::of_labels(&[1]) }, [0.0, 1.0, 0.0, 0.0]);
    check_loss(&Targets { mixed: mixed(vec![3]), ..smoothed }, [0.075, 0.6, 0.075, 0.25]);
}

fn check_loss(targets: &Targets, of_classes: [f64; 4]) {
    let scores = [0.5_f32, -1.0, 2.0, 0.0];
    let total: f64 = scores.iter().map(|score| f64::from(*score).exp()).sum();
    let target = |class: usize| of_classes[class];
    let log = |class: usize| f64::from(scores[class]) - total.ln();
    let expected: f64 = (0..4).map(|class| -target(class) * log(class)).sum();
    let (loss, probabilities) = cross_entropy::forward(&scores, 4, targets);
    assert!((loss - expected).abs() < 1e-6, "{loss} is not {expected}");
    let found = cross_entropy::gradient(probabilities, 4, targets, 2.0);
    for (class, found) in found.into_iter().enumerate() {
        let expected = 2.0 * (log(class).exp() - target(class));
        assert!((f64::from(found) - expected).abs() < 1e-6, "{class}: {found} is not {expected}");
    }
}
