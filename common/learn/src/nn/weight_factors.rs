//! Weight gradients that are kept as their factors.
//!
//! The gradient of a large layer's weight is the product of two small matrices. Whoever adds it to a sum can compute it a piece at a
//! time, while the piece is in a cache. For a layer of 43 MB and a few samples this takes half of the time of a task.

use std::cell::RefCell;

use ata_nn::linear::{Matrix, WeightGradient, weight_gradient};
use burn::backend::Flex;
use burn::tensor::Tensor;
use burn_flex::FlexTensor;

use super::flex;

/// Smaller gradients stay in a core's caches: this is 1 MiB.
const LARGE: usize = 1 << 18;

/// Input and output gradient of a layer.
#[derive(Debug)]
pub(crate) struct WeightFactors {
    x: FlexTensor,
    gradient: FlexTensor,
}

thread_local! {
    /// The factors that were kept, each with the address of its weight; `None` if none are to be kept.
    static KEPT: RefCell<Option<Vec<(usize, WeightFactors)>>> = const { RefCell::new(None) };
}

/// Does `work`, in which gradients of large weights are not computed: [`take_factors`] returns their factors. The second result is whether
/// all of them were taken.
pub(crate) fn keeping_factors<T>(work: impl FnOnce() -> T) -> (T, bool) {
    KEPT.replace(Some(Vec::new()));
    let result = work();
    let rest = KEPT.take();
    (result, rest.is_none_or(|rest| rest.is_empty()))
}

/// Keeps the factors of a weight's gradient, if it is to be kept that way.
pub(super) fn keep(weight: &FlexTensor, x: &FlexTensor, gradient: &FlexTensor) -> bool {
    let numbers = flex::numbers(weight);
    KEPT.with_borrow_mut(|kept| {
        let Some(kept) = kept.as_mut().filter(|_| numbers.len() >= LARGE) else { return false };
        kept.push((numbers.as_ptr().addr(), WeightFactors { x: x.clone(), gradient: gradient.clone() }));
        true
    })
}

/// The factors that were kept for a parameter: as many as it was used.
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

    /// Their product, a piece at a time.
    pub(crate) fn product(&self) -> WeightGradient<'_> {
        let [x, gradient] = self.matrices();
        WeightGradient::new(x, gradient)
    }

    /// Their product as a tensor of one dimension.
    pub(crate) fn tensor(&self) -> Tensor<1> {
        let [x, gradient] = self.matrices();
        let numbers = weight_gradient(x, gradient);
        let count = numbers.len();
        Tensor::from_primitive::<Flex>(flex::tensor(numbers, [count]))
    }
}
