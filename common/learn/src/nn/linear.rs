//! Fully connected layers.

use ata_nn::linear as kernel;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::module::{Module, Param};
use burn::tensor::{Tensor, module};
use burn_flex::FlexTensor;

use super::flex::{self, matrix};
use super::weight_factors;

/// A fully connected layer: `x · weight + bias`.
#[derive(Module, Debug)]
pub struct Linear {
    weight: Param<Tensor<2>>,
    bias: Option<Param<Tensor<1>>>,
}

impl Linear {
    /// Takes over the parameters of burn's layer.
    pub fn new(layer: burn::nn::Linear) -> Self {
        Self { weight: layer.weight, bias: layer.bias }
    }

    /// Returns a layer whose weight is computed, and so not a parameter.
    #[cfg(test)]
    pub(crate) fn twice_the_weight(&self) -> Self {
        let weight = Param::initialized(burn::module::ParamId::new(), self.weight.val() * 2.0);
        Self { weight, bias: None }
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
        let ((x, of_x), (weight, of_weight), (bias, of_bias)) =
            (x.into_parts(), weight.into_parts(), bias.into_parts());
        let (x, weight) = (x.to_contiguous(), weight.to_contiguous());
        let output = Flex::linear_in_order(x.clone(), weight.clone(), bias);
        match LinearBackward.prepare::<C>([of_x, of_weight, of_bias]).compute_bound().stateful() {
            OpsKind::UnTracked(prepared) => prepared.finish(output),
            OpsKind::Tracked(prepared) => prepared.finish([x, weight], output),
        }
    }
}

#[derive(Debug)]
struct LinearBackward;

impl Backward<Flex, 3> for LinearBackward {
    /// The input and the weight, both contiguous.
    type State = [FlexTensor; 2];

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let output = gradients.consume::<Flex>(&ops.node).to_contiguous();
        let gradient = matrix(&output);
        let [input, parameter] = &ops.state;
        let (x, weight) = (matrix(input), matrix(parameter));
        let [of_x, of_weight, of_bias] = ops.parents;
        if let Some(node) = of_x {
            let found = kernel::input_gradient(gradient, weight);
            gradients.register::<Flex>(node.id, flex::tensor(found, [x.rows, x.columns]));
        }
        if let Some(node) = of_weight
            // If the weight was computed, its operands need its gradient.
            && !(node.parents.is_empty() && weight_factors::keep(parameter, input, &output))
        {
            let found = kernel::weight_gradient(x, gradient);
            gradients.register::<Flex>(node.id, flex::tensor(found, [weight.rows, weight.columns]));
        }
        if let Some(node) = of_bias {
            let found = kernel::column_sums(gradient);
            gradients.register::<Flex>(node.id, flex::tensor(found, [weight.columns]));
        }
    }
}
