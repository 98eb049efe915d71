//! Fully connected layers.

use ata_nn::linear as kernel;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::module::{Module, Param};
use burn::tensor::{Tensor, module};
use burn_flex::FlexTensor;

use super::factors;
use super::flex::{self, matrix};

/// A fully connected layer: `x · weight + bias`.
#[derive(Module, Debug)]
pub struct Linear {
    pub(crate) weight: Param<Tensor<2>>,
    bias: Option<Param<Tensor<1>>>,
}

impl Linear {
    /// Takes over the parameters of burn's layer.
    pub fn new(layer: burn::nn::Linear) -> Self {
        Self { weight: layer.weight, bias: layer.bias }
    }

    /// Takes a tensor of shape [..., inputs], and returns one of shape [..., outputs].
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let (weight, bias) = (self.weight.val(), self.bias.as_ref().map(Param::val));
        if !flex::takes(&x) {
            return module::linear(x, weight, bias);
        }
        let [inputs, outputs] = weight.dims();
        let mut shape = x.shape();
        shape[D - 1] = outputs;
        let rows = shape.num_elements() / outputs;
        // The missing bias is a constant, so that no gradient is computed for it.
        let bias = bias.unwrap_or_else(|| Tensor::zeros([outputs], &x.device()));
        let x = x.reshape([rows, inputs]).into_dispatch();
        let result: Tensor<2> =
            Tensor::from_dispatch(Dispatch::linear_in_order(x, weight.into_dispatch(), bias.into_dispatch()));
        result.reshape(shape)
    }
}

#[backend_extension(Flex, Autodiff)]
trait LinearOperation: Backend {
    fn linear_in_order(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl LinearOperation for Flex {
    fn linear_in_order(x: FlexTensor, weight: FlexTensor, bias: FlexTensor) -> FlexTensor {
        let (x, weight, bias) = (x.to_contiguous(), weight.to_contiguous(), bias.to_contiguous());
        let (x, weight) = (matrix(&x), matrix(&weight));
        flex::tensor(kernel::forward(x, weight, flex::numbers(&bias)), [x.rows, weight.columns])
    }
}

impl<C: CheckpointStrategy> LinearOperation for Autodiff<Flex, C> {
    fn linear_in_order(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        // A weight that was computed passes its gradient on.
        let parameter = Self::float_is_require_grad(&weight).then(|| weight.id());
        flex::differentiable::<C, _, 3>(
            [x, weight, bias],
            |[x, weight, bias]| Flex::linear_in_order(x, weight, bias),
            |[x, weight, bias]| {
                let (x, weight) = (x.to_contiguous(), weight.to_contiguous());
                (Flex::linear_in_order(x.clone(), weight.clone(), bias), (parameter, [x, weight]))
            },
            |(parameter, [x, weight]), gradient, [of_x, of_weight, of_bias]| {
                let gradient = gradient.to_contiguous();
                let of_weight = of_weight && !factors::keep(parameter, &weight, &x, &gradient);
                let (x, weight, gradient) = (matrix(&x), matrix(&weight), matrix(&gradient));
                let of_weight = of_weight.then(|| kernel::weight_gradient(x, gradient).numbers());
                [
                    of_x.then(|| flex::tensor(kernel::input_gradient(gradient, weight), [x.rows, x.columns])),
                    of_weight.map(|numbers| flex::tensor(numbers, [weight.rows, weight.columns])),
                    of_bias.then(|| flex::tensor(kernel::column_sums(gradient), [weight.columns])),
                ]
            },
        )
    }
}
