//! The sum of some tasks' gradients, as integers.

use std::borrow::Cow;
use std::ops::Range;

use ata_nn::linear::Product;
use ata_types::WireFormat;

use super::kernels::{
    add_sums, count_clamped, count_vanished, max_bits, power_of_two, quantize_add, quantize_subtract,
};
use super::units::limit;
use super::{TensorSizes, Units};

/// The number of values quantized at a time: 16 KiB, which stay in a core's first cache if clamped values have to be counted.
const BLOCK: usize = 1 << 12;

/// Converts the gradients of an iteration to integers.
#[derive(Clone, Debug)]
pub struct Quantizer {
    units: Units,
    sizes: TensorSizes,
    /// The largest magnitude of a task's integers.
    limit: u64,
    /// Whether values that become 0 are counted. In the exact format they are far below the rounding of a sum of f32.
    counts_vanished: bool,
}

impl Quantizer {
    /// Creates a quantizer with these units, such that the sum of `budget` tasks does not overflow.
    ///
    /// # Panics
    /// Panics if there is not one unit per tensor.
    pub fn new(units: Units, sizes: TensorSizes, budget: u64, format: WireFormat) -> Self {
        assert_eq!(units.exponents().len(), sizes.tensors());
        Self { units, sizes, limit: limit(budget), counts_vanished: format == WireFormat::Compact }
    }

    /// Splits `values`, which begin at value `at` of the flat vector, into parts with one unit each. Returns the factor
    /// that turns a part into integers, and its range in `values`.
    fn factors(&self, at: usize, values: usize) -> impl Iterator<Item = (f32, Range<usize>)> {
        let pieces = self.units.pieces(&self.sizes, at..at + values);
        pieces.map(move |(exponent, piece)| (power_of_two(-exponent), piece.start - at..piece.end - at))
    }

    /// Returns the units.
    pub fn units(&self) -> &Units {
        &self.units
    }

    /// Returns the factors that turn values into integers, each with the number of consecutive values that it is for.
    pub fn all_factors(&self) -> impl Iterator<Item = (f32, usize)> {
        self.factors(0, self.sizes.values()).map(|(factor, range)| (factor, range.len()))
    }

    /// Returns the largest magnitude of the integers of `tasks` tasks that are computed as one batch.
    pub fn limit(&self, tasks: u64) -> f32 {
        at_most(self.limit.saturating_mul(tasks).min(i32::MAX as u64))
    }

    /// Returns the number of values whose vanishing is counted: those of the trained tensors, which come first, or none.
    pub fn counted_values(&self) -> usize {
        if self.counts_vanished { self.sizes.trained_values() } else { 0 }
    }
}

/// The error for a gradient with an infinite number or NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("value {index} of the gradient is infinite or NaN")]
pub struct NotFinite {
    /// The index of the first such number.
    pub index: usize,
}

/// The gradient of one tensor.
pub enum TensorGradient<'a> {
    /// The values of the gradient.
    Values(&'a [f32]),
    /// The gradient of a layer's weight.
    Product(Product<'a>),
}

impl TensorGradient<'_> {
    fn in_pieces(&self, mut visit: impl FnMut(&[f32])) {
        match self {
            Self::Values(values) => visit(values),
            Self::Product(product) => product.in_pieces(visit),
        }
    }

    /// Returns the values of the gradient.
    pub fn values(&self) -> Cow<'_, [f32]> {
        match self {
            Self::Values(values) => Cow::Borrowed(values),
            Self::Product(product) => Cow::Owned(product.numbers()),
        }
    }
}

/// Returns the error for a tensor whose values are not all finite, and whose first value has the index `first`.
fn first_not_finite(values: &[f32], first: usize) -> NotFinite {
    NotFinite { index: first + values.iter().take_while(|value| value.is_finite()).count() }
}

/// Returns the largest magnitude of a gradient in each tensor.
///
/// # Panics
/// Panics if there is not one number per parameter.
pub fn maxima(gradient: &[f32], sizes: &TensorSizes) -> Result<Vec<f32>, NotFinite> {
    assert_eq!(gradient.len(), sizes.values());
    let mut maxima = vec![0.0; sizes.tensors()];
    for (tensor, piece) in sizes.pieces(0..gradient.len()) {
        let values = &gradient[piece.clone()];
        maxima[tensor] = f32::from_bits(max_bits(values));
        if !maxima[tensor].is_finite() {
            return Err(first_not_finite(values, piece.start));
        }
    }
    Ok(maxima)
}

/// The sum of some tasks' gradients, in integers of [`Units`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GradientSum {
    /// One integer per parameter, in flat order.
    pub values: Vec<i32>,
    /// The largest magnitude of a task's gradient in each tensor, for the next iteration's units.
    pub maxima: Vec<f32>,
    /// The number of values of the tasks' gradients that were out of range and clamped.
    pub saturated: u64,
    /// The number of nonzero values of trained tensors that became the integer 0; counted in the compact format only.
    pub vanished: u64,
    /// The number of tasks.
    pub tasks: u64,
}

impl GradientSum {
    /// Creates the sum of no tasks.
    pub fn new(sizes: &TensorSizes) -> Self {
        Self { values: vec![0; sizes.values()], maxima: vec![0.0; sizes.tensors()], ..Self::default() }
    }

    /// Resets this to the sum of no tasks. The values stay, since the next gradient replaces them.
    pub fn clear(&mut self) {
        self.maxima.fill(0.0);
        (self.saturated, self.vanished, self.tasks) = (0, 0, 0);
    }

    /// Adds the gradient of a task, or the sum of the gradients of `tasks` tasks that were computed as one batch. If a
    /// number in it is not finite, the sum does not change.
    ///
    /// # Panics
    /// Panics if there is not one number per parameter.
    pub fn add(&mut self, gradient: &[f32], tasks: u64, quantizer: &Quantizer) -> Result<(), NotFinite> {
        assert_eq!(gradient.len(), quantizer.sizes.values());
        let pieces = quantizer.sizes.pieces(0..gradient.len());
        let tensors: Vec<_> = pieces.map(|(_, piece)| TensorGradient::Values(&gradient[piece])).collect();
        self.add_tensors(&tensors, tasks, quantizer)
    }

    /// Adds a gradient like [`Self::add`], from tensors that are stored separately, as on a device.
    ///
    /// # Panics
    /// Panics if there is not one number per parameter.
    pub fn add_tensors(
        &mut self,
        tensors: &[TensorGradient<'_>],
        tasks: u64,
        quantizer: &Quantizer,
    ) -> Result<(), NotFinite> {
        assert_eq!((tensors.len(), self.values.len()), (quantizer.sizes.tensors(), quantizer.sizes.values()));
        let limit = quantizer.limit(tasks);
        let is_first = self.tasks == 0;
        let mut maxima = vec![0.0; self.maxima.len()];
        let [mut saturated, mut vanished] = [0; 2];
        for (tensor, range) in quantizer.sizes.pieces(0..self.values.len()) {
            let counts_vanished = quantizer.counts_vanished && quantizer.sizes.is_trained(tensor);
            let mut most = 0;
            let mut at = range.start;
            let mut add = |block: &[f32]| {
                let sums = &mut self.values[at..at + block.len()];
                if is_first {
                    // At this point they are in a cache, which they were not before.
                    sums.fill(0);
                }
                for (factor, piece) in quantizer.factors(at, block.len()) {
                    let values = &block[piece.clone()];
                    let bits = quantize_add(&mut sums[piece], values, factor, limit);
                    most = most.max(bits);
                    if f32::from_bits(bits) * factor > limit {
                        saturated += count_clamped(values, factor, limit);
                    }
                    if counts_vanished {
                        vanished += count_vanished(values, factor);
                    }
                }
                at += block.len();
            };
            tensors[tensor].in_pieces(|piece| piece.chunks(BLOCK).for_each(&mut add));
            assert_eq!(at, range.end, "one number per parameter");
            maxima[tensor] = f32::from_bits(most);
            if !maxima[tensor].is_finite() {
                self.take_back(&tensors[..=tensor], quantizer, limit);
                return Err(first_not_finite(&tensors[tensor].values(), range.start));
            }
        }
        for most in &mut maxima {
            *most /= tasks.max(1) as f32;
        }
        self.count(&maxima, [saturated, vanished], tasks);
        Ok(())
    }

    /// Subtracts what the first tensors of a gradient added.
    fn take_back(&mut self, tensors: &[TensorGradient<'_>], quantizer: &Quantizer, limit: f32) {
        for ((_, range), gradient) in quantizer.sizes.pieces(0..self.values.len()).zip(tensors) {
            let (sums, gradient) = (&mut self.values[range.clone()], gradient.values());
            for (factor, piece) in quantizer.factors(range.start, gradient.len()) {
                quantize_subtract(&mut sums[piece.clone()], &gradient[piece], factor, limit);
            }
        }
    }

    /// Adds the sum of other tasks.
    ///
    /// # Panics
    /// Panics if the other sum is of another model.
    pub fn merge(&mut self, other: &Self) {
        self.merge_parts(&other.values, &other.maxima, [other.saturated, other.vanished], other.tasks);
    }

    /// Adds the sum of other tasks, given by its parts: `counts` are the numbers of clamped and vanished values.
    ///
    /// # Panics
    /// Panics if the other sum is of another model.
    pub fn merge_parts(&mut self, values: &[i32], maxima: &[f32], counts: [u64; 2], tasks: u64) {
        assert_eq!((self.values.len(), self.maxima.len()), (values.len(), maxima.len()));
        if self.tasks == 0 {
            self.values.copy_from_slice(values);
        } else {
            add_sums(&mut self.values, values);
        }
        self.count(maxima, counts, tasks);
    }

    /// Adds everything except the values.
    fn count(&mut self, maxima: &[f32], [saturated, vanished]: [u64; 2], tasks: u64) {
        for (most, other) in self.maxima.iter_mut().zip(maxima) {
            *most = most.max(*other);
        }
        self.saturated += saturated;
        self.vanished += vanished;
        self.tasks += tasks;
    }
}

/// Returns the largest f32 that is not above an integer.
fn at_most(integer: u64) -> f32 {
    let nearest = integer as f32;
    if nearest as u64 > integer { nearest.next_down() } else { nearest }
}
