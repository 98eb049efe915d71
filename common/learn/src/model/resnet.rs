//! Residual networks, for small images and for photographs.
//!
//! Sources: He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", CVPR 2016, sections 4.1 and 4.2; for the beginning of
//! ResNet-18, He, Zhang, Zhang, Zhang, Xie, Li, "Bag of Tricks for Image Classification with Convolutional Neural Networks", CVPR 2019,
//! section 4.

use burn::module::{Module, ModuleDisplay};
use burn::nn::conv::Conv2dConfig;
use burn::nn::{BatchNormConfig, GroupNormConfig, Initializer, LinearConfig, PaddingConfig2d};
use burn::tensor::{Device, Tensor};

use super::{ImageShape, ModelError, Network};
use crate::nn::{BatchNorm, Conv3x3, GroupNorm, Linear, Pointwise, global_average, subsample};

/// The number of groups in each group normalisation.
const GROUPS: usize = 8;

/// The factor by which the outputs of a block are wider than its 3×3 convolution.
const EXPANSION: usize = 4;

/// The maximum number of channels in the first stage: with it, ResNet-20 has 69 M parameters, and ResNet-18 has 179 M.
const MAX_WIDTH: usize = 256;

/// A residual network: one or two convolutions, stages of blocks, global average pooling and a linear layer. Each stage has twice as many
/// channels as the one before.
///
/// `B` is the kind of block: [`BasicBlock`] or [`Bottleneck`]. `N` is the normalisation: the paper's [`BatchNorm`], which
/// needs tasks of at least 8 samples, or [`GroupNorm`], which works with tasks of any size.
#[derive(Module, Debug)]
pub struct ResNet<N: Norm, B: ResidualBlock<N>> {
    conv1: Conv3x3,
    norm1: N,
    conv2: Option<Conv3x3>,
    norm2: Option<N>,
    layer1: Vec<B>,
    layer2: Vec<B>,
    layer3: Vec<B>,
    layer4: Vec<B>,
    output: Linear,
}

/// A normalisation of the images in a residual network.
pub trait Norm: Module + ModuleDisplay + 'static {
    /// Creates a normalisation of this many channels.
    fn of(channels: usize, device: &Device) -> Self;

    /// Normalises images, adds the shortcut, if there is one, and applies ReLU if `with_relu` is set.
    fn run(&self, images: Tensor<4>, shortcut: Option<Tensor<4>>, with_relu: bool) -> Tensor<4>;
}

/// A block of a residual network.
pub trait ResidualBlock<N: Norm>: Module + ModuleDisplay + 'static {
    /// Creates a block that takes `input` channels, and every `stride`-th pixel. Its 3×3 convolutions have `width` channels.
    fn new(input: usize, width: usize, stride: usize, device: &Device) -> Self;

    /// Returns the number of channels of the outputs of a block of this width.
    fn outputs(width: usize) -> usize;

    /// Takes and returns images of shape [samples, channels, height, width].
    fn forward(&self, images: Tensor<4>) -> Tensor<4>;
}

impl Norm for GroupNorm {
    fn of(channels: usize, device: &Device) -> Self {
        Self::new(GroupNormConfig::new(GROUPS, channels).init(device))
    }

    fn run(&self, images: Tensor<4>, shortcut: Option<Tensor<4>>, with_relu: bool) -> Tensor<4> {
        Self::run(self, images, shortcut, with_relu)
    }
}

impl Norm for BatchNorm {
    fn of(channels: usize, device: &Device) -> Self {
        Self::new(BatchNormConfig::new(channels).init(device))
    }

    fn run(&self, images: Tensor<4>, shortcut: Option<Tensor<4>>, with_relu: bool) -> Tensor<4> {
        Self::run(self, images, shortcut, with_relu)
    }
}

impl<N: Norm> ResNet<N, BasicBlock<N>> {
    /// Creates ResNet-20 with fresh random parameters: a convolution, and three stages of three blocks. The paper's `width` is
    /// 16 channels in the first stage. With it the network has 275,572 parameters, for CIFAR-100.
    ///
    /// # Panics
    /// Panics if `width` is not a multiple of 8, the number of groups.
    pub fn resnet20(width: usize, shape: ImageShape, device: &Device) -> Self {
        let stage = |input, width, stride| stage(3, input, width, stride, device);
        Self {
            conv1: convolution(3, width, 1, device),
            norm1: N::of(width, device),
            conv2: None,
            norm2: None,
            layer1: stage(width, width, 1),
            layer2: stage(width, 2 * width, 2),
            layer3: stage(2 * width, 4 * width, 2),
            layer4: Vec::new(),
            output: Linear::new(LinearConfig::new(4 * width, shape.classes).init(device)),
        }
    }

    /// Creates a network like ResNet-18 with fresh random parameters, for images of about 224 × 224 pixels. It begins with two 3×3 convolutions.
    ///
    /// # Panics
    /// Panics if `width` is not a multiple of 8, the number of groups.
    pub fn resnet18(width: usize, shape: ImageShape, device: &Device) -> Self {
        Self::of_photographs([2, 2, 2, 2], width, shape, device)
    }
}

impl<N: Norm> ResNet<N, Bottleneck<N>> {
    /// Creates a network like ResNet-50 with fresh random parameters, for images of about 224 × 224 pixels. It begins with two 3×3 convolutions.
    ///
    /// # Panics
    /// Panics if `width` is not a multiple of 8, the number of groups.
    pub fn resnet50(width: usize, shape: ImageShape, device: &Device) -> Self {
        Self::of_photographs([3, 4, 6, 3], width, shape, device)
    }
}

impl<N: Norm, B: ResidualBlock<N>> ResNet<N, B> {
    /// Creates a network with fresh random parameters for images of about 224 × 224 pixels: four stages of these numbers of blocks, the
    /// first on a quarter of the image's width and height, the next on an eighth, and so on. The paper's `width` is 64 channels in the first
    /// stage. Two 3×3 convolutions, which skip every other pixel, replace the paper's 7×7 convolution and the pooling at the beginning.
    fn of_photographs(blocks: [usize; 4], width: usize, shape: ImageShape, device: &Device) -> Self {
        let stage = |at: usize, input, stride| stage(blocks[at], input, width << at, stride, device);
        Self {
            conv1: convolution(3, width, 2, device),
            norm1: N::of(width, device),
            conv2: Some(convolution(width, width, 2, device)),
            norm2: Some(N::of(width, device)),
            layer1: stage(0, width, 1),
            layer2: stage(1, B::outputs(width), 2),
            layer3: stage(2, B::outputs(2 * width), 2),
            layer4: stage(3, B::outputs(4 * width), 2),
            output: Linear::new(LinearConfig::new(B::outputs(8 * width), shape.classes).init(device)),
        }
    }
}

impl<N: Norm, B: ResidualBlock<N>> Network for ResNet<N, B> {
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let mut x = self.norm1.run(self.conv1.forward(images), None, true);
        if let (Some(convolution), Some(normalisation)) = (&self.conv2, &self.norm2) {
            x = normalisation.run(convolution.forward(x), None, true);
        }
        for block in [&self.layer1, &self.layer2, &self.layer3, &self.layer4].into_iter().flatten() {
            x = block.forward(x);
        }
        self.output.forward(global_average(x))
    }
}

/// Two 3×3 convolutions, and a shortcut around them. The shortcut has no parameters (the paper's option A): where a stage begins, it skips
/// every other pixel and adds channels of zeros.
#[derive(Module, Debug)]
pub struct BasicBlock<N: Norm> {
    conv1: Conv3x3,
    norm1: N,
    conv2: Conv3x3,
    norm2: N,
    /// Whether the shortcut takes one pixel of each 2 × 2, as at the beginning of a stage with smaller images.
    shrinks: bool,
}

impl<N: Norm> ResidualBlock<N> for BasicBlock<N> {
    fn new(input: usize, width: usize, stride: usize, device: &Device) -> Self {
        Self {
            conv1: convolution(input, width, stride, device),
            norm1: N::of(width, device),
            conv2: convolution(width, width, 1, device),
            norm2: N::of(width, device),
            shrinks: stride > 1,
        }
    }

    fn outputs(width: usize) -> usize {
        width
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let y = self.norm1.run(self.conv1.forward(x.clone()), None, true);
        let y = self.conv2.forward(y);
        let shortcut = if self.shrinks { subsample(x, y.dims()[1]) } else { x };
        self.norm2.run(y, Some(shortcut), true)
    }
}

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

/// Creates blocks of the same width. The first one takes `input` channels, and every `stride`-th pixel.
fn stage<N: Norm, B: ResidualBlock<N>>(
    blocks: usize,
    input: usize,
    width: usize,
    stride: usize,
    device: &Device,
) -> Vec<B> {
    let first = B::new(input, width, stride, device);
    std::iter::once(first).chain((1..blocks).map(|_| B::new(B::outputs(width), width, 1, device))).collect()
}

fn convolution(input: usize, output: usize, stride: usize, device: &Device) -> Conv3x3 {
    let config = Conv2dConfig::new([input, output], [3, 3])
        .with_stride([stride, stride])
        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1));
    Conv3x3::new(of_he(config).init(device))
}

fn pointwise(input: usize, output: usize, stride: usize, device: &Device) -> Pointwise {
    let config = Conv2dConfig::new([input, output], [1, 1]).with_stride([stride, stride]);
    Pointwise::new(of_he(config).init(device))
}

/// Takes away the bias of a convolution, as the normalisation after it has one, and initialises it as in the paper.
fn of_he(convolution: Conv2dConfig) -> Conv2dConfig {
    let initializer = Initializer::KaimingNormal { gain: 2.0_f64.sqrt(), fan_out_only: false };
    convolution.with_bias(false).with_initializer(initializer)
}

/// Parses a width: a multiple of the number of groups.
pub(super) fn parse_width(model: &str, text: &str) -> Result<usize, ModelError> {
    let is_good = |width: &usize| (GROUPS..=MAX_WIDTH).contains(width) && width.is_multiple_of(GROUPS);
    text.parse().ok().filter(is_good).ok_or_else(|| ModelError::Invalid {
        model: model.into(),
        reason: format!("width '{text}' must be a multiple of {GROUPS}, at most {MAX_WIDTH}, as in width=16"),
    })
}

/// The kind of a normalisation, in a model's specification.
#[derive(Clone, Copy)]
pub(super) enum NormName {
    Batch,
    Group,
}

pub(super) fn parse_norm(model: &str, text: &str) -> Result<NormName, ModelError> {
    match text {
        "batch" => Ok(NormName::Batch),
        "group" => Ok(NormName::Group),
        _ => Err(ModelError::Invalid {
            model: model.into(),
            reason: format!("norm '{text}' must be batch or group, as in norm=batch"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::builtin_model;
    use super::*;

    /// A module of PyTorch with these layers loads the file strictly: the running statistics follow all that is trained.
    #[test]
    fn running_statistics_are_averaged() {
        let table = builtin_model("resnet20:norm=batch").unwrap().table();
        let (trained, averaged) = table.tensors.split_at(59);
        assert_eq!(trained, builtin_model("resnet20:norm=group").unwrap().table().tensors);
        assert_eq!(averaged.len(), 2 * 19);
        assert!(averaged.iter().all(|entry| entry.kind == ata_sums::TensorKind::Averaged));
        assert_eq!((&*averaged[0].name, &*averaged[37].name), ("norm1.running_mean", "layer3.2.norm2.running_var"));
        let parameters = builtin_model("resnet20:norm=batch").unwrap().initial_parameters(1).unwrap();
        assert_eq!(parameters[parameters.len() - 65..], [[0.0].as_slice(), &[1.0; 64]].concat());
    }

    /// Images may have any valid size, down to less than a pixel per stage.
    #[test]
    fn images_of_any_size_are_classified() {
        let device = Device::flex();
        for size in [8, 40, 224] {
            let network = ResNet::<GroupNorm, _>::resnet18(8, ImageShape { classes: 7, size }, &device);
            assert_eq!(network.forward(Tensor::zeros([1, 3, size, size], &device)).dims(), [1, 7]);
        }
    }
}
