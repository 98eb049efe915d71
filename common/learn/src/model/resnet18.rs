//! A residual network for photographs.
//!
//! Sources: He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.1; for its beginning, He, Zhang,
//! Zhang, Zhang, Xie, Li, "Bag of Tricks for Image Classification with Convolutional Neural Networks", CVPR 2019, section 4.

use burn::module::Module;
use burn::nn::LinearConfig;
use burn::tensor::{Device, Tensor};

use super::residual::{ResidualBlock, convolution, normalisation, stage};
use super::{ImageShape, Network};
use crate::nn::{Conv3x3, GroupNorm, Linear, global_average};

/// A network like ResNet-18, for images of about 224 × 224 pixels: four stages of two basic blocks, the first on a
/// quarter of the image's width and height, the next on an eighth, and so on.
///
/// It differs from the paper's in three ways. Two 3×3 convolutions, which skip every other pixel, replace the 7×7 convolution and the
/// pooling at the beginning. Shortcuts have no parameters (option A), and normalisation is by groups, as in
/// [`ResNet20`](super::ResNet20).
#[derive(Module, Debug)]
pub struct ResNet18 {
    conv1: Conv3x3,
    norm1: GroupNorm,
    conv2: Conv3x3,
    norm2: GroupNorm,
    layer1: Vec<ResidualBlock>,
    layer2: Vec<ResidualBlock>,
    layer3: Vec<ResidualBlock>,
    layer4: Vec<ResidualBlock>,
    output: Linear,
}

/// The number of blocks per stage.
const BLOCKS: usize = 2;

impl ResNet18 {
    /// The paper's number of channels in the first stage; each stage has twice as many as the one before.
    pub const WIDTH: usize = 64;

    /// Creates a network with fresh random parameters, with `width` channels in the first stage.
    ///
    /// # Panics
    /// Panics if `width` is not a multiple of 8, the number of groups.
    pub fn new(width: usize, shape: ImageShape, device: &Device) -> Self {
        let stage = |input, width, stride| stage(BLOCKS, input, width, stride, device);
        Self {
            conv1: convolution(3, width, 2, device),
            norm1: normalisation(width, device),
            conv2: convolution(width, width, 2, device),
            norm2: normalisation(width, device),
            layer1: stage(width, width, 1),
            layer2: stage(width, 2 * width, 2),
            layer3: stage(2 * width, 4 * width, 2),
            layer4: stage(4 * width, 8 * width, 2),
            output: Linear::new(LinearConfig::new(8 * width, shape.classes).init(device)),
        }
    }
}

impl Network for ResNet18 {
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let mut x = self.norm1.forward_relu(self.conv1.forward(images));
        x = self.norm2.forward_relu(self.conv2.forward(x));
        for block in [&self.layer1, &self.layer2, &self.layer3, &self.layer4].into_iter().flatten() {
            x = block.forward(x);
        }
        self.output.forward(global_average(x))
    }
}

#[cfg(test)]
mod tests {
    use super::super::builtin_model;
    use super::*;

    /// The count is the paper's 11.7 M for 1,000 classes, without the projections of its shortcuts, and with a different beginning.
    #[test]
    fn parameter_count() {
        assert_eq!(builtin_model("resnet18:classes=1000,size=224").unwrap().parameter_count(), 11_545_000);
    }

    #[test]
    fn names_are_pytorchs() {
        let table = builtin_model("resnet18").unwrap().table();
        let shape = |name: &str| &table.tensors.iter().find(|entry| entry.name == name).expect(name).shape;
        assert_eq!(*shape("conv2.weight"), [64, 64, 3, 3]);
        assert_eq!(*shape("layer2.0.conv1.weight"), [128, 64, 3, 3]);
        assert_eq!(*shape("layer4.1.norm2.weight"), [512]);
        assert_eq!(*shape("output.weight"), [100, 512]);
    }

    /// Images may have any valid size, down to less than a pixel per stage.
    #[test]
    fn images_of_any_size_are_classified() {
        let device = Device::flex();
        for size in [8, 40, 224] {
            let network = ResNet18::new(8, ImageShape { classes: 7, size }, &device);
            assert_eq!(network.forward(Tensor::zeros([1, 3, size, size], &device)).dims(), [1, 7]);
        }
    }
}
