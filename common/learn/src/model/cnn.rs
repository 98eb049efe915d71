//! The built-in convolutional network.

use std::str::FromStr;

use burn::module::Module;
use burn::nn::conv::Conv2dConfig;
use burn::nn::{LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

use super::{ImageShape, ModelError, Network};
use crate::nn::{ConvReluPool, Linear};

/// The built-in CNN: three 3×3 convolutions, each with ReLU and 2×2 max-pooling, then two fully connected layers with a ReLU in between.
///
/// It has 158,684 parameters with the default widths, for CIFAR-100.
#[derive(Module, Debug)]
pub struct Cnn {
    conv1: ConvReluPool,
    conv2: ConvReluPool,
    conv3: ConvReluPool,
    hidden: Linear,
    output: Linear,
}

/// The channels of the three convolutions, and the width of the hidden fully connected layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CnnWidths {
    channels: [usize; 3],
    hidden: usize,
}

/// The maximum of each width: with all four at this value the model has 36 M parameters.
const MAX_WIDTH: usize = 1024;

impl Default for CnnWidths {
    fn default() -> Self {
        Self { channels: [16, 32, 64], hidden: 120 }
    }
}

impl FromStr for CnnWidths {
    type Err = ModelError;

    /// Parses `C1/C2/C3/H`.
    fn from_str(text: &str) -> Result<Self, ModelError> {
        let widths: Option<Vec<usize>> =
            text.split('/').map(|width| width.parse().ok().filter(|width| (1..=MAX_WIDTH).contains(width))).collect();
        if let Some(&[c1, c2, c3, hidden]) = widths.as_deref() {
            return Ok(Self { channels: [c1, c2, c3], hidden });
        }
        let reason = format!("widths '{text}' must be four whole numbers from 1 to {MAX_WIDTH}, as in 16/32/64/120");
        Err(ModelError::Invalid { model: "cnn".into(), reason })
    }
}

impl Cnn {
    /// Creates a network with fresh random parameters.
    pub fn new(widths: CnnWidths, shape: ImageShape, device: &Device) -> Self {
        let [c1, c2, c3] = widths.channels;
        let convolution = |input, output| {
            let config = Conv2dConfig::new([input, output], [3, 3]).with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1));
            ConvReluPool::new(config.init(device))
        };
        let linear = |input, output| Linear::new(LinearConfig::new(input, output).init(device));
        // Pooling halves the images three times.
        let flat = c3 * (shape.size / 8).pow(2);
        Self {
            conv1: convolution(3, c1),
            conv2: convolution(c1, c2),
            conv3: convolution(c2, c3),
            hidden: linear(flat, widths.hidden),
            output: linear(widths.hidden, shape.classes),
        }
    }
}

impl Network for Cnn {
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = self.conv3.forward(self.conv2.forward(self.conv1.forward(images)));
        let x = relu(self.hidden.forward(x.flatten(1, 3)));
        self.output.forward(x)
    }
}
