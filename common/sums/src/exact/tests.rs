//! Compares sums of gradients, computed as on workers, with f64 and with each other.

use ata_nn::linear::{Matrix, weight_gradient};
use ata_types::WireFormat::{Compact, F32Exact};
use proptest::prelude::*;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::*;

/// The number of values that [`GradientSum::add`] reads at a time.
const BLOCK: usize = 1 << 12;

/// The lengths of the tensors: more than one block, and few values, as in a model's biases.
const LENGTHS: [usize; 5] = [2 * BLOCK + 17, 1, 900, 3, 1000];

fn sizes() -> TensorSizes {
    TensorSizes::new(LENGTHS)
}

/// Returns the gradient of a task: heavy-tailed, and a thousand times smaller from tensor to tensor.
fn gradient(task: u64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(task);
    let tensors = LENGTHS.iter().zip([1.0, 1e-3, 1e-6, 1e-9, 1e-12]);
    let mut value = |size: f32| size * rng.random_range(-1.0_f32..1.0).powi(9);
    tensors.flat_map(|(&length, size)| (0..length).map(|_| value(size)).collect::<Vec<_>>()).collect()
}

/// Returns units that follow from the tasks' own largest values, as in a run whose gradients hardly change.
fn units(budget: u64) -> Units {
    let mut largest = vec![0.0_f32; LENGTHS.len()];
    for task in 0..budget {
        let maxima = maxima(&gradient(task), &sizes()).unwrap();
        largest.iter_mut().zip(maxima).for_each(|(most, other)| *most = most.max(other));
    }
    Units::first(&largest, budget)
}

fn quantizer(budget: u64) -> Quantizer {
    Quantizer::new(units(budget), sizes(), budget, F32Exact)
}

fn sum_of(tasks: impl IntoIterator<Item = u64>, quantizer: &Quantizer) -> GradientSum {
    let mut sum = GradientSum::new(&sizes());
    tasks.into_iter().for_each(|task| sum.add(&gradient(task), 1, quantizer).unwrap());
    sum
}

/// The error of a sum, relative to its root mean square, is small in each tensor.
#[test]
fn a_sum_is_as_good_as_one_in_f32() {
    const BUDGET: u64 = 23;
    let sizes = sizes();
    let sum = sum_of(0..BUDGET, &quantizer(BUDGET));
    assert_eq!((sum.tasks, sum.saturated), (BUDGET, 0));
    let mut exact = vec![0.0; sizes.values()];
    for task in 0..BUDGET {
        exact.iter_mut().zip(gradient(task)).for_each(|(sum, value)| *sum += f64::from(value));
    }
    let found = units(BUDGET).values(&sizes, &sum.values);
    for (tensor, piece) in sizes.pieces(0..exact.len()) {
        let square = |of: &dyn Fn(usize) -> f64| piece.clone().map(|at| of(at).powi(2)).sum::<f64>();
        let error = (square(&|at| f64::from(found[at]) - exact[at]) / square(&|at| exact[at])).sqrt();
        assert!(error <= 1e-5, "tensor {tensor}: {error}");
        let most =
            (0..BUDGET).flat_map(|task| gradient(task)[piece.clone()].to_vec()).map(f32::abs).fold(0.0, f32::max);
        assert_eq!(sum.maxima[tensor], most);
    }
}

proptest! {
    /// Invariant 3: neither who computes which tasks, nor the order in which sums arrive, changes a bit, for any units of blocks.
    #[test]
    fn every_grouping_and_order_gives_the_same_integers(
        owners in prop::collection::vec(0usize..4, 2..24),
        order in Just((0..4).collect::<Vec<usize>>()).prop_shuffle(),
        shifts in prop::collection::vec(1u8..=255, 20),
    ) {
        let budget = owners.len() as u64;
        let exponents = Units::first(&[1.0, 1e-3, 1e-6, 1e-9, 1e-12], budget);
        let units = Units::new(exponents.exponents(), &shifts, &sizes()).unwrap();
        let quantizer = Quantizer::new(units.clone(), sizes(), budget, Compact);
        let mut merged = GradientSum::new(&sizes());
        for owner in order {
            let tasks = (0..budget).rev().filter(|task| owners[*task as usize] == owner);
            merged.merge(&sum_of(tasks, &quantizer));
        }
        let sum = sum_of(0..budget, &quantizer);
        prop_assert_eq!(&merged, &sum);
        let gradients: Vec<_> = (0..budget).map(gradient).collect();
        let coarsest = exponents.exponents().iter().map(|exponent| power_of_two(*exponent));
        let found = units.values(&sizes(), &sum.values);
        for ((_, piece), unit) in sizes().pieces(0..found.len()).zip(coarsest) {
            for at in piece {
                let exact: f32 = gradients.iter().map(|gradient| gradient[at]).sum();
                let is_clamped = gradients.iter().any(|gradient| gradient[at].abs() > unit * 1000.0);
                prop_assert!(is_clamped || (found[at] - exact).abs() <= unit * budget as f32, "{}: {}", found[at], exact);
            }
        }
    }

    /// A gradient that is refused leaves no trace, wherever the non-finite number is.
    #[test]
    fn what_is_not_finite_is_refused(at in any::<prop::sample::Index>(), kind in 0usize..3) {
        let quantizer = quantizer(8);
        let mut broken = gradient(5);
        let index = at.index(broken.len());
        broken[index] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][kind];
        let mut sum = sum_of([1, 2], &quantizer);
        let before = sum.clone();
        prop_assert_eq!(sum.add(&broken, 1, &quantizer), Err(NotFinite { index }));
        prop_assert_eq!(sum, before);
        prop_assert_eq!(maxima(&broken, &sizes()), Err(NotFinite { index }));
    }
}

/// A product leaves the sum of its numbers, and no trace if it or a tensor behind it is refused.
#[test]
fn a_product_adds_up_like_its_numbers() {
    let (rows, columns) = (70, 20);
    let sizes = TensorSizes::new([rows * columns, 3]);
    let units = Units::from_exponents(&[-20, -20], &sizes).unwrap();
    let quantizer = Quantizer::new(units, sizes.clone(), 8, F32Exact);
    let numbers = |count: usize| -> Vec<f32> { (0..count).map(|at| (at as f32).sin()).collect() };
    let (x, mut gradient) = (numbers(2 * rows), numbers(2 * columns));
    let add = |sum: &mut GradientSum, gradient: &[f32], rest: &[f32]| {
        let [x, gradient] = [(&x[..], rows), (gradient, columns)];
        let matrix = |(numbers, columns)| Matrix { numbers, rows: 2, columns };
        let product = weight_gradient(matrix(x), matrix(gradient));
        let whole = [&product.numbers()[..], rest].concat();
        (sum.add_tensors(&[TensorGradient::Product(product), TensorGradient::Values(rest)], 1, &quantizer), whole)
    };
    let (mut sum, mut expected) = (GradientSum::new(&sizes), GradientSum::new(&sizes));
    for rest in [[0.5; 3], [-0.25; 3]] {
        let (added, whole) = add(&mut sum, &gradient, &rest);
        added.unwrap();
        expected.add(&whole, 1, &quantizer).unwrap();
    }
    assert_eq!(sum, expected);
    assert_eq!(add(&mut sum, &gradient, &[0.0, f32::NAN, 0.0]).0, Err(NotFinite { index: rows * columns + 1 }));
    assert_eq!(sum, expected);
    gradient[columns + 7] = f32::INFINITY;
    assert_eq!(add(&mut sum, &gradient, &[0.0; 3]).0, Err(NotFinite { index: 7 }));
    assert_eq!(sum, expected);
}

/// Returns units that follow sums of four blocks: values of 1, zeros, values of 10⁻⁶, and a block of values of 0.5 in one tensor and
/// of 10⁻⁶, with a single 1, in another.
fn uneven(budget: u64) -> (TensorSizes, Units) {
    let sizes = TensorSizes::new([3 * 256 + 100, 156]);
    let mut sum = vec![1.0; 1024];
    sum[256..512].fill(0.0);
    sum[512..768].fill(1e-6);
    sum[768..868].fill(0.5);
    sum[868..].fill(1e-6);
    sum[900] = 1.0;
    let mut maxima = BlockMaxima::new(&sizes);
    // The parts do not match the blocks, as may happen with the chunks of a step.
    for at in [0, 300, 600, 900] {
        let part = &sum[at..(at + 300).min(1024)];
        maxima.count(block_maxima(&sizes, at, part));
    }
    assert_eq!(maxima.of_tensors(), [1.0, 1.0]);
    (sizes.clone(), Units::first(&[1.0, 1.0], 1).next_of_blocks(&maxima, &maxima.of_tensors(), budget))
}

/// The smaller the last sum of a block is, the finer its unit, as far as the budget allows.
#[test]
fn small_blocks_have_finer_units() {
    for (budget, finest) in [(1, 15), (2, 15), (3, 14), (64, 10), (1000, 6), (1 << 15, 1)] {
        let (sizes, units) = uneven(budget);
        let exponents: Vec<i16> = units.pieces(&sizes, 0..1024).map(|(exponent, _)| exponent).collect();
        let shifts: Vec<i16> = exponents.iter().map(|exponent| units.exponents()[0] - exponent).collect();
        assert_eq!(shifts, [0, finest, finest, 0, 0], "B = {budget}");
        let shifts = [finest << 4, finest].map(|byte| byte as u8);
        assert_eq!(units.shifts(), shifts);
        assert_eq!(Units::new(units.exponents(), &shifts, &sizes), Ok(units));
    }
    assert!(uneven(1 << 16).1.shifts().is_empty(), "there is no room for finer units");
    // Units must stay powers of two that are normal numbers.
    let sizes = TensorSizes::new([600]);
    let mut sum = BlockMaxima::new(&sizes);
    sum.count(block_maxima(&sizes, 0, &[&[1e-33; 256][..], &[0.0; 300]].concat()));
    let smallest = Units::from_exponents(&[-120], &sizes).unwrap().next_of_blocks(&sum, &[0.0], 1);
    assert_eq!(smallest.pieces(&sizes, 0..600).map(|(exponent, _)| exponent).collect::<Vec<_>>(), [-121, -126, -126]);
}

/// A block that was zero or small is neither clamped nor lost when it becomes active: with twice the largest value of
/// the tensor, or with 10⁻⁶ of it.
#[test]
fn a_block_that_wakes_is_neither_clamped_nor_lost() {
    for budget in [1, 23, 64, 1000] {
        let (sizes, units) = uneven(budget);
        for (size, relative) in [(2.0, 1e-4), (1e-6, 1.0 / 16.0)] {
            let mut gradient = vec![0.0; 1024];
            gradient[256..768].fill(-size);
            let mut sum = GradientSum::new(&sizes);
            sum.add(&gradient, 1, &Quantizer::new(units.clone(), sizes.clone(), budget, Compact)).unwrap();
            assert_eq!((sum.saturated, sum.vanished), (0, 0), "B = {budget}, {size}");
            let found = units.values(&sizes, &sum.values);
            let is_close = |at: usize| ((found[at] + size) / size).abs() <= relative;
            assert!((256..768).all(is_close) || budget == 1000, "B = {budget}, {size}: {found:?}");
        }
        // In the units of tensors these values are lost, which is counted.
        let whole = Units::from_exponents(units.exponents(), &sizes).unwrap();
        let mut sum = GradientSum::new(&sizes);
        let gradient = [&[0.0; 256][..], &[1e-6; 512], &[-0.0; 256]].concat();
        sum.add(&gradient, 1, &Quantizer::new(whole.clone(), sizes.clone(), budget, Compact)).unwrap();
        assert_eq!((sum.vanished, sum.values.iter().any(|value| *value != 0)), (512, false));
        let copy = sum.clone();
        sum.merge(&copy);
        assert_eq!(sum.vanished, 1024);
    }
}

/// A task's values beyond the range are clamped, so that no sum of the budget's tasks overflows.
#[test]
fn saturation_is_counted_and_nothing_overflows() {
    for budget in [1, 2, 3, 23, 1000] {
        let sizes = TensorSizes::new([3, 1]);
        let quantizer = Quantizer::new(Units::first(&[1.0, 1.0], budget), sizes.clone(), budget, F32Exact);
        let mut sum = GradientSum::new(&sizes);
        // The range of a task's values ends between 256 and 512.
        for _ in 0..budget {
            sum.add(&[f32::MAX, -1e9, 1.0, -513.0], 1, &quantizer).unwrap();
        }
        let most = i32::MAX as u64 / budget * budget;
        assert!(sum.values[0] > 0 && u64::from(sum.values[0].unsigned_abs()) <= most, "B = {budget}: {:?}", sum.values);
        assert!(f64::from(sum.values[0]) > 0.999_999 * most as f64, "B = {budget}: {:?}", sum.values);
        assert_eq!(sum.values[1], -sum.values[0]);
        assert_eq!((sum.saturated, sum.maxima[1]), (3 * budget, 513.0));
        // The batch has the same sums, computed together.
        let mut batch = GradientSum::new(&sizes);
        let share = budget as f32;
        batch.add(&[f32::MAX, -1e9 * share, share, -513.0 * share], budget, &quantizer).unwrap();
        assert_eq!((batch.tasks, batch.saturated, batch.maxima[1]), (budget, 3, 513.0));
        assert!(batch.values[0] > 0 && batch.values[1] == -batch.values[0]);
        sum.clear();
        let mut new = GradientSum::new(&sizes);
        for sum in [&mut sum, &mut new] {
            sum.add(&[1.0; 4], 1, &quantizer).unwrap();
        }
        assert_eq!(sum, new, "nothing is left of what was cleared");
    }
}
