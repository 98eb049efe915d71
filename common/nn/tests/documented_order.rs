//! Compares kernels with plain loops in the documented order, bit by bit, with every instruction set.

use ata_nn::conv3x3::{self, Geometry};
use ata_nn::cross_entropy::{MixedLabels, Targets};
use ata_nn::image::{ImageView, Size};
use ata_nn::linear::{self, Matrix};
use ata_nn::{average, conv_relu_pool, cross_entropy, subsample, with_each_instruction_set};

/// Returns numbers of both signs, without a pattern that sums could hide.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + 13) % 1009) as f32 / 503.0 - 1.0).collect()
}

fn check(what: &str, expected: &[f32], kernel: impl Fn() -> Vec<f32>) {
    for (instructions, found) in with_each_instruction_set(kernel) {
        assert!(found == expected, "{what}, with {instructions}");
    }
}

/// Returns a view of a tensor of shape [samples, channels, height, width], in this order.
fn view(numbers: &[f32], size: Size) -> ImageView<'_> {
    ImageView { numbers, strides: [size.numbers(), size.pixels(), size.width, 1] }
}

/// Returns the sums of a 3×3 convolution with padding 1, without bias, channels last.
fn convolved(samples: usize, size: Size, outputs: usize, stride: usize, x: &[f32], weight: &[f32]) -> Vec<f32> {
    let mut result = Vec::new();
    let pixel = |n: usize, y: usize, x_at: usize, i: usize| {
        let inside = (1..=size.height).contains(&y) && (1..=size.width).contains(&x_at);
        if inside { x[((n * size.channels + i) * size.height + y - 1) * size.width + x_at - 1] } else { 0.0 }
    };
    for n in 0..samples {
        for (y, x_at) in
            (0..size.height).step_by(stride).flat_map(|y| (0..size.width).step_by(stride).map(move |x| (y, x)))
        {
            for o in 0..outputs {
                let mut sum = 0.0_f32;
                for (tap, i) in (0..9).flat_map(|tap| (0..size.channels).map(move |i| (tap, i))) {
                    let weight = weight[(o * size.channels + i) * 9 + tap];
                    sum = pixel(n, y + tap / 3, x_at + tap % 3, i).mul_add(weight, sum);
                }
                result.push(sum);
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

#[test]
fn convolution_with_relu_and_pooling() {
    let (samples, outputs, size) = (2, 19, Size { channels: 5, height: 6, width: 9 });
    let (x, weight, bias) = (numbers(samples * size.numbers()), numbers(outputs * 5 * 9), numbers(outputs));
    let sums = convolved(samples, size, outputs, 1, &x, &weight);
    let g = conv_relu_pool::PoolGeometry { samples, input: size, outputs };
    let mut expected = Vec::new();
    for n in 0..samples {
        for (y, x) in (0..3).flat_map(|y| (0..4).map(move |x| (y, x))) {
            for (o, bias) in bias.iter().enumerate() {
                let at = |dy, dx| sums[((n * 6 + 2 * y + dy) * 9 + 2 * x + dx) * outputs + o];
                let largest = [at(0, 0), at(0, 1), at(1, 0), at(1, 1)].into_iter().fold(f32::NEG_INFINITY, f32::max);
                expected.push((largest + bias).max(0.0));
            }
        }
    }
    check("pooled", &expected, || conv_relu_pool::forward_only(g, view(&x, size), &weight, &bias));
}

#[test]
fn matrix_products() {
    for [rows, inner, columns] in [[6, 100, 120], [1, 7, 5], [70, 17, 33]] {
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
        check("gradient of the weights", &expected, || linear::weight_gradient(x, gradient));
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
