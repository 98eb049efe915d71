//! A residual network for small images.
//!
//! Source: He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2.

use burn::module::Module;
use burn::nn::LinearConfig;
use burn::tensor::{Device, Tensor};

use super::residual::{ResidualBlock, convolution, normalisation, stage};
use super::{ImageShape, Network};
use crate::nn::{Conv3x3, GroupNorm, Linear, global_average};

/// ResNet-20: a convolution, three stages of three basic blocks, global average pooling and a linear layer. Its shortcuts
/// have no parameters (the paper's option A): where a stage begins, they skip every other pixel and add channels of zeros.
///
/// Group normalisation replaces the paper's batch normalisation, whose result for a sample depends on the other
/// samples, and in an evaluation on running means of all earlier tasks: a gradient would not follow from parameters and
/// samples alone. The network has 275,572 parameters with the paper's width of 16, for CIFAR-100.
#[derive(Module, Debug)]
pub struct ResNet20 {
    conv1: Conv3x3,
    norm1: GroupNorm,
    layer1: Vec<ResidualBlock>,
    layer2: Vec<ResidualBlock>,
    layer3: Vec<ResidualBlock>,
    output: Linear,
}

/// The number of blocks per stage: the paper's n, of 6n + 2 = 20 layers.
const BLOCKS: usize = 3;

impl ResNet20 {
    /// The paper's number of channels in the first stage; each stage has twice as many as the one before.
    pub const WIDTH: usize = 16;
    /// Creates a network with fresh random parameters, with `width` channels in the first stage.
    ///
    /// # Panics
    /// Panics if `width` is not a multiple of 8, the number of groups.
    pub fn new(width: usize, shape: ImageShape, device: &Device) -> Self {
        let stage = |input, width, stride| stage(BLOCKS, input, width, stride, device);
        Self {
            conv1: convolution(3, width, 1, device),
            norm1: normalisation(width, device),
            layer1: stage(width, width, 1),
            layer2: stage(width, 2 * width, 2),
            layer3: stage(2 * width, 4 * width, 2),
            output: Linear::new(LinearConfig::new(4 * width, shape.classes).init(device)),
        }
    }
}

impl Network for ResNet20 {
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let mut x = self.norm1.forward_relu(self.conv1.forward(images));
        for block in self.layer1.iter().chain(&self.layer2).chain(&self.layer3) {
            x = block.forward(x);
        }
        self.output.forward(global_average(x))
    }
}

#[cfg(test)]
mod tests {
    use super::super::builtin_model;
    use ata_types::Iteration;

    use super::super::ModelError;
    use super::*;
    use crate::DeviceChoice;
    use ata_data::{DataSource, Split, Tasks};

    /// The count is the paper's 0.27 M, with 100 classes instead of 10.
    #[test]
    fn parameter_count() {
        assert_eq!(builtin_model("resnet20").unwrap().parameter_count(), 275_572);
        assert_eq!(builtin_model("resnet20:width=16").unwrap().parameter_count(), 275_572);
        assert_eq!(builtin_model("resnet20:width=32").unwrap().parameter_count(), 1_085_572);
        assert_eq!(builtin_model("resnet20:size=64,classes=10").unwrap().parameter_count(), 275_572 - 90 * 65);
    }

    #[test]
    fn names_are_pytorchs() {
        let table = builtin_model("resnet20").unwrap().table();
        let shape = |name: &str| &table.tensors.iter().find(|entry| entry.name == name).expect(name).shape;
        assert_eq!(table.tensors.len(), 59);
        assert_eq!(*shape("layer2.0.conv1.weight"), [32, 16, 3, 3]);
        assert_eq!(*shape("layer3.2.norm2.weight"), [64]);
        assert_eq!(*shape("norm1.bias"), [16]);
        assert_eq!(*shape("output.weight"), [100, 64]);
    }

    #[test]
    fn bad_widths_are_refused_with_the_reason() {
        for width in ["12", "0", "512", "x"] {
            let error = builtin_model(&format!("resnet20:width={width}")).err().unwrap().to_string();
            assert!(error.contains(&format!("width '{width}' must be a multiple of 8")), "{error}");
        }
        assert!(matches!(builtin_model("resnet20:depth=5"), Err(ModelError::Unknown(_))));
    }

    /// Invariant 2: a task's gradient is that of its samples, whatever was computed before.
    #[test]
    fn a_task_does_not_depend_on_others() {
        let model = builtin_model("resnet20:width=8").unwrap();
        let data = model.open(&DataSource::Generated { seed: 1 }, Split::Train).unwrap();
        let cpu = DeviceChoice::Cpu.open().unwrap();
        let tasks = Tasks { seed: 1, budget: 2, task_batch: 2 };
        let parameters = model.initial_parameters(1).unwrap();
        let [mut fresh, mut used] = [(), ()].map(|()| data.clone().learner(&cpu, tasks));
        for learner in [&mut fresh, &mut used] {
            learner.load(&parameters);
        }
        used.gradient(Iteration(1), 0).unwrap();
        used.gradient(Iteration(2), 1).unwrap();
        let expected = fresh.gradient(Iteration(1), 1).unwrap();
        assert_eq!(used.gradient(Iteration(1), 1).unwrap(), expected);
        assert!(expected.gradient.iter().all(|value| value.is_finite()) && expected.loss < 7.0, "{}", expected.loss);
    }

    /// The mean over a batch is the mean over its samples: no sample depends on another one.
    #[test]
    fn a_sample_does_not_depend_on_its_batch() {
        let device = Device::flex();
        device.seed(1);
        let network = ResNet20::new(8, ImageShape::default(), &device);
        let images = Tensor::<4>::random([2, 3, 32, 32], burn::tensor::Distribution::Normal(0.0, 1.0), &device);
        let both = network.forward(images.clone()).into_data();
        let alone = network.forward(images.narrow(0, 0, 1)).into_data();
        let (both, alone) = (both.as_slice::<f32>().unwrap(), alone.as_slice::<f32>().unwrap());
        let apart = both.iter().zip(alone).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-4, "{apart}");
    }
}
