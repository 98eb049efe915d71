//! Local steps: optimizer steps that a worker takes by itself between two exchanges of parameters.
//!
//! In a round, worker i begins with the round's parameters Θ and takes aᵢ inner steps, of one task each. It sends aᵢ·(Θ − θᵢ) in place of a sum
//! of aᵢ gradients, so that the mean of all of them is the difference weighted by tasks, along which the outer optimizer steps: with a rate of
//! 1 and no momentum, Θ becomes the weighted mean of the θᵢ. Source: Douillard et al., "DiLoCo: Distributed Low-Communication Training of
//! Language Models", 2023, Algorithm 1.

use std::collections::BTreeMap;
use std::sync::Arc;

use ata_types::{Iteration, WireFormat, WorkerId};

use crate::exact::{BLOCK, GradientSum, NotFinite, Quantizer, TensorSizes, maxima};
use crate::optimizer::{LearningRate, Optimizer, Rule};
use crate::state::{TrainingConfig, TrainingState};

impl Optimizer {
    /// Creates the optimizer of outer steps, along mean differences: SGD with Nesterov's momentum, from 0 to below 1.
    pub fn outer(momentum: f64) -> Self {
        Self { rule: Rule::Sgd { momentum, nesterov: momentum > 0.0 }, ..Self::default() }
    }
}

/// Returns the learning rate of an outer step without momentum that is made of these leases of workers, each of so many inner steps: 2e/(1 + e),
/// where e = (Σaᵢ)²/Σaᵢ² is the number of equal workers whose mean has as little noise.
///
/// In a direction in which the loss is steep, inner steps go all the way to its minimum, with noise of variance σ². A rate of η passes the
/// minimum by η − 1, so the noise of the parameters has the variance η/(2 − η)·σ²/e, which is that of a single worker for this η. In a
/// direction in which it is flat, the rate makes up for the way that is lost by averaging with slower workers.
pub fn outer_rate(leases: impl IntoIterator<Item = (WorkerId, u64)>) -> f64 {
    let mut shares: BTreeMap<WorkerId, f64> = BTreeMap::new();
    for (worker, steps) in leases {
        *shares.entry(worker).or_default() += steps as f64;
    }
    let sum: f64 = shares.values().sum();
    let squares: f64 = shares.values().map(|share| share * share).sum();
    2.0 * sum * sum / (squares + sum * sum)
}

/// How workers take inner steps.
#[derive(Clone, Debug, PartialEq)]
pub struct InnerSteps {
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The learning rate of each iteration of B tasks; a round has that of its first task.
    pub learning_rate: LearningRate,
    /// The number of bits in which a value of a difference is sent in the format compact, among [`DIFFERENCE_BITS`](ata_types::DIFFERENCE_BITS).
    pub difference_bits: u32,
    /// Whether a round begins before its parameters arrive: the worker goes on from where it is, and adds these steps to them.
    pub overlap: bool,
}

/// A worker's own parameters, which differ from those of the round by its inner steps. The optimizer's moments stay from round to round.
#[derive(Clone, Debug)]
pub struct LocalParameters {
    learning_rate: LearningRate,
    state: TrainingState,
    /// The parameters of the round.
    base: Arc<Vec<f32>>,
    taken: Taken,
    rounding: Option<Rounding>,
}

/// Error feedback: what is rounded off in a round is added in the next one. Source: Seide et al., "1-Bit Stochastic Gradient Descent and its
/// Application to Data-Parallel Distributed Training of Speech DNNs", 2014, Section 2.
#[derive(Clone, Debug)]
struct Rounding {
    bits: u32,
    /// What was rounded off in the rounds before, of each trained value; empty if nothing was.
    before: Vec<f32>,
    /// The same after this round, once its difference was made.
    after: Option<Vec<f32>>,
}

/// The inner steps of a round so far.
#[derive(Clone, Debug, Default)]
struct Taken {
    tasks: u64,
    /// The sum of the tallies in the tasks' gradients.
    tallies: Vec<f32>,
}

impl LocalParameters {
    /// Creates the parameters of a worker at those of a round, which has taken no steps. `format` is that of its differences.
    pub fn new(steps: InnerSteps, sizes: TensorSizes, format: WireFormat, base: Arc<Vec<f32>>) -> Self {
        let InnerSteps { optimizer, learning_rate, difference_bits: bits, .. } = steps;
        let rounding = (format == WireFormat::Compact).then(|| Rounding { bits, before: Vec::new(), after: None });
        let config = TrainingConfig { optimizer, sizes, format: WireFormat::F32Exact, budget: 1 };
        let state = TrainingState::new(config, base.to_vec());
        Self { learning_rate, state, base, taken: Taken::default(), rounding }
    }

    /// Begins a round at its parameters.
    pub fn begin(&mut self, base: Arc<Vec<f32>>) {
        self.state.set_parameters(&base);
        self.taken = Taken::default();
        self.base = base;
        if let Some(Rounding { before, after, .. }) = &mut self.rounding {
            *before = after.take().unwrap_or_else(|| std::mem::take(before));
        }
    }

    /// Goes on from other parameters, which take the place of those at which the round began.
    pub fn move_to(&mut self, base: Arc<Vec<f32>>) {
        let began = std::mem::replace(&mut self.base, base);
        let moved = self.base.iter().zip(self.values().iter().zip(began.iter()));
        let moved: Vec<f32> = moved.map(|(base, (value, began))| base + (value - began)).collect();
        self.state.set_parameters(&moved);
    }

    /// Forgets what was rounded off, if nobody knows whether the last difference arrived.
    pub fn forget_rounding(&mut self) {
        if let Some(rounding) = &mut self.rounding {
            (rounding.before, rounding.after) = (Vec::new(), None);
        }
    }

    /// Returns the parameters after the last step.
    pub fn values(&self) -> &[f32] {
        self.state.parameters()
    }

    /// Takes a step along the gradient of a task, at the learning rate of this iteration. If a number in it is not finite, nothing changes.
    ///
    /// # Panics
    /// Panics if there is not one number per parameter.
    pub fn step(&mut self, iteration: Iteration, gradient: Vec<f32>) -> Result<(), NotFinite> {
        let sizes = &self.state.config().sizes;
        maxima(&gradient, sizes)?;
        let tallied = &gradient[sizes.tallied_from()..];
        self.taken.tallies.resize(tallied.len(), 0.0);
        self.taken.tallies.iter_mut().zip(tallied).for_each(|(sum, tally)| *sum += tally);
        self.taken.tasks += 1;
        let rate = self.learning_rate.at(iteration.number());
        self.state.step_whole(gradient, 1, rate, false).expect("the rule is one of ata's own");
        self.state.commit_step(&[]);
        Ok(())
    }

    /// Makes `sum`, which is empty, the integers that stand for the sum of the gradients of `tasks` of the tasks. If the difference is not
    /// finite, this is an error.
    pub fn add_to(&mut self, sum: &mut GradientSum, tasks: u64, quantizer: &Quantizer) -> Result<(), NotFinite> {
        let mut difference = self.difference(tasks);
        let sizes = &self.state.config().sizes;
        let Some(rounding) = &mut self.rounding else { return sum.add(&difference, tasks, quantizer) };
        difference.iter_mut().zip(&rounding.before).for_each(|(value, left)| *value += left);
        sum.add(&difference, tasks, quantizer)?;
        let trained = sizes.trained_values();
        let most = quantizer.limit(tasks) as i32;
        sum.values[..trained].chunks_mut(BLOCK).for_each(|block| round_to_bits(block, rounding.bits, most));
        let sent = quantizer.units().values(sizes, &sum.values);
        difference.truncate(trained);
        difference.iter_mut().zip(&sent).for_each(|(value, sent)| *value -= sent);
        rounding.after = Some(difference);
        Ok(())
    }

    /// Returns what takes the place of the sum of the gradients of `tasks` of the tasks: the difference from the round's parameters, times
    /// the tasks, or the sum of their weights if the problem weighs them; and the sums of the tallies.
    pub fn difference(&self, tasks: u64) -> Vec<f32> {
        let sizes = &self.state.config().sizes;
        let (trained, tallied) = (sizes.trained_values(), sizes.tallied_from());
        let part = tasks as f32 / self.taken.tasks.max(1) as f32;
        let tally = |at: usize| self.taken.tallies.get(at - tallied).map_or(0.0, |sum| sum * part);
        let of_trained = sizes.tallies.weight.map_or(tasks as f32, tally);
        let differences = self.base.iter().zip(self.values()).enumerate();
        let difference = differences.map(|(at, (base, value))| match at {
            _ if at < trained => of_trained * (base - value),
            _ if at < tallied => tasks as f32 * (base - value),
            _ => tally(at),
        });
        difference.collect()
    }
}

/// Rounds integers, none of which is above `most` in magnitude, to multiples of the least power of two with which they have so many bits.
fn round_to_bits(block: &mut [i32], bits: u32, most: i32) {
    let largest = block.iter().map(|value| value.unsigned_abs()).max().unwrap_or(0);
    let shift = (u32::BITS - largest.leading_zeros()).saturating_sub(bits - 1);
    if shift > 0 {
        let end = ((1 << (bits - 1)) - 1).min(most >> shift);
        let half = 1_i64 << (shift - 1);
        for value in block {
            let rounded = ((i64::from(*value) + half) >> shift) as i32;
            *value = rounded.clamp(-end, end) << shift;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::encode_sums;
    use crate::exact::Units;
    use crate::table::{ParameterTable, TensorKind};

    const ROUND: Iteration = Iteration(3);

    #[test]
    fn the_outer_rate_follows_the_shares() {
        let rate = |shares: &[(usize, u64)]| {
            outer_rate(shares.iter().map(|(worker, steps)| (WorkerId::from_slot(*worker), *steps)))
        };
        assert_eq!(rate(&[(3, 60)]), 1.0, "a worker's own parameters");
        assert_eq!([rate(&[(1, 5), (2, 5), (3, 5)]), rate(&[(1, 5), (2, 2), (1, 1), (2, 4)])], [1.5, 4.0 / 3.0]);
        // As if there were 2.65 equal workers.
        assert!((rate(&[(1, 8), (2, 4), (3, 2), (4, 1)]) - 2.0 * 225.0 / (85.0 + 225.0)).abs() < 1e-12);
    }

    fn sgd(momentum: f64) -> InnerSteps {
        let optimizer = Optimizer { rule: Rule::Sgd { momentum, nesterov: false }, ..Optimizer::default() };
        let learning_rate = LearningRate { warmup: 6, ..LearningRate::constant(1.0) };
        InnerSteps { optimizer, learning_rate, difference_bits: 4, overlap: true }
    }

    /// Three trained values, one that is averaged, and a weight.
    fn sizes() -> TensorSizes {
        let shapes = ["weight", "mean", "tally"].into_iter().zip([3, 1, 1]);
        let mut table = ParameterTable::of_shapes(shapes.map(|(name, size)| (name.into(), vec![size])));
        table.tensors[1].kind = TensorKind::Averaged;
        table.tensors[2].kind = TensorKind::Weight;
        (&table).into()
    }

    #[test]
    fn the_difference_stands_for_a_sum_of_gradients() {
        let mut local =
            LocalParameters::new(sgd(0.0), sizes(), WireFormat::F32Exact, vec![1.0, 2.0, 3.0, 10.0, 0.0].into());
        // The third round of six has half of the rate. The first task has the weight 2, its gradient is divided by it.
        local.step(ROUND, vec![4.0, 0.0, 0.0, 0.5, 2.0]).unwrap();
        assert_eq!(local.values(), [0.0, 2.0, 3.0, 9.5, 0.0]);
        local.step(ROUND, vec![0.0, 8.0, 0.0, 1.5, 1.0]).unwrap();
        assert_eq!(local.values(), [0.0, -2.0, 3.0, 8.0, 0.0]);
        assert_eq!(local.difference(2), [3.0, 12.0, 0.0, 4.0, 3.0]);
        assert_eq!(local.difference(1), [1.5, 6.0, 0.0, 2.0, 1.5], "one of the tasks counts");
        local.begin(vec![5.0; 5].into());
        assert_eq!(local.difference(0), [0.0; 5]);
    }

    #[test]
    fn steps_go_on_from_other_parameters() {
        let base = || Arc::new(vec![8.0, 1.0]);
        let mut local = LocalParameters::new(sgd(0.0), TensorSizes::new([2]), WireFormat::F32Exact, base());
        local.step(ROUND, vec![4.0, 2.0]).unwrap();
        local.move_to(Arc::new(vec![10.0, -1.0]));
        assert_eq!((local.values(), local.difference(1)), (&[8.0, -2.0][..], vec![2.0, 1.0]));
        local.step(ROUND, vec![0.0, 2.0]).unwrap();
        assert_eq!((local.values(), local.difference(2)), (&[8.0, -3.0][..], vec![4.0, 4.0]));
    }

    #[test]
    fn moments_stay_from_round_to_round() {
        let mut local = LocalParameters::new(sgd(0.5), TensorSizes::new([1]), WireFormat::F32Exact, vec![8.0].into());
        local.step(ROUND, vec![4.0]).unwrap();
        assert!(local.step(ROUND, vec![f32::NAN]).is_err());
        assert_eq!((local.values(), local.difference(1)), (&[6.0][..], vec![2.0]));
        local.step(ROUND, vec![0.0]).unwrap();
        assert_eq!((local.values(), local.difference(2)), (&[5.0][..], vec![6.0]));
        local.begin(vec![0.0].into());
        local.step(ROUND, vec![0.0]).unwrap();
        assert_eq!(local.values(), [-0.5], "a quarter of the first gradient moves it");
    }

    #[test]
    fn integers_are_rounded_to_their_bits() {
        for (values, bits, most, rounded) in [
            (vec![7, -7, 1], 4, 100, vec![7, -7, 1]),
            (vec![8, 3, -3], 4, 100, vec![8, 4, -2]),
            (vec![127, -128, 5], 8, 1000, vec![128, -128, 6]),
            (vec![1000, -990, 70], 4, 1000, vec![896, -896, 128]),
            (vec![1023, 40, 0], 4, 1023, vec![896, 0, 0]),
            (vec![i32::MAX, i32::MIN + 1, 1 << 23], 8, i32::MAX, vec![127 << 24, -(127 << 24), 1 << 24]),
            (vec![0, 0], 4, 9, vec![0, 0]),
        ] {
            let mut block = values.clone();
            round_to_bits(&mut block, bits, most);
            assert_eq!(block, rounded, "{values:?}");
        }
    }

    /// What is rounded off is not lost, and a difference that is made twice is the same.
    #[test]
    fn what_is_rounded_off_is_sent_in_the_next_rounds() {
        let sizes = TensorSizes::new([300]);
        let base = Arc::new(vec![0.0; 300]);
        let mut local = LocalParameters::new(sgd(0.0), sizes.clone(), WireFormat::Compact, base.clone());
        let units = Units::from_exponents(&[-20], &sizes).unwrap();
        let quantizer = Quantizer::new(units.clone(), sizes.clone(), 4, WireFormat::Compact);
        let gradient: Vec<f32> = (0..300).map(|at| (at as f32 * 0.7).sin()).collect();
        let mut sent = vec![0.0; 300];
        for round in 1..=40 {
            local.begin(base.clone());
            local.step(Iteration(6), gradient.clone()).unwrap();
            let [mut sum, mut again] = [(); 2].map(|()| GradientSum::new(&sizes));
            local.add_to(&mut sum, 1, &quantizer).unwrap();
            local.add_to(&mut again, 1, &quantizer).unwrap();
            assert_eq!(sum, again);
            assert!(encode_sums(WireFormat::Compact, &sum.values).len() <= 2 * (2 + BLOCK / 2));
            sent.iter_mut().zip(units.values(&sizes, &sum.values)).for_each(|(sent, value)| *sent += value);
            let furthest = sent.iter().zip(&gradient).map(|(sent, value)| (sent - round as f32 * value).abs());
            assert!(furthest.fold(0.0, f32::max) < 0.3, "round {round}");
        }
        local.forget_rounding();
        local.begin(base.clone());
        let [mut sum, mut zeros] = [(); 2].map(|()| GradientSum::new(&sizes));
        local.add_to(&mut sum, 1, &quantizer).unwrap();
        zeros.add(&[0.0; 300], 1, &quantizer).unwrap();
        assert_eq!(sum.values, zeros.values, "nothing is left of the rounds before");
    }
}
