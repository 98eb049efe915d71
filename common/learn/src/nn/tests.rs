//! Compares the operations of this module with burn's, for every instruction set.

use ata_nn::with_each_instruction_set;
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNormConfig, DropoutConfig, GroupNormConfig, LinearConfig, PaddingConfig2d};
use burn::tensor::{Device, Distribution, Gradients, Tensor, TensorData};

use crate::flat::{is_trained, with_parameters};

use super::{
    BatchNorm, BatchTasks, Conv3x3, ConvReluPool, Dropout, GroupNorm, LeftValues, Linear, MixedLabels, Pointwise,
    Targets, by_burn, computing, cross_entropy, cross_entropy_of_targets, global_average, subsample,
};

fn cpu() -> Device {
    Device::flex().autodiff()
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

fn random<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &cpu())
}

/// Returns the result, and the gradients of the input and of the parameters if the result is multiplied by fixed numbers.
fn result_and_gradients<M: Module, const D: usize, const R: usize>(
    module: &M,
    x: &Tensor<D>,
    forward: impl Fn(&M, Tensor<D>) -> Tensor<R>,
) -> Vec<Vec<f32>> {
    struct Visitor<'a>(&'a mut Vec<Vec<f32>>, &'a Gradients);
    impl ModuleVisitor for Visitor<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if is_trained(param) {
                self.0.push(numbers(param.val().grad(self.1).expect("the gradient of a parameter")));
            }
        }
    }
    let x = x.clone().detach().require_grad();
    let result = forward(module, x.clone());
    let factors: Vec<f32> = (0..result.shape().num_elements()).map(|i| (i * 7919 % 23) as f32 / 11.0 - 1.0).collect();
    let factors = Tensor::<R>::from_data(TensorData::new(factors, result.shape()), &result.device());
    let gradients = (result.clone() * factors).sum().backward();
    let mut all = vec![numbers(result.inner()), numbers(x.grad(&gradients).expect("the gradient of the input"))];
    module.visit(&mut Visitor(&mut all, &gradients));
    all
}

/// Returns the distance of two vectors relative to the second, in the L2 norm.
pub(crate) fn apart(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let difference = norm(&mut a.iter().zip(b).map(|(a, b)| f64::from(a - b)));
    difference / norm(&mut b.iter().copied().map(f64::from)).max(1e-20)
}

/// Compares results and gradients with burn's, and of every instruction set.
fn check<M: Module, const D: usize, const R: usize>(
    what: &str,
    module: &M,
    x: &Tensor<D>,
    forward: impl Fn(&M, Tensor<D>) -> Tensor<R>,
) {
    let burns = by_burn(|| result_and_gradients(module, x, &forward));
    let plain = numbers(forward(&module.valid(), x.clone().inner()));
    let results = with_each_instruction_set(|| result_and_gradients(module, x, &forward));
    for (instructions, own) in &results {
        assert!(*own == results[0].1, "{what}: {instructions} and {} differ", results[0].0);
        assert!(plain == own[0], "{what}: another result without gradients");
        assert_eq!(own.len(), burns.len(), "{what}");
        for (index, (own, burns)) in own.iter().zip(&burns).enumerate() {
            let apart = apart(own, burns);
            assert!(apart < 2e-5, "{what}: vector {index} is {apart} from burn's");
        }
    }
}

fn convolution(input: usize, output: usize, stride: usize, bias: bool) -> Conv2d {
    let config = Conv2dConfig::new([input, output], [3, 3]).with_stride([stride; 2]).with_bias(bias);
    config.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(&cpu())
}

/// The cases are odd sizes, one sample, channels that are not a multiple of a block, the smallest images, and as many channels as the built-in
/// network can have.
#[test]
fn convolutions() {
    for ([samples, inputs, height, width], outputs) in [
        ([3, 5, 8, 12], 21),
        ([2, 3, 7, 9], 16),
        ([1, 16, 32, 32], 32),
        ([1, 16, 17, 32], 8),
        ([2, 1, 2, 2], 1),
        ([2, 1, 1, 1], 1),
        ([2, 33, 3, 18], 40),
        ([2, 1024, 4, 4], 24),
        ([2, 24, 4, 4], 1024),
    ] {
        let what = format!("{samples}×{inputs}×{height}×{width} to {outputs}");
        let x = random([samples, inputs, height, width]);
        if height > 1 {
            let module = ConvReluPool::new(convolution(inputs, outputs, 1, true));
            check(&format!("{what}, pooled"), &module, &x, ConvReluPool::forward);
        }
        for (stride, bias) in [(1, true), (1, false), (2, true), (2, false)] {
            let module = Conv3x3::new(convolution(inputs, outputs, stride, bias));
            check(&format!("{what}, stride {stride}, bias {bias}"), &module, &x, Conv3x3::forward);
        }
    }
}

#[test]
fn pointwise_convolution() {
    for ([samples, inputs, height, width], outputs, stride) in
        [([3, 5, 8, 12], 21, 1), ([2, 64, 7, 9], 16, 2), ([1, 16, 17, 32], 8, 2), ([2, 1, 1, 1], 1, 1)]
    {
        let config = Conv2dConfig::new([inputs, outputs], [1, 1]).with_stride([stride; 2]).with_bias(false);
        let what = format!("{samples}×{inputs}×{height}×{width} to {outputs}, stride {stride}");
        let x = random([samples, inputs, height, width]);
        check(&what, &Pointwise::new(config.init(&cpu())), &x, Pointwise::forward);
    }
}

/// The numbers of these tensors have another order in memory than their shape suggests.
#[test]
fn views() {
    let x = random([2, 5, 10, 8]);
    let pooled = ConvReluPool::new(convolution(5, 16, 1, true));
    let dense = Conv3x3::new(convolution(5, 16, 2, true));
    let norm = GroupNorm::new(GroupNormConfig::new(5, 5).init(&cpu()));
    check("pooled, transposed", &pooled, &x, |m, x| m.forward(x.swap_dims(2, 3)).swap_dims(1, 3));
    check("pooled, flipped", &pooled, &x, |m, x| m.forward(x.flip([2, 3])));
    check("pooled, a part", &pooled, &x, |m, x| m.forward(x.narrow(2, 3, 6).narrow(0, 1, 1)));
    check("dense, transposed", &dense, &x, |m, x| m.forward(x.swap_dims(2, 3)).swap_dims(1, 2));
    check("dense, flipped", &dense, &x, |m, x| m.forward(x.flip([0, 3])));
    check("dense, a part", &dense, &x, |m, x| m.forward(x.narrow(3, 1, 5)));
    check("norm, transposed", &norm, &x, |m, x| {
        m.run(x.clone().swap_dims(2, 3), Some(x.flip([2]).swap_dims(2, 3)), true)
    });
}

#[test]
fn fully_connected() {
    for (rows, inputs, outputs, bias) in
        [(6, 100, 120, true), (1, 7, 5, false), (33, 40, 16, true), (70, 17, 100, true)]
    {
        let module = Linear::new(LinearConfig::new(inputs, outputs).with_bias(bias).init(&cpu()));
        check(&format!("{rows}×{inputs} to {outputs}"), &module, &random([rows, inputs]), Linear::forward);
    }
    let module = Linear::new(LinearConfig::new(9, 20).init(&cpu()));
    check("three dimensions, transposed", &module, &random([3, 9, 5]), |m, x| m.forward(x.swap_dims(1, 2)));
}

#[test]
fn group_normalisation() {
    for ([samples, channels, height, width], groups) in [([3, 16, 8, 8], 8), ([2, 24, 3, 5], 3), ([1, 8, 1, 3], 8)] {
        let module = GroupNorm::new(GroupNormConfig::new(groups, channels).init(&cpu()));
        let x = random([samples, channels, height, width]) * 3.0 + 2.0;
        let what = format!("{samples}×{channels}×{height}×{width} in {groups}");
        check(&what, &module, &x, GroupNorm::forward);
        check(&format!("{what}, ReLU"), &module, &x, |m, x| m.run(x, None, true));
        check(&format!("{what}, added"), &module, &x, |m, x| m.run(x.clone(), Some(x * 0.5), true));
    }
}

fn batch_norm(channels: usize) -> BatchNorm {
    let module = BatchNorm::new(BatchNormConfig::new(channels).init(&cpu()));
    // Factors and summands that are not those of the beginning.
    with_parameters(module, &(0..4 * channels).map(|at| 0.5 + at as f32 / 7.0).collect::<Vec<_>>(), &cpu())
}

fn in_tasks<T>(count: usize, forward: impl FnOnce() -> T) -> (T, LeftValues) {
    computing(BatchTasks { count, draws: vec![3, 1, 4, 1, 5, 9] }, forward)
}

#[test]
fn batch_normalisation() {
    for (tasks, [samples, channels, height, width]) in [(1, [3, 16, 8, 8]), (3, [6, 24, 3, 5]), (2, [2, 8, 1, 3])] {
        let module = batch_norm(channels);
        let x = random([samples, channels, height, width]) * 3.0 + 2.0;
        for (what, shortcut, relu) in [("plain", None, false), ("ReLU", None, true), ("added", Some(0.5), true)] {
            let what = format!("{samples}×{channels}×{height}×{width}, {tasks} tasks, {what}");
            let run = |m: &BatchNorm, x: Tensor<4>| m.run(x.clone(), shortcut.map(|factor| x * factor), relu);
            let trained = || in_tasks(tasks, || result_and_gradients(&module, &x, run));
            let (burns, left_by_burn) = by_burn(trained);
            let results = with_each_instruction_set(|| {
                let (own, left) = trained();
                (own, left.into_iter().map(|(_, value)| numbers(value)).collect::<Vec<_>>())
            });
            for (instructions, own) in &results {
                assert!(*own == results[0].1, "{what}: {instructions} and {} differ", results[0].0);
            }
            let (own, left) = &results[0].1;
            let left_by_burn: Vec<Vec<f32>> = left_by_burn.into_iter().map(|(_, value)| numbers(value)).collect();
            for (index, (own, burns)) in own.iter().chain(left).zip(burns.iter().chain(&left_by_burn)).enumerate() {
                let apart = apart(own, burns);
                assert!(apart < 2e-5, "{what}: vector {index} is {apart} from burn's");
            }
            let evaluated = || numbers(run(&module.valid(), x.clone().inner()));
            assert!(apart(&evaluated(), &by_burn(evaluated)) < 2e-6, "{what}: evaluated");
        }
    }
}

/// Ioffe and Szegedy, section 3.1, in double precision; the running variance is that of PyTorch, unbiased.
#[test]
fn running_statistics_are_those_of_the_definition() {
    let (module, x) = (batch_norm(3), random([5, 3, 4, 7]) * 2.0 - 1.0);
    let values = numbers(x.clone().inner());
    let (_, left) = in_tasks(1, || (module.forward(x.clone()), module.forward(x * 2.0)));
    for c in 0..3 {
        let of_channel: Vec<f64> =
            (0..5).flat_map(|n| values[(n * 3 + c) * 28..][..28].iter().copied().map(f64::from)).collect();
        let mean = of_channel.iter().sum::<f64>() / 140.0;
        let variance = of_channel.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 139.0;
        for (at, first, [once, twice]) in [
            (0, 0.5 + (6 + c) as f64 / 7.0, [mean, 2.0 * mean]),
            (1, 0.5 + (9 + c) as f64 / 7.0, [variance, 4.0 * variance]),
        ] {
            let expected = (first * 0.9 + once * 0.1) * 0.9 + twice * 0.1;
            let found = f64::from(numbers(left[at].1.clone())[c]);
            assert!((found - expected).abs() < 1e-6 * expected.abs().max(1.0), "{found}, expected {expected}");
        }
    }
}

#[test]
fn normalised_vectors() {
    let module = batch_norm(5);
    let x = random([7, 5]);
    let as_images = module.forward(x.clone().reshape([7, 5, 1, 1]));
    assert_eq!(numbers(module.forward(x).inner()), numbers(as_images.inner()));
}

#[test]
fn frozen_normalisation_uses_its_running_statistics() {
    let module = batch_norm(4).freeze();
    let x = random([3, 4, 2, 2]);
    let (result, left) = in_tasks(1, || module.forward(x.clone()));
    assert_eq!(numbers(result.inner()), numbers(module.valid().forward(x.inner())));
    assert!(left.is_empty());
}

/// The zeros of a sample are the same in every batch, and others in each layer; a sample may have several rows.
#[test]
fn dropout_depends_on_the_draws_of_the_samples() {
    let layer = Dropout::new(DropoutConfig::new(0.3).init());
    let drop = |draws: &[u64], rows| {
        let ones = Tensor::<2>::ones([draws.len() * rows, 4000], &cpu());
        let twice = || (layer.forward(ones.clone()), layer.forward(ones));
        let ((first, second), _) = computing(BatchTasks { count: 1, draws: draws.to_vec() }, twice);
        [numbers(first.inner()), numbers(second.inner())]
    };
    let [all, second] = drop(&[7, 8], 1);
    let [alone, _] = drop(&[8], 1);
    assert_eq!(all[4000..], alone);
    assert_ne!(all, second);
    assert_eq!(drop(&[7, 8], 2)[0][..4000], all[..4000]);
    let zeros = all.iter().filter(|value| **value == 0.0).count();
    assert!((2200..2600).contains(&zeros), "{zeros} of 8000");
    assert!(all.iter().all(|value| *value == 0.0 || *value == 1.0 / 0.7));
    // Bits of ChaCha8 that must not change.
    let zeros_of_seven: Vec<usize> = (0..20).filter(|at| all[*at] == 0.0).collect();
    assert_eq!(zeros_of_seven, [2, 3, 9]);
    assert_eq!(numbers(layer.forward(Tensor::<2>::ones([2, 9], &Device::flex()))), [1.0; 18]);
}

/// A module without parameters, for operations that are functions.
#[derive(Module, Debug)]
struct NoParameters {
    unused: bool,
}

#[test]
fn functions() {
    let nothing = NoParameters { unused: true };
    check("average", &nothing, &random([3, 21, 5, 7]), |_, x: Tensor<4>| global_average(x));
    check("every other pixel", &nothing, &random([3, 5, 7, 4]), |_, x: Tensor<4>| subsample(x, 9));
    let scores = random([5, 10]) * 4.0;
    check("loss", &nothing, &scores, |_, x: Tensor<2>| {
        let device = x.device();
        cross_entropy(x, &[3, 0, 9, 4, 9], &device)
    });
    let smoothed = Targets { smoothing: 0.2, ..Targets::of_labels(&[3, 0, 9, 4, 9]) };
    let mixed = MixedLabels { labels: vec![0, 9, 4, 9, 3], weights: vec![0.5, 0.25, 1.0, 0.0, 0.75] };
    let both = Targets { mixed: Some(mixed), ..smoothed.clone() };
    for (what, targets) in [("smoothed loss", smoothed), ("mixed loss", both)] {
        check(what, &nothing, &scores, |_, x: Tensor<2>| {
            let device = x.device();
            cross_entropy_of_targets(x, targets.clone(), &device)
        });
    }
}
