//! Compares the operations of this module with burn's, for every instruction set.

use ata_nn::with_each_instruction_set;
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{GroupNormConfig, LinearConfig, PaddingConfig2d};
use burn::tensor::{Device, Distribution, Gradients, Tensor, TensorData};

use super::{
    Conv3x3, ConvReluPool, GroupNorm, Linear, MixedLabels, Targets, by_burn, cross_entropy, cross_entropy_of_targets,
    global_average, subsample,
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
            self.0.push(numbers(param.val().grad(self.1).expect("the gradient of a parameter")));
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

#[test]
fn convolution_with_pooling() {
    // The cases are odd sizes, one sample, channels that are not a multiple of a block, and the smallest image.
    for ([samples, inputs, height, width], outputs) in
        [([3, 5, 8, 12], 21), ([2, 3, 7, 9], 16), ([1, 16, 32, 32], 32), ([2, 1, 2, 2], 1), ([2, 33, 3, 18], 40)]
    {
        let module = ConvReluPool::new(convolution(inputs, outputs, 1, true));
        let x = random([samples, inputs, height, width]);
        check(&format!("{samples}×{inputs}×{height}×{width} to {outputs}"), &module, &x, ConvReluPool::forward);
    }
}

#[test]
fn dense_convolution() {
    for (stride, bias) in [(1, true), (1, false), (2, true), (2, false)] {
        for ([samples, inputs, height, width], outputs) in
            [([3, 5, 8, 12], 21), ([2, 3, 7, 9], 16), ([1, 16, 17, 32], 8), ([2, 1, 1, 1], 1), ([2, 33, 3, 18], 37)]
        {
            let module = Conv3x3::new(convolution(inputs, outputs, stride, bias));
            let what = format!("{samples}×{inputs}×{height}×{width} to {outputs}, stride {stride}, bias {bias}");
            check(&what, &module, &random([samples, inputs, height, width]), Conv3x3::forward);
        }
    }
}

/// The built-in network can have at most this many channels.
#[test]
fn many_channels() {
    for (inputs, outputs) in [(1024, 24), (24, 1024)] {
        let x = random([2, inputs, 4, 4]);
        check("pooled", &ConvReluPool::new(convolution(inputs, outputs, 1, true)), &x, ConvReluPool::forward);
        check("dense", &Conv3x3::new(convolution(inputs, outputs, 1, false)), &x, Conv3x3::forward);
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
        m.forward_add_relu(x.clone().swap_dims(2, 3), x.flip([2]).swap_dims(2, 3))
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
        check(&format!("{what}, ReLU"), &module, &x, GroupNorm::forward_relu);
        check(&format!("{what}, added"), &module, &x, |m, x| m.forward_add_relu(x.clone(), x * 0.5));
    }
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
