//! A module's parameters and gradients as one flat `f32` vector.
//!
//! The order is burn's visiting order: fields as declared, weight before bias, each tensor row-major. Unlike burn's
//! parameter ids, it is the same in every process.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData, Transaction};

/// All parameters, in one read from the device.
pub(crate) fn parameters<N: Module>(network: &N) -> Vec<f32> {
    struct Visitor(Transaction);
    impl ModuleVisitor for Visitor {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let transaction = std::mem::take(&mut self.0);
            self.0 = transaction.register(param.val().inner());
        }
    }
    let mut visitor = Visitor(Transaction::default());
    network.visit(&mut visitor);
    concatenate(&visitor.0.execute())
}

/// `network` with its parameters replaced.
///
/// # Panics
/// If `values` is not one `f32` per parameter.
pub fn with_parameters<N: Module>(network: N, values: &[f32], device: &Device) -> N {
    struct Mapper<'a>(&'a [f32], &'a Device);
    impl ModuleMapper for Mapper<'_> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let (id, shape) = (param.id, param.lazy_shape());
            let (own, rest) = self.0.split_at(shape.num_elements());
            self.0 = rest;
            let data = TensorData::new(own.to_vec(), shape);
            param.transform_for_load(Tensor::from_data(data, self.1), id)
        }
    }
    assert_eq!(values.len(), network.num_params());
    network.map(&mut Mapper(values, device))
}

/// A scalar and the gradient of every parameter, in one read from the device.
pub(crate) fn scalar_and_gradient<N: Module>(
    network: &N,
    scalar: Tensor<1>,
    gradients: GradientsParams,
) -> (f32, Vec<f32>) {
    struct Visitor(Transaction, GradientsParams);
    impl ModuleVisitor for Visitor {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            // burn records no gradient for a parameter that the loss does not depend on: it is zero.
            let gradient = self.1.remove::<D>(param.id).unwrap_or_else(|| param.val().inner().zeros_like());
            let transaction = std::mem::take(&mut self.0);
            self.0 = transaction.register(gradient);
        }
    }
    let mut visitor = Visitor(Transaction::default().register(scalar), gradients);
    network.visit(&mut visitor);
    let mut data = visitor.0.execute();
    let scalar = concatenate(&[data.remove(0)])[0];
    (scalar, concatenate(&data))
}

fn concatenate(tensors: &[TensorData]) -> Vec<f32> {
    let mut flat = Vec::with_capacity(tensors.iter().map(TensorData::num_elements).sum());
    for tensor in tensors {
        flat.extend_from_slice(tensor.as_slice::<f32>().expect("parameters and gradients are f32"));
    }
    flat
}
