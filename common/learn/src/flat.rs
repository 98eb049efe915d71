//! Converts a module's parameters and gradients to one flat `f32` vector.
//!
//! The order is burn's visiting order: fields as declared, weight before bias, each tensor row-major. Unlike burn's
//! parameter ids, it is the same in every process.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, ExecutionError, FloatDType, Tensor, TensorData, Transaction};

use crate::device::is_cpu;
use crate::nn::{self, WeightFactors};
use ata_sums::TensorGradient;

/// Returns all parameters, in one read from the device.
pub(crate) fn parameters<N: Module>(network: &N) -> Vec<f32> {
    struct ParameterVisitor(Transaction);
    impl ModuleVisitor for ParameterVisitor {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let transaction = std::mem::take(&mut self.0);
            self.0 = transaction.register(param.val().inner());
        }
    }
    let mut visitor = ParameterVisitor(Transaction::default());
    network.visit(&mut visitor);
    concatenate(&visitor.0.execute())
}

/// Returns `network` with its parameters replaced.
///
/// # Panics
/// Panics if `values` does not have one `f32` per parameter.
pub fn with_parameters<N: Module>(network: N, values: &[f32], device: &Device) -> N {
    with_parameters_as(FloatDType::F32, network, values, device)
}

/// Returns `network` with its parameters replaced by numbers of another type.
pub(crate) fn with_parameters_as<N: Module>(dtype: FloatDType, network: N, values: &[f32], device: &Device) -> N {
    assert_eq!(values.len(), network.num_params());
    let at = 0;
    if is_cpu(device) {
        return network
            .map(&mut Loader { at, cut: |from, to| Tensor::<1>::from_floats(&values[from..to], device).cast(dtype) });
    }
    // One upload is sliced on the device.
    let all = Tensor::<1>::from_floats(values, device).cast(dtype);
    network.map(&mut Loader { at, cut: |from, to| all.clone().slice(from..to) })
}

struct Loader<F> {
    /// The number of values loaded so far.
    at: usize,
    /// Returns the numbers from the first index up to the second.
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

/// Returns the type of a network's parameters: f32 if it has none.
pub(crate) fn dtype<N: Module>(network: &N) -> FloatDType {
    struct TypeVisitor(FloatDType);
    impl ModuleVisitor for TypeVisitor {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0 = param.val().dtype().into();
        }
    }
    let mut visitor = TypeVisitor(FloatDType::F32);
    network.visit(&mut visitor);
    visitor.0
}

/// A loss and its gradient on the device: one part per parameter, in flat order.
pub(crate) struct Gradients {
    loss: Tensor<1>,
    parts: Vec<FlatPart<Tensor<1>>>,
}

pub(crate) enum FlatPart<T> {
    /// The values of the gradient.
    Values(T),
    /// The factors of a large weight's gradient, if they are kept.
    Factors(Box<WeightFactors>),
}

impl Gradients {
    /// Computes the gradient of a scalar `loss` at the parameters of `network`, as f32.
    pub(crate) fn of<N: Module>(loss: Tensor<1>, network: &N) -> Self {
        struct GradientVisitor(Vec<FlatPart<Tensor<1>>>, burn::tensor::Gradients);
        impl ModuleVisitor for GradientVisitor {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let gradient = param.val().grad_remove(&mut self.1).map(|gradient| gradient.flatten(0, D - 1));
                let mut factors = nn::take_factors(param.val().inner());
                if let (None, [_]) = (&gradient, &factors[..]) {
                    return self.0.extend(factors.pop().map(|factors| FlatPart::Factors(Box::new(factors))));
                }
                // The gradients of a parameter that is used several times are added up.
                let sum = factors.iter().map(WeightFactors::tensor).chain(gradient).reduce(|sum, more| sum + more);
                // burn records no gradient for a parameter that the loss does not depend on: it is zero.
                let sum = sum.unwrap_or_else(|| param.val().inner().zeros_like().flatten(0, D - 1));
                self.0.push(FlatPart::Values(sum.cast(FloatDType::F32)));
            }
        }
        let mut visitor = GradientVisitor(Vec::new(), loss.backward());
        network.visit(&mut visitor);
        Self { loss: loss.inner().cast(FloatDType::F32), parts: visitor.0 }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let parts = self.parts.into_iter().zip(other.parts);
        let parts = parts.map(|(a, b)| FlatPart::Values(a.into_tensor() + b.into_tensor())).collect();
        Self { loss: self.loss + other.loss, parts }
    }

    /// Reads the loss and the part of each parameter into host memory, in one read from the device.
    pub(crate) fn read(self) -> Result<(f32, Vec<FlatPart<TensorData>>), ExecutionError> {
        let mut transaction = Transaction::default().register(self.loss);
        let mut places = Vec::new();
        for part in self.parts {
            places.push(match part {
                FlatPart::Values(tensor) => {
                    transaction = transaction.register(tensor);
                    None
                }
                FlatPart::Factors(factors) => Some(factors),
            });
        }
        let mut data = transaction.try_execute()?.into_iter();
        let mut next = || data.next().expect("one for each tensor");
        let loss = values(&next())[0];
        let parts =
            places.into_iter().map(|factors| factors.map_or_else(|| FlatPart::Values(next()), FlatPart::Factors));
        Ok((loss, parts.collect()))
    }
}

impl FlatPart<Tensor<1>> {
    fn into_tensor(self) -> Tensor<1> {
        match self {
            Self::Values(tensor) => tensor,
            Self::Factors(factors) => factors.tensor(),
        }
    }
}

impl FlatPart<TensorData> {
    /// Returns the gradient in the form that a sum accepts.
    pub(crate) fn gradient(&self) -> TensorGradient<'_> {
        match self {
            Self::Values(data) => TensorGradient::Values(values(data)),
            Self::Factors(factors) => TensorGradient::Factors(factors.product()),
        }
    }

    pub(crate) fn into_data(self) -> TensorData {
        match self {
            Self::Values(data) => data,
            Self::Factors(factors) => factors.tensor().into_data(),
        }
    }
}

pub(crate) fn concatenate(tensors: &[TensorData]) -> Vec<f32> {
    tensors.iter().flat_map(values).copied().collect()
}

pub(crate) fn values(tensor: &TensorData) -> &[f32] {
    tensor.as_slice::<f32>().expect("parameters and gradients are f32")
}
