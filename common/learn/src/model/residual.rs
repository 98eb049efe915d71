//! The parts of residual networks.

use burn::module::Module;
use burn::nn::conv::Conv2dConfig;
use burn::nn::{GroupNormConfig, Initializer, PaddingConfig2d};
use burn::tensor::{Device, Tensor};

use super::ModelError;
use crate::nn::{Conv3x3, GroupNorm, subsample};

/// The number of groups in each normalisation.
const GROUPS: usize = 8;

/// The maximum number of channels in the first stage: with it, ResNet-20 has 69 M parameters, and ResNet-18 has 179 M.
const MAX_WIDTH: usize = 256;

/// Two 3×3 convolutions, and a shortcut around them.
#[derive(Module, Debug)]
pub(super) struct ResidualBlock {
    conv1: Conv3x3,
    norm1: GroupNorm,
    conv2: Conv3x3,
    norm2: GroupNorm,
    /// Whether the shortcut takes one pixel of each 2 × 2, as at the beginning of a stage with smaller images.
    shrinks: bool,
}

impl ResidualBlock {
    fn new(input: usize, width: usize, stride: usize, device: &Device) -> Self {
        Self {
            conv1: convolution(input, width, stride, device),
            norm1: normalisation(width, device),
            conv2: convolution(width, width, 1, device),
            norm2: normalisation(width, device),
            shrinks: stride > 1,
        }
    }

    pub(super) fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let y = self.norm1.forward_relu(self.conv1.forward(x.clone()));
        let y = self.conv2.forward(y);
        let shortcut = if self.shrinks { subsample(x, y.dims()[1]) } else { x };
        self.norm2.forward_add_relu(y, shortcut)
    }
}

/// Creates blocks of the same width. The first one takes `input` channels, and every `stride`-th pixel.
pub(super) fn stage(blocks: usize, input: usize, width: usize, stride: usize, device: &Device) -> Vec<ResidualBlock> {
    let first = ResidualBlock::new(input, width, stride, device);
    std::iter::once(first).chain((1..blocks).map(|_| ResidualBlock::new(width, width, 1, device))).collect()
}

/// Creates a 3×3 convolution without bias, as the normalisation after it has one, initialised as in the paper.
pub(super) fn convolution(input: usize, output: usize, stride: usize, device: &Device) -> Conv3x3 {
    let config = Conv2dConfig::new([input, output], [3, 3])
        .with_stride([stride, stride])
        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
        .with_bias(false)
        .with_initializer(Initializer::KaimingNormal { gain: 2.0_f64.sqrt(), fan_out_only: false });
    Conv3x3::new(config.init(device))
}

pub(super) fn normalisation(width: usize, device: &Device) -> GroupNorm {
    GroupNorm::new(GroupNormConfig::new(GROUPS, width).init(device))
}

/// Parses a width: a multiple of the number of groups.
pub(super) fn parse_width(model: &str, text: &str) -> Result<usize, ModelError> {
    let is_good = |width: &usize| (GROUPS..=MAX_WIDTH).contains(width) && width.is_multiple_of(GROUPS);
    text.parse().ok().filter(is_good).ok_or_else(|| ModelError::Invalid {
        model: model.into(),
        reason: format!("width '{text}' must be a multiple of {GROUPS}, at most {MAX_WIDTH}, as in width=16"),
    })
}
