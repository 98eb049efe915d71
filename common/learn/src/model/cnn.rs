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

impl CnnWidths {
    /// The maximum of each width: with all four at this value the model has 36 M parameters.
    pub const MAX: usize = 1024;
}

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
            text.split('/').map(|width| width.parse().ok().filter(|width| (1..=Self::MAX).contains(width))).collect();
        if let Some(&[c1, c2, c3, hidden]) = widths.as_deref() {
            return Ok(Self { channels: [c1, c2, c3], hidden });
        }
        let most = Self::MAX;
        let reason = format!("widths '{text}' must be four whole numbers from 1 to {most}, as in 16/32/64/120");
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

#[cfg(test)]
mod tests {
    use super::super::builtin_model;
    use super::*;

    #[test]
    fn parameter_counts() {
        for (specification, expected) in [
            ("cnn", 158_684),
            ("cnn:classes=100,widths=16/32/64/120,size=32", 158_684),
            // There are 90 outputs fewer, each with 120 weights and a bias.
            ("cnn:classes=10", 158_684 - 90 * 121),
            // There are 64 channels of 8 × 8 instead of 4 × 4 pixels, with 120 weights each.
            ("cnn:size=64", 158_684 + 64 * 48 * 120),
        ] {
            assert_eq!(builtin_model(specification).unwrap().parameter_count(), expected, "{specification}");
        }
    }

    #[test]
    fn bad_specifications_are_refused() {
        for text in ["resnet", "", "cnn:depth=3", "cnn:"] {
            let found = builtin_model(text).err();
            assert_eq!(found, (text != "cnn:").then(|| ModelError::Unknown(text.into())), "{text}");
        }
        for text in ["1/2/3", "1/2/3/0", "1/2/3/4/5", "a/2/3/4", "1/2/3/9999"] {
            let error = builtin_model(&format!("cnn:widths={text}")).err().unwrap().to_string();
            assert!(error.starts_with(&format!("model 'cnn': widths '{text}' must be four whole numbers")), "{error}");
        }
    }
}
