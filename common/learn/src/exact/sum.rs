//! The sum of some tasks' gradients, as integers.

use super::kernels::{add_sums, count_clamped, max_bits, quantize_add, quantize_subtract};
use super::units::limit;
use super::{TensorSizes, Units};

/// Values whose integers are made at a time: 16 KiB, which stay in a core's first cache if clamped ones have to be counted.
const BLOCK: usize = 1 << 12;

/// How the gradients of an iteration become integers.
#[derive(Clone, Debug)]
pub struct Quantizer {
    units: Units,
    sizes: TensorSizes,
    /// The largest magnitude of a task's integers.
    limit: u64,
}

impl Quantizer {
    /// Integers of these units, such that those of `budget` tasks do not overflow.
    ///
    /// # Panics
    /// If there is not one unit per tensor.
    pub fn new(units: Units, sizes: TensorSizes, budget: u64) -> Self {
        assert_eq!(units.exponents().len(), sizes.tensors());
        Self { units, sizes, limit: limit(budget) }
    }

    /// The units.
    pub fn units(&self) -> &Units {
        &self.units
    }

    /// The parts of some tensors that fit the cache, each with its tensor and its first value's index.
    fn blocks<'a>(&'a self, tensors: &'a [&'a [f32]]) -> impl Iterator<Item = (usize, usize, &'a [f32])> {
        self.sizes.pieces(0..self.sizes.values()).zip(tensors).flat_map(|((tensor, piece), values)| {
            assert_eq!(values.len(), piece.len(), "one number per parameter");
            let blocks = values.chunks(BLOCK).enumerate();
            blocks.map(move |(at, block)| (tensor, piece.start + at * BLOCK, block))
        })
    }
}

/// A gradient holds a number that is infinite or NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("value {index} of the gradient is infinite or NaN")]
pub struct NotFinite {
    /// Where the first such number is.
    pub index: usize,
}

/// The largest magnitude of a gradient in each tensor.
///
/// # Panics
/// If there is not one number per parameter.
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

/// The error of some values of a gradient, of which the first one has this index.
fn first_not_finite(values: &[f32], first: usize) -> NotFinite {
    let at = values.iter().position(|value| !value.is_finite()).expect("the maximum is not finite");
    NotFinite { index: first + at }
}

/// The sum of some tasks' gradients, in integers of [`Units`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GradientSum {
    /// One per parameter, in flat order.
    pub values: Vec<i32>,
    /// The largest magnitude of a task's gradient in each tensor, for the next iteration's units.
    pub maxima: Vec<f32>,
    /// How many values of the tasks' gradients were out of range and clamped.
    pub saturated: u64,
    /// The number of tasks.
    pub tasks: u64,
}

impl GradientSum {
    /// The sum of no tasks.
    pub fn new(sizes: &TensorSizes) -> Self {
        Self { values: vec![0; sizes.values()], maxima: vec![0.0; sizes.tensors()], saturated: 0, tasks: 0 }
    }

    /// Makes it the sum of no tasks again, whatever its values are: the next gradient replaces them.
    pub fn clear(&mut self) {
        self.maxima.fill(0.0);
        (self.saturated, self.tasks) = (0, 0);
    }

    /// Adds the gradient of a task, or the sum of the gradients of `tasks` tasks that were computed as one batch. If a number
    /// in it is not finite, the sum stays as it is.
    ///
    /// # Panics
    /// If there is not one number per parameter.
    pub fn add(&mut self, gradient: &[f32], tasks: u64, quantizer: &Quantizer) -> Result<(), NotFinite> {
        assert_eq!(gradient.len(), quantizer.sizes.values());
        let pieces = quantizer.sizes.pieces(0..gradient.len());
        let tensors: Vec<&[f32]> = pieces.map(|(_, piece)| &gradient[piece]).collect();
        self.add_tensors(&tensors, tasks, quantizer)
    }

    /// The same for a gradient whose tensors lie apart, as a device has them.
    ///
    /// # Panics
    /// If there is not one number per parameter.
    pub fn add_tensors(&mut self, tensors: &[&[f32]], tasks: u64, quantizer: &Quantizer) -> Result<(), NotFinite> {
        assert_eq!((tensors.len(), self.values.len()), (quantizer.sizes.tensors(), quantizer.sizes.values()));
        let limit = at_most(quantizer.limit.saturating_mul(tasks).min(i32::MAX as u64));
        let mut maxima = vec![0.0; self.maxima.len()];
        let mut saturated = 0;
        for (tensor, at, block) in quantizer.blocks(tensors) {
            let factor = quantizer.units.reciprocal(tensor);
            let range = at..at + block.len();
            if self.tasks == 0 {
                // Here they are in a cache, and not before.
                self.values[range.clone()].fill(0);
            }
            let most = f32::from_bits(quantize_add(&mut self.values[range.clone()], block, factor, limit));
            if !most.is_finite() {
                self.take_back(tensors, range.end, quantizer, limit);
                return Err(first_not_finite(block, at));
            }
            if most * factor > limit {
                saturated += count_clamped(block, factor, limit);
            }
            maxima[tensor] = f32::max(maxima[tensor], most);
        }
        for most in &mut maxima {
            *most /= tasks.max(1) as f32;
        }
        self.count(&maxima, saturated, tasks);
        Ok(())
    }

    /// Subtracts what the first values of a gradient added.
    fn take_back(&mut self, tensors: &[&[f32]], values: usize, quantizer: &Quantizer, limit: f32) {
        for (tensor, at, block) in quantizer.blocks(tensors).take_while(|(_, at, _)| *at < values) {
            let factor = quantizer.units.reciprocal(tensor);
            quantize_subtract(&mut self.values[at..at + block.len()], block, factor, limit);
        }
    }

    /// Adds the sum of other tasks.
    ///
    /// # Panics
    /// If it is of another model.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!((self.values.len(), self.maxima.len()), (other.values.len(), other.maxima.len()));
        if self.tasks == 0 {
            self.values.fill(0);
        }
        add_sums(&mut self.values, &other.values);
        self.count(&other.maxima, other.saturated, other.tasks);
    }

    /// Adds everything except the values.
    fn count(&mut self, maxima: &[f32], saturated: u64, tasks: u64) {
        for (most, other) in self.maxima.iter_mut().zip(maxima) {
            *most = most.max(*other);
        }
        self.saturated += saturated;
        self.tasks += tasks;
    }
}

/// The largest f32 that is not above an integer.
fn at_most(integer: u64) -> f32 {
    let nearest = integer as f32;
    if nearest as u64 > integer { nearest.next_down() } else { nearest }
}
