//! A module's parameters and gradients as one flat `f32` vector.
//!
//! The order is burn's visiting order: fields as declared, weight before bias, each tensor row-major. Unlike burn's
//! parameter ids, it is the same in every process.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, ExecutionError, FloatDType, Tensor, TensorData, Transaction};

use crate::device::is_cpu;
use crate::nn::{self, WeightFactors};
use ata_sums::TensorGradient;

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
    with_parameters_as(FloatDType::F32, network, values, device)
}

/// The same, with parameters of another type.
pub(crate) fn with_parameters_as<N: Module>(dtype: FloatDType, network: N, values: &[f32], device: &Device) -> N {
    assert_eq!(values.len(), network.num_params());
    let at = 0;
    if is_cpu(device) {
        return network.map(&mut Loader { at, cut: |from, to| floats(values[from..to].to_vec(), device).cast(dtype) });
    }
    // One upload, cut on the device.
    let all = floats(values.to_vec(), device).cast(dtype);
    network.map(&mut Loader { at, cut: |from, to| all.clone().slice(from..to) })
}

/// Loads every parameter with its part of a flat vector.
struct Loader<F> {
    /// Numbers loaded so far.
    at: usize,
    /// The numbers from the first index up to the second.
    cut: F,
}

impl<F: Fn(usize, usize) -> Tensor<1>> ModuleMapper for Loader<F> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, shape) = (param.id, param.lazy_shape());
        let from = self.at;
        self.at += shape.num_elements();
        param.transform_for_load((self.cut)(from, self.at).reshape(shape), id)
    }
}

/// The type of a network's parameters: f32 if it has none.
pub(crate) fn dtype<N: Module>(network: &N) -> FloatDType {
    struct Visitor(FloatDType);
    impl ModuleVisitor for Visitor {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0 = param.val().dtype().into();
        }
    }
    let mut visitor = Visitor(FloatDType::F32);
    network.visit(&mut visitor);
    visitor.0
}

fn floats(values: Vec<f32>, device: &Device) -> Tensor<1> {
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), device)
}

/// A loss and its gradient on the device: one part per parameter, in flat order.
pub(crate) struct Gradients {
    loss: Tensor<1>,
    parts: Vec<Part<Tensor<1>>>,
}

/// The gradient of a parameter.
pub(crate) enum Part<T> {
    /// Its values.
    Values(T),
    /// The factors of a large weight's gradient, if they are kept.
    Factors(Box<WeightFactors>),
}

impl Gradients {
    /// The gradient of a scalar `loss` at the parameters of `network`, as f32.
    pub(crate) fn of<N: Module>(loss: Tensor<1>, network: &N) -> Self {
        struct Visitor(Vec<Part<Tensor<1>>>, burn::tensor::Gradients);
        impl ModuleVisitor for Visitor {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let gradient = param.val().grad_remove(&mut self.1).map(|gradient| gradient.flatten(0, D - 1));
                let mut factors = nn::take_factors(param.val().inner());
                if let (None, [_]) = (&gradient, &factors[..]) {
                    return self.0.extend(factors.pop().map(|factors| Part::Factors(Box::new(factors))));
                }
                // A parameter that is used several times has the sum of its gradients.
                let sum = factors.iter().map(WeightFactors::tensor).chain(gradient).reduce(|sum, more| sum + more);
                // burn records no gradient for a parameter that the loss does not depend on: it is zero.
                let sum = sum.unwrap_or_else(|| param.val().inner().zeros_like().flatten(0, D - 1));
                self.0.push(Part::Values(sum.cast(FloatDType::F32)));
            }
        }
        let mut visitor = Visitor(Vec::new(), loss.backward());
        network.visit(&mut visitor);
        Self { loss: loss.inner().cast(FloatDType::F32), parts: visitor.0 }
    }

    /// Their sum, on the device.
    pub(crate) fn plus(self, other: Self) -> Self {
        let parts = self.parts.into_iter().zip(other.parts);
        let parts = parts.map(|(a, b)| Part::Values(a.into_tensor() + b.into_tensor())).collect();
        Self { loss: self.loss + other.loss, parts }
    }

    /// Both in host memory, in one read from the device: the loss, and a part per parameter.
    pub(crate) fn read(self) -> Result<(f32, Vec<Part<TensorData>>), ExecutionError> {
        let mut transaction = Transaction::default().register(self.loss);
        let mut places = Vec::new();
        for part in self.parts {
            places.push(match part {
                Part::Values(tensor) => {
                    transaction = transaction.register(tensor);
                    None
                }
                Part::Factors(factors) => Some(factors),
            });
        }
        let mut data = transaction.try_execute()?.into_iter();
        let mut next = || data.next().expect("one for each tensor");
        let loss = values(&next())[0];
        let parts = places.into_iter().map(|factors| factors.map_or_else(|| Part::Values(next()), Part::Factors));
        Ok((loss, parts.collect()))
    }
}

impl Part<Tensor<1>> {
    fn into_tensor(self) -> Tensor<1> {
        match self {
            Self::Values(tensor) => tensor,
            Self::Factors(factors) => factors.tensor(),
        }
    }
}

impl Part<TensorData> {
    /// What is to be added to a sum.
    pub(crate) fn gradient(&self) -> TensorGradient<'_> {
        match self {
            Self::Values(data) => TensorGradient::Values(values(data)),
            Self::Factors(factors) => TensorGradient::Factors(factors.product()),
        }
    }

    /// Its values in host memory.
    pub(crate) fn into_data(self) -> TensorData {
        match self {
            Self::Values(data) => data,
            Self::Factors(factors) => factors.tensor().into_data(),
        }
    }
}

/// The tensors as one vector.
pub(crate) fn concatenate(tensors: &[TensorData]) -> Vec<f32> {
    tensors.iter().flat_map(values).copied().collect()
}

/// The numbers of a tensor.
pub(crate) fn values(tensor: &TensorData) -> &[f32] {
    tensor.as_slice::<f32>().expect("parameters and gradients are f32")
}
