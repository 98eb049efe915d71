//! Converts a module's parameters and gradients to one flat `f32` vector, and describes its parts by their names and shapes in PyTorch.
//!
//! The order is burn's visiting order: fields as declared, weight before bias, each tensor row-major; but trained parameters precede averaged
//! ones. Unlike burn's parameter ids, it is the same in every process.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, ExecutionError, FloatDType, Tensor, TensorData, Transaction};

use crate::device::is_cpu;
use crate::nn::{self, Factors, LeftValues};
use ata_sums::{ParameterTable, TensorEntry, TensorGradient, TensorKind, TensorSizes};

/// Values of parameters in burn's visiting order.
struct ByKind<T> {
    trained: Vec<T>,
    /// The values of parameters without gradients, such as running statistics and frozen ones.
    averaged: Vec<T>,
}

impl<T> ByKind<T> {
    fn new() -> Self {
        Self { trained: Vec::new(), averaged: Vec::new() }
    }

    fn of<const D: usize>(&mut self, param: &Param<Tensor<D>>) -> &mut Vec<T> {
        if is_trained(param) { &mut self.trained } else { &mut self.averaged }
    }

    fn in_order(self) -> impl Iterator<Item = T> {
        self.trained.into_iter().chain(self.averaged)
    }
}

/// Returns all parameters, in one read from the device.
pub(crate) fn parameters<N: Module>(network: &N) -> Vec<f32> {
    let tensors = values_of(network);
    let transaction = tensors.in_order().fold(Transaction::default(), Transaction::register);
    concatenate(&transaction.execute())
}

/// Returns the values of averaged parameters, in host memory.
pub(crate) fn averaged_values<N: Module>(network: &N) -> Vec<TensorData> {
    values_of(network).averaged.into_iter().map(Tensor::into_data).collect()
}

/// Returns the values of all parameters, on the device.
fn values_of<N: Module>(network: &N) -> ByKind<Tensor<1>> {
    struct ParameterVisitor(ByKind<Tensor<1>>);
    impl ModuleVisitor for ParameterVisitor {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let value = param.val().inner().flatten(0, D - 1);
            self.0.of(param).push(value);
        }
    }
    let mut visitor = ParameterVisitor(ByKind::new());
    network.visit(&mut visitor);
    visitor.0
}

/// Returns `network` with its parameters replaced.
///
/// # Panics
/// Panics if `values` does not have one `f32` per parameter.
pub fn with_parameters<N: Module>(network: N, values: &[f32], device: &Device) -> N {
    with_parameters_as(FloatDType::F32, network, values, device)
}

/// Returns `network` with its parameters replaced, the trained ones by numbers of another type.
pub(crate) fn with_parameters_as<N: Module>(dtype: FloatDType, network: N, values: &[f32], device: &Device) -> N {
    assert_eq!(values.len(), network.num_params());
    let averaged_at = TensorSizes::from(&table_of(&network)).trained_values();
    let trained_at = 0;
    if is_cpu(device) {
        let cut = |from, to| Tensor::<1>::from_floats(&values[from..to], device);
        return network.map(&mut Loader { trained_at, averaged_at, dtype, cut });
    }
    // One upload is sliced on the device.
    let all = Tensor::<1>::from_floats(values, device);
    let cut = |from, to| all.clone().slice(from..to);
    network.map(&mut Loader { trained_at, averaged_at, dtype, cut })
}

struct Loader<F> {
    /// The places of the next trained and of the next averaged value.
    trained_at: usize,
    averaged_at: usize,
    dtype: FloatDType,
    /// Returns the numbers from the first index up to the second.
    cut: F,
}

impl<F: Fn(usize, usize) -> Tensor<1>> ModuleMapper for Loader<F> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, shape) = (param.id, param.lazy_shape());
        let (at, dtype) = if is_trained(&param) {
            (&mut self.trained_at, self.dtype)
        } else {
            (&mut self.averaged_at, FloatDType::F32)
        };
        let from = *at;
        *at += shape.num_elements();
        param.transform_for_load((self.cut)(from, *at).cast(dtype).reshape(shape), id)
    }
}

/// Returns the type of a network's trained parameters: f32 if it has none.
pub(crate) fn dtype<N: Module>(network: &N) -> FloatDType {
    struct TypeVisitor(FloatDType);
    impl ModuleVisitor for TypeVisitor {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if is_trained(param) {
                self.0 = param.val().dtype().into();
            }
        }
    }
    let mut visitor = TypeVisitor(FloatDType::F32);
    network.visit(&mut visitor);
    visitor.0
}

/// A loss and its gradient on the device: one part per parameter, in flat order. The part of an averaged parameter is its value before a task
/// minus that after it.
pub(crate) struct Gradients {
    loss: Tensor<1>,
    parts: Vec<ParameterGradient<Tensor<1>>>,
}

pub(crate) enum ParameterGradient<T> {
    Values(T),
    /// The factors of a large weight's gradient, if they are kept.
    Factors(Box<Factors>),
}

impl ParameterGradient<Tensor<1>> {
    fn tensor(self) -> Tensor<1> {
        match self {
            Self::Values(tensor) => tensor,
            Self::Factors(factors) => factors.tensor(),
        }
    }
}

impl ParameterGradient<TensorData> {
    /// Returns the gradient in the form in which a sum takes it.
    pub(crate) fn gradient(&self) -> TensorGradient<'_> {
        match self {
            Self::Values(data) => TensorGradient::Values(values(data)),
            Self::Factors(factors) => TensorGradient::Product(factors.product()),
        }
    }
}

struct GradientVisitor {
    parts: ByKind<ParameterGradient<Tensor<1>>>,
    gradients: burn::tensor::Gradients,
    left: LeftValues,
    tasks: usize,
}

impl GradientVisitor {
    fn trained<const D: usize>(&mut self, param: &Param<Tensor<D>>) -> ParameterGradient<Tensor<1>> {
        let gradient = param.val().grad_remove(&mut self.gradients);
        // Factors beside a gradient stay, by which their learner sees that they are not all of it.
        if gradient.is_none()
            && let Some(factors) = nn::take_factors(param.val())
        {
            return ParameterGradient::Factors(factors);
        }
        // burn records no gradient for a parameter that the loss does not depend on: it is zero.
        let gradient = gradient.unwrap_or_else(|| param.val().inner().zeros_like());
        ParameterGradient::Values(gradient.flatten(0, D - 1).cast(FloatDType::F32))
    }

    fn averaged<const D: usize>(&mut self, param: &Param<Tensor<D>>) -> Tensor<1> {
        let before = param.val().inner().flatten(0, D - 1);
        let left = self.left.iter().position(|(id, _)| *id == param.id);
        match left.map(|at| self.left.swap_remove(at).1) {
            None => before.zeros_like(),
            Some(after) if self.tasks == 1 => before - after,
            Some(after) => (before - after) * self.tasks as f64,
        }
    }
}

impl ModuleVisitor for GradientVisitor {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let part =
            if is_trained(param) { self.trained(param) } else { ParameterGradient::Values(self.averaged(param)) };
        self.parts.of(param).push(part);
    }
}

impl Gradients {
    /// Computes the gradient of a scalar `loss` of some tasks at the parameters of `network`, as f32. `left` has what the forward pass left
    /// in averaged parameters.
    pub(crate) fn of<N: Module>(loss: Tensor<1>, network: &N, tasks: usize, left: LeftValues) -> Self {
        let mut visitor = GradientVisitor { parts: ByKind::new(), gradients: loss.backward(), left, tasks };
        network.visit(&mut visitor);
        Self { loss: loss.inner().cast(FloatDType::F32), parts: visitor.parts.in_order().collect() }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let parts = self.parts.into_iter().zip(other.parts);
        let parts = parts.map(|(a, b)| ParameterGradient::Values(a.tensor() + b.tensor())).collect();
        Self { loss: self.loss + other.loss, parts }
    }

    /// Reads the loss and the part of each parameter into host memory, in one read from the device.
    pub(crate) fn read(self) -> Result<(f32, Vec<ParameterGradient<TensorData>>), ExecutionError> {
        let mut transaction = Transaction::default().register(self.loss);
        let mut places = Vec::new();
        for part in self.parts {
            places.push(match part {
                ParameterGradient::Values(tensor) => {
                    transaction = transaction.register(tensor);
                    None
                }
                ParameterGradient::Factors(factors) => Some(factors),
            });
        }
        let mut data = transaction.try_execute()?.into_iter();
        let mut next = || data.next().expect("one for each tensor");
        let loss = values(&next())[0];
        let parts = places.into_iter().map(|factors| match factors {
            None => ParameterGradient::Values(next()),
            Some(factors) => ParameterGradient::Factors(factors),
        });
        Ok((loss, parts.collect()))
    }
}

pub(crate) fn concatenate(tensors: &[TensorData]) -> Vec<f32> {
    tensors.iter().flat_map(values).copied().collect()
}

pub(crate) fn values(tensor: &TensorData) -> &[f32] {
    tensor.as_slice::<f32>().expect("parameters and gradients are f32")
}

pub(crate) fn table_of<N: Module>(network: &N) -> ParameterTable {
    let mut visitor = TableVisitor { path: Vec::new(), tensors: Vec::new() };
    network.visit(&mut visitor);
    // The sort keeps the order of burn among tensors of the same kind.
    visitor.tensors.sort_by_key(|entry| entry.kind != TensorKind::Trained);
    ParameterTable { tensors: visitor.tensors }
}

/// Returns whether a parameter is trained, rather than averaged. Without autodiff, a parameter still knows whether it needs a gradient with it.
pub(crate) fn is_trained<const D: usize>(param: &Param<Tensor<D>>) -> bool {
    let (param, device) = (param.clone(), param.lazy_device());
    let param = if param.is_initialized() {
        param
    } else {
        // To ask for its values would change burn's random state.
        let (zeros, id) = (Tensor::zeros(param.lazy_shape(), &device), param.id);
        param.transform_for_load(zeros, id)
    };
    if device.is_autodiff() { param.is_require_grad() } else { param.train().is_require_grad() }
}

struct TableVisitor {
    /// The names of the modules on the current path, each with the type of the module that contains it.
    path: Vec<(String, String)>,
    tensors: Vec<TensorEntry>,
}

impl ModuleVisitor for TableVisitor {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push((name.into(), container_type.into()));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let mut shape = param.lazy_shape().to_vec();
        let is_transposed = self.path.last().is_some_and(|(_, kind)| kind == "Struct:Linear") && D == 2;
        if is_transposed {
            shape.reverse();
        }
        let mut names: Vec<&str> = self.path.iter().map(|(name, _)| name.as_str()).collect();
        // burn calls the parameters of normalisation layers gamma and beta.
        match names.last_mut() {
            Some(last @ &mut "gamma") => *last = "weight",
            Some(last @ &mut "beta") => *last = "bias",
            _ => {}
        }
        let kind = if is_trained(param) { TensorKind::Trained } else { TensorKind::Averaged };
        self.tensors.push(TensorEntry { is_transposed, kind, ..TensorEntry::new(names.join("."), shape) });
    }
}
