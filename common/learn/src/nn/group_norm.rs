//! Group normalisation.

use ata_nn::normalise::NormGeometry;
use burn::module::{Module, Param};
use burn::tensor::{FloatDType, Tensor};

use super::flex;
use super::normalise::{finish_by_burn, normalise};

/// Group normalisation of images, fused with the next operations of a residual network.
#[derive(Module, Debug)]
pub struct GroupNorm {
    gamma: Param<Tensor<1>>,
    beta: Param<Tensor<1>>,
    groups: usize,
    epsilon: f64,
}

impl GroupNorm {
    /// Takes over the parameters of burn's layer.
    ///
    /// # Panics
    /// Panics if the layer has no parameters.
    pub fn new(layer: burn::nn::GroupNorm) -> Self {
        let [gamma, beta] = [layer.gamma, layer.beta].map(|values| values.expect("a layer with parameters"));
        Self { gamma, beta, groups: layer.num_groups, epsilon: layer.epsilon }
    }

    /// Takes and returns images of shape [samples, channels, height, width].
    pub fn forward(&self, images: Tensor<4>) -> Tensor<4> {
        self.run(images, None, false)
    }

    /// Normalises images, adds `shortcut`, if there is one, and applies ReLU if `with_relu` is set.
    pub(crate) fn run(&self, images: Tensor<4>, shortcut: Option<Tensor<4>>, with_relu: bool) -> Tensor<4> {
        if !flex::takes(&images) {
            return finish_by_burn(self.by_burn(images), shortcut, with_relu);
        }
        let (samples, size) = flex::sizes(&images);
        let g = NormGeometry { samples, size, parts: self.groups, epsilon: self.epsilon, relu: with_relu };
        normalise(images, [&self.gamma, &self.beta], shortcut, g, None)
    }

    fn by_burn(&self, images: Tensor<4>) -> Tensor<4> {
        let (num_groups, num_channels, epsilon) = (self.groups, images.dims()[1], self.epsilon);
        let layer = burn::nn::GroupNorm { gamma: None, beta: None, num_groups, num_channels, epsilon, affine: false };
        let of_channels =
            |values: &Param<Tensor<1>>| values.val().cast(FloatDType::F32).reshape([1, num_channels, 1, 1]);
        let dtype = images.dtype();
        let normalised = layer.forward(images.cast(FloatDType::F32));
        (normalised * of_channels(&self.gamma) + of_channels(&self.beta)).cast(dtype)
    }
}
