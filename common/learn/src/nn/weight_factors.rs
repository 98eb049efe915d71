//! Weight gradients that are kept as their factors.
//!
//! The gradient of a large layer's weight is the product of two small matrices. Code that adds it to a sum can compute it in pieces, while
//! each piece is in a cache. For a layer of 43 MB and a few samples this takes half of the time of a task.

use std::cell::RefCell;

use ata_nn::linear::{Matrix, WeightGradient, weight_gradient};
use burn::backend::Flex;
use burn::tensor::Tensor;
use burn_flex::FlexTensor;

use super::flex;

/// The minimum number of values of a large gradient, 1 MiB: smaller ones stay in a core's caches.
const LARGE: usize = 1 << 18;

/// The factors of a weight gradient: the layer's input and the gradient of its output.
#[derive(Debug)]
pub(crate) struct WeightFactors {
    x: FlexTensor,
    gradient: FlexTensor,
}

thread_local! {
    /// The kept factors, each with the address of its weight; `None` if none should be kept.
    static KEPT: RefCell<Option<Vec<(usize, WeightFactors)>>> = const { RefCell::new(None) };
}

/// Runs `work` without computing the gradients of large weights: [`take_factors`] returns their factors. The second
/// result is `true` if all of them were taken.
pub(crate) fn keeping_factors<T>(work: impl FnOnce() -> T) -> (T, bool) {
    KEPT.replace(Some(Vec::new()));
    let result = work();
    let rest = KEPT.take();
    (result, rest.is_none_or(|rest| rest.is_empty()))
}

/// Keeps the factors of a weight's gradient if the weight is large and [`keeping_factors`] is active.
pub(super) fn keep(weight: &FlexTensor, x: &FlexTensor, gradient: &FlexTensor) -> bool {
    let numbers = flex::numbers(weight);
    KEPT.with_borrow_mut(|kept| {
        let Some(kept) = kept.as_mut().filter(|_| numbers.len() >= LARGE) else { return false };
        kept.push((numbers.as_ptr().addr(), WeightFactors { x: x.clone(), gradient: gradient.clone() }));
        true
    })
}

/// Returns the kept factors of a parameter: one for each time that it was used.
pub(crate) fn take_factors<const D: usize>(parameter: Tensor<D>) -> Vec<WeightFactors> {
    KEPT.with_borrow_mut(|kept| {
        let Some(kept) = kept.as_mut().filter(|kept| !kept.is_empty()) else { return Vec::new() };
        let Ok(tensor) = parameter.try_into_primitive::<Flex>() else { return Vec::new() };
        let address = tensor.as_slice::<f32>().map(|numbers| numbers.as_ptr().addr());
        kept.extract_if(.., |(weight, _)| Some(*weight) == address).map(|(_, factors)| factors).collect()
    })
}

impl WeightFactors {
    fn matrices(&self) -> [Matrix<'_>; 2] {
        [flex::matrix(&self.x), flex::matrix(&self.gradient)]
    }

    /// Returns their product, to be computed in pieces.
    pub(crate) fn product(&self) -> WeightGradient<'_> {
        let [x, gradient] = self.matrices();
        WeightGradient::new(x, gradient)
    }

    /// Returns their product as a tensor of one dimension.
    pub(crate) fn tensor(&self) -> Tensor<1> {
        let [x, gradient] = self.matrices();
        let numbers = weight_gradient(x, gradient);
        let count = numbers.len();
        Tensor::from_primitive::<Flex>(flex::tensor(numbers, [count]))
    }
}
