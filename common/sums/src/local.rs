//! Local steps: optimizer steps that a worker takes by itself between two exchanges of parameters.
//!
//! In a round, worker i begins with the round's parameters Θ and takes aᵢ inner steps, of one task each. It sends aᵢ·(Θ − θᵢ) in place of a sum
//! of aᵢ gradients, so that the mean of all of them is the difference weighted by tasks, along which the outer optimizer steps: with a rate of
//! 1 and no momentum, Θ becomes the weighted mean of the θᵢ. Source: Douillard et al., "DiLoCo: Distributed Low-Communication Training of
//! Language Models", 2023, Algorithm 1.

use std::sync::Arc;

use ata_types::{Iteration, WireFormat};

use crate::exact::{NotFinite, Tallies, TensorSizes, maxima};
use crate::optimizer::{LearningRate, Optimizer};
use crate::state::{TrainingConfig, TrainingState};

/// How workers take inner steps.
#[derive(Clone, Debug, PartialEq)]
pub struct InnerSteps {
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The learning rate in each round, which takes the place of an iteration.
    pub learning_rate: LearningRate,
}

/// A worker's own parameters, which differ from those of the round by its inner steps. The optimizer's moments stay from round to round.
#[derive(Clone, Debug)]
pub struct LocalParameters {
    learning_rate: LearningRate,
    state: TrainingState,
    /// The parameters of the round.
    base: Arc<Vec<f32>>,
    taken: Taken,
}

/// The inner steps of a round so far.
#[derive(Clone, Debug, Default)]
struct Taken {
    tasks: u64,
    /// The sum of the tallies in the tasks' gradients.
    tallies: Vec<f32>,
}

impl LocalParameters {
    /// Creates the parameters of a worker at those of a round, which has taken no steps.
    pub fn new(steps: InnerSteps, sizes: TensorSizes, base: Arc<Vec<f32>>) -> Self {
        let InnerSteps { optimizer, learning_rate } = steps;
        let config = TrainingConfig { optimizer, sizes, format: WireFormat::F32Exact, budget: 1 };
        let state = TrainingState::new(config, base.to_vec());
        Self { learning_rate, state, base, taken: Taken::default() }
    }

    /// Begins a round at its parameters.
    pub fn begin(&mut self, base: Arc<Vec<f32>>) {
        self.state.set_parameters(&base);
        self.taken = Taken::default();
        self.base = base;
    }

    /// Returns the parameters after the last step.
    pub fn values(&self) -> &[f32] {
        self.state.parameters()
    }

    /// Takes a step along the gradient of a task. If a number in it is not finite, nothing changes.
    ///
    /// # Panics
    /// Panics if there is not one number per parameter.
    pub fn step(&mut self, round: Iteration, gradient: Vec<f32>) -> Result<(), NotFinite> {
        let sizes = &self.state.config().sizes;
        maxima(&gradient, sizes)?;
        let tallied = &gradient[sizes.tallied_from()..];
        self.taken.tallies.resize(tallied.len(), 0.0);
        self.taken.tallies.iter_mut().zip(tallied).for_each(|(sum, tally)| *sum += tally);
        self.taken.tasks += 1;
        let rate = self.learning_rate.at(round.number());
        self.state.step_whole(gradient, 1, rate, false).expect("the rule is one of ata's own");
        self.state.commit_step(&[]);
        Ok(())
    }

    /// Returns what takes the place of the sum of the gradients of `tasks` of the tasks: the difference from the round's parameters, times
    /// the tasks, or the sum of their weights if the problem weighs them; and the sums of the tallies.
    pub fn difference(&self, tasks: u64) -> Vec<f32> {
        let sizes = &self.state.config().sizes;
        let (trained, tallied) = (sizes.trained_values(), sizes.tallied_from());
        let part = tasks as f32 / self.taken.tasks.max(1) as f32;
        let tally = |at: usize| self.taken.tallies.get(at - tallied).map_or(0.0, |sum| sum * part);
        let Tallies { weight, .. } = sizes.tallies();
        let of_trained = weight.map_or(tasks as f32, tally);
        let differences = self.base.iter().zip(self.values()).enumerate();
        let difference = differences.map(|(at, (base, value))| match at {
            _ if at < trained => of_trained * (base - value),
            _ if at < tallied => tasks as f32 * (base - value),
            _ => tally(at),
        });
        difference.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::Rule;
    use crate::table::{ParameterTable, TensorKind};

    const ROUND: Iteration = Iteration(3);

    fn sgd(momentum: f64) -> InnerSteps {
        let optimizer = Optimizer { rule: Rule::Sgd { momentum, nesterov: false }, ..Optimizer::default() };
        InnerSteps { optimizer, learning_rate: LearningRate { warmup: 6, ..LearningRate::constant(1.0) } }
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
        let mut local = LocalParameters::new(sgd(0.0), sizes(), vec![1.0, 2.0, 3.0, 10.0, 0.0].into());
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
    fn moments_stay_from_round_to_round() {
        let mut local = LocalParameters::new(sgd(0.5), TensorSizes::new([1]), vec![8.0].into());
        local.step(ROUND, vec![4.0]).unwrap();
        assert!(local.step(ROUND, vec![f32::NAN]).is_err());
        assert_eq!((local.values(), local.difference(1)), (&[6.0][..], vec![2.0]));
        local.step(ROUND, vec![0.0]).unwrap();
        assert_eq!((local.values(), local.difference(2)), (&[5.0][..], vec![6.0]));
        local.begin(vec![0.0].into());
        local.step(ROUND, vec![0.0]).unwrap();
        assert_eq!(local.values(), [-0.5], "a quarter of the first gradient moves it");
    }
}
