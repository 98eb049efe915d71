//! Everything that training changes, as flat vectors: parameters, moments, and the number of steps.

use crate::optimizer::{Optimizer, Range, Step};
use crate::spread::spread;

/// The state of training. One `f32` per parameter in each vector, in the model's flat order.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingState {
    optimizer: Optimizer,
    parameters: Vec<f32>,
    /// As named by [`crate::Rule::moments`].
    moments: Vec<Vec<f32>>,
    steps: u64,
    /// The mean gradient of the last step, if that was to be compared with the next one.
    last_gradient: Option<Vec<f32>>,
}

/// Parameters that one thread steps at a time: 64 KiB per vector, so that a range of all vectors fits in a core's cache.
const RANGE: usize = 1 << 14;

/// Numbers summed in sequence: the sum of such sums is the same for every number of threads.
const SUMMED: usize = 1 << 14;

/// Fewer parameters are stepped faster by one thread than by several, which have to be started first.
const PARALLEL_FROM: usize = 1 << 18;

impl TrainingState {
    /// A state before the first step.
    pub fn new(optimizer: Optimizer, parameters: Vec<f32>) -> Self {
        let moments = optimizer.rule.moments().iter().map(|_| vec![0.0; parameters.len()]).collect();
        Self { optimizer, parameters, moments, steps: 0, last_gradient: None }
    }

    /// A state as it was saved: `moments` by name, in any order.
    pub fn restore(
        optimizer: Optimizer,
        parameters: Vec<f32>,
        mut moments: Vec<(String, Vec<f32>)>,
        steps: u64,
    ) -> Result<Self, String> {
        if let Some((name, _)) = moments.iter().find(|(_, values)| values.len() != parameters.len()) {
            return Err(format!("'{name}' does not have one number per parameter"));
        }
        let mut take = |name: &str| {
            let at = moments.iter().position(|(found, _)| found == name)?;
            Some(moments.swap_remove(at).1)
        };
        let missing = |name: &&str| format!("'{name}' is missing: was it saved by another optimizer?");
        let last_gradient = take(LAST_GRADIENT);
        let moments = optimizer.rule.moments().iter().map(|name| take(name).ok_or_else(|| missing(name)));
        Ok(Self { optimizer, moments: moments.collect::<Result<_, _>>()?, parameters, steps, last_gradient })
    }

    /// The parameters.
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// The vectors that the optimizer keeps in addition to the parameters, by name.
    pub fn moments(&self) -> impl Iterator<Item = (&'static str, &[f32])> {
        let named = self.optimizer.rule.moments().iter().zip(&self.moments);
        let named = named.map(|(name, values)| (*name, &values[..]));
        named.chain(self.last_gradient.iter().map(|values| (LAST_GRADIENT, &values[..])))
    }

    /// Optimizer steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Takes a step along the mean of `tasks` gradients with the sum `sum`, at the learning rate `rate`. The
    /// content of `sum` is undefined afterwards; `next` becomes a copy of the new parameters.
    ///
    /// # Panics
    /// If there is not one number per parameter.
    pub fn step(
        &mut self,
        sum: &mut Vec<f32>,
        tasks: u64,
        rate: f64,
        with_product: bool,
        next: &mut Vec<f32>,
    ) -> StepOutcome {
        assert_eq!(sum.len(), self.parameters.len());
        next.resize(sum.len(), 0.0);
        let mut tasks = tasks;
        let mut gradient_product = None;
        if with_product {
            let share = 1.0 / tasks as f32;
            for value in sum.iter_mut() {
                *value *= share;
            }
            tasks = 1;
            gradient_product = self.last_gradient.as_ref().map(|last| inner_product(sum, last));
        }
        let gradient_norm = self.optimizer.clip_norm.map(|_| inner_product(sum, sum).sqrt() / tasks as f64);
        let clip = self.optimizer.clip_norm.zip(gradient_norm).map_or(1.0, |(most, norm)| clip_factor(norm, most));
        self.steps += 1;
        let step = Step::new(&self.optimizer, self.steps, rate, tasks, clip);
        let ranges = ranges(&mut self.parameters, &mut self.moments, sum, next);
        if sum.len() < PARALLEL_FROM {
            for range in ranges {
                step.take(range);
            }
        } else {
            spread(ranges, |range| step.take(range));
        }
        let last = self.last_gradient.take();
        self.last_gradient = with_product.then(|| std::mem::replace(sum, last.unwrap_or_default()));
        StepOutcome { gradient_product, gradient_norm }
    }
}

/// Properties of the mean gradient of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOutcome {
    /// Its inner product with that of the step before, if `with_product` was set in both.
    pub gradient_product: Option<f64>,
    /// Its Euclidean norm before it was clipped, if a limit is set.
    pub gradient_norm: Option<f64>,
}

/// The saved name of the last mean gradient.
const LAST_GRADIENT: &str = "last_gradient";

fn ranges<'a>(
    parameters: &'a mut [f32],
    moments: &'a mut [Vec<f32>],
    sum: &'a [f32],
    next: &'a mut [f32],
) -> Vec<Range<'a>> {
    let mut moments: Vec<_> = moments.iter_mut().map(|moment| moment.chunks_mut(RANGE)).collect();
    let ranges = parameters.chunks_mut(RANGE).zip(sum.chunks(RANGE)).zip(next.chunks_mut(RANGE));
    let range = |((parameters, sum), next)| {
        let moments = moments.iter_mut().map(|moment| moment.next().expect("as many as parameters")).collect();
        Range { parameters, moments, sum, next }
    };
    ranges.map(range).collect()
}

/// Σ aᵢ·bᵢ, in an order that does not depend on the number of threads.
fn inner_product(a: &[f32], b: &[f32]) -> f64 {
    let blocks = a.chunks(SUMMED).zip(b.chunks(SUMMED));
    blocks.map(|(a, b)| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()).sum()
}

/// As PyTorch's `clip_grad_norm_`: the factor that makes a norm at most `most`.
fn clip_factor(norm: f64, most: f64) -> f64 {
    (most / (norm + 1e-6)).min(1.0)
}
