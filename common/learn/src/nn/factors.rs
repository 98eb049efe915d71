//! Gradients of large weights that are kept as their factors.
//!
//! The gradient of a large layer's weight is the product of two small matrices. A sum can compute it in pieces, while each is in a cache,
//! instead of writing it to memory and reading it again: for a layer of 43 MB and one sample this is a quarter of a task's time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use ata_nn::linear::{self, Product};
use burn::backend::autodiff::NodeId;
use burn::backend::{Autodiff, Flex};
use burn::tensor::Tensor;
use burn_flex::FlexTensor;

use super::flex::{self, matrix};

/// The minimum number of values of a large gradient, 1 MiB: smaller ones stay in a core's caches.
const LARGE: usize = 1 << 18;

/// The input of a layer and the gradient of its output.
#[derive(Debug)]
pub(crate) struct Factors {
    x: FlexTensor,
    gradient: FlexTensor,
}

thread_local! {
    /// The factors that are kept, by their weight; `None` if none should be kept.
    static KEPT: RefCell<Option<HashMap<NodeId, Box<Factors>>>> = const { RefCell::new(None) };
}

/// Runs `work` without computing the gradients of large weights: [`take_factors`] returns their factors. Returns `None` if it did not take all
/// of them, since a weight was also used in other ways.
pub(crate) fn keeping_factors<T>(work: impl FnOnce() -> T) -> Option<T> {
    KEPT.set(Some(HashMap::new()));
    let result = work();
    KEPT.take().is_none_or(|rest| rest.is_empty()).then_some(result)
}

/// Keeps the factors of a parameter's gradient if it is large, if [`keeping_factors`] is active, and if one thread computes: several share the
/// computation of a whole product.
pub(super) fn keep(parameter: Option<NodeId>, weight: &FlexTensor, x: &FlexTensor, gradient: &FlexTensor) -> bool {
    let is_large = flex::numbers(weight).len() >= LARGE && rayon::current_num_threads() == 1;
    let Some(id) = parameter.filter(|_| is_large) else { return false };
    KEPT.with_borrow_mut(|kept| {
        let Some(Entry::Vacant(place)) = kept.as_mut().map(|kept| kept.entry(id)) else {
            return false;
        };
        place.insert(Box::new(Factors { x: x.clone(), gradient: gradient.clone() }));
        true
    })
}

/// Returns the factors that are kept of a parameter's gradient.
pub(crate) fn take_factors<const D: usize>(parameter: Tensor<D>) -> Option<Box<Factors>> {
    KEPT.with_borrow_mut(|kept| {
        let kept = kept.as_mut().filter(|kept| !kept.is_empty())?;
        kept.remove(&parameter.try_into_primitive::<Autodiff<Flex>>().ok()?.id())
    })
}

impl Factors {
    /// Returns the gradient, which is still to be computed.
    pub(crate) fn product(&self) -> Product<'_> {
        linear::weight_gradient(matrix(&self.x), matrix(&self.gradient))
    }

    /// Returns the gradient as a tensor of one dimension.
    pub(crate) fn tensor(&self) -> Tensor<1> {
        let numbers = self.product().numbers();
        let count = numbers.len();
        Tensor::from_primitive::<Flex>(flex::tensor(numbers, [count]))
    }
}
