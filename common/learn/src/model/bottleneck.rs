//! The blocks of deep residual networks, which have fewer channels between two 1×1 convolutions.

use burn::module::Module;
use burn::nn::conv::Conv2dConfig;
use burn::tensor::{Device, Tensor};

use super::resnet::{Norm, ResidualBlock, convolution, of_he};
use crate::nn::{Conv3x3, Pointwise};

/// The factor by which the outputs of a block are wider than its 3×3 convolution.
const EXPANSION: usize = 4;

/// A 1×1 convolution to a few channels, a 3×3 convolution, a 1×1 convolution to many channels, and a shortcut around them, which is a 1×1
/// convolution where the size of the images changes (the paper's option B). The 3×3 convolution skips pixels, as in PyTorch.
#[derive(Module, Debug)]
pub struct Bottleneck<N: Norm> {
    conv1: Pointwise,
    norm1: N,
    conv2: Conv3x3,
    norm2: N,
    conv3: Pointwise,
    norm3: N,
    shortcut_conv: Option<Pointwise>,
    shortcut_norm: Option<N>,
}

impl<N: Norm> ResidualBlock<N> for Bottleneck<N> {
    fn new(input: usize, width: usize, stride: usize, device: &Device) -> Self {
        let output = Self::outputs(width);
        let changes = stride > 1 || input != output;
        Self {
            conv1: pointwise(input, width, 1, device),
            norm1: N::of(width, device),
            conv2: convolution(width, width, stride, device),
            norm2: N::of(width, device),
            conv3: pointwise(width, output, 1, device),
            norm3: N::of(output, device),
            shortcut_conv: changes.then(|| pointwise(input, output, stride, device)),
            shortcut_norm: changes.then(|| N::of(output, device)),
        }
    }

    fn outputs(width: usize) -> usize {
        EXPANSION * width
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let y = self.norm1.run(self.conv1.forward(x.clone()), None, true);
        let y = self.norm2.run(self.conv2.forward(y), None, true);
        let shortcut = match (&self.shortcut_conv, &self.shortcut_norm) {
            (Some(convolution), Some(normalisation)) => normalisation.run(convolution.forward(x), None, false),
            _ => x,
        };
        self.norm3.run(self.conv3.forward(y), Some(shortcut), true)
    }
}

/// Creates a 1×1 convolution.
fn pointwise(input: usize, output: usize, stride: usize, device: &Device) -> Pointwise {
    let config = Conv2dConfig::new([input, output], [1, 1]).with_stride([stride, stride]);
    Pointwise::new(of_he(config).init(device))
}
