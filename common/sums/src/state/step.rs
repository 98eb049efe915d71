//! A step, which changes the state only when it is committed.

use ata_types::CHUNK_VALUES;

use super::chunk::{ChunkGradient, ChunkResult, SteppedChunk, step_chunk};
use super::{TrainingConfig, TrainingState};
use crate::exact::{BlockMaxima, block_maxima};
use crate::optimizer::Step;
use crate::spread::{PARALLEL_FROM, spread};

/// Numbers summed in sequence: the sum of such sums is the same for every number of threads.
const SUMMED: usize = 1 << 14;

/// How many times larger than the largest value of a step's sum the largest value of one of its tasks may be, if it is to count. The
/// values of other tasks may cancel those of the largest: with the range that [`Units`](crate::Units) leave above a maximum, one is
/// clamped in the next step only if they cancel 256-fold. With a larger number, one worker could make the units coarser.
const MOST_CANCELLED: f32 = 4.0;

/// A step that was begun.
#[derive(Debug)]
pub(super) struct Begun {
    step: Step,
    /// The number that makes the gradient of `maxima` a mean.
    divisor: u64,
    /// The number of values that were stepped.
    stepped: usize,
    /// The largest magnitudes of the gradient.
    maxima: BlockMaxima,
    /// The mean gradient, if it is to be compared with that of the next step.
    gradient: Option<Vec<f32>>,
}

impl Begun {
    fn count(&mut self, values: usize, result: ChunkResult) -> SteppedChunk {
        self.stepped += values;
        self.maxima.count(&result.maxima);
        result.stepped
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

impl TrainingState {
    /// Whether a step needs the whole gradient before its first chunk, and is therefore one of
    /// [`TrainingState::step_whole`].
    pub fn needs_whole(&self, with_product: bool) -> bool {
        with_product || self.trained.config.optimizer.clip_norm.is_some()
    }

    /// Begins a step along the mean of the gradients of `tasks` tasks, at the learning rate `rate`. It will be taken chunk
    /// by chunk.
    pub fn begin_step(&mut self, tasks: u64, rate: f64) {
        debug_assert!(!self.needs_whole(false), "the norm of the gradient is not known chunk by chunk");
        self.begin(tasks, rate, 1.0);
    }

    fn begin(&mut self, divisor: u64, rate: f64, clip: f64) {
        let config = &self.trained.config;
        self.next.fit(&self.trained.vectors);
        self.begun = Some(Begun {
            step: Step::new(&config.optimizer, self.trained.steps + 1, rate, divisor, clip),
            divisor,
            stepped: 0,
            maxima: BlockMaxima::new(&config.sizes),
            gradient: None,
        });
    }

    /// Takes the step of a chunk, which begins at value `at` of the flat vector, along the sum `sums` of the tasks' gradients in
    /// integers of [`TrainingState::units`]. Chunks may be of any lengths, and come in any order, each once.
    ///
    /// # Panics
    /// If no step was begun, no units were set, or the chunk does not lie in the vector.
    pub fn step_chunk(&mut self, at: usize, sums: &[i32]) -> SteppedChunk {
        let begun = self.begun.as_mut().expect("a step was begun");
        let units = self.trained.units.as_ref().expect("the units of the sums are known");
        let next = self.next.chunk(at, sums.len());
        let result = step_chunk(&self.trained, &begun.step, at, ChunkGradient::Sums(sums, units), next);
        begun.count(sums.len(), result)
    }

    /// Begins a step along `gradient`, the sum of `tasks` tasks' gradients, and takes it. The chunks of the next parameters, of
    /// [`CHUNK_VALUES`] each, are in order.
    ///
    /// # Panics
    /// If there is not one number per parameter.
    pub fn step_whole(
        &mut self,
        mut gradient: Vec<f32>,
        tasks: u64,
        rate: f64,
        with_product: bool,
    ) -> (StepOutcome, Vec<SteppedChunk>) {
        assert_eq!(gradient.len(), self.parameters().len());
        let mut divisor = tasks;
        let mut gradient_product = None;
        // Those of the sum, as in a step by chunks: those of the mean are rounded.
        let mut of_sum = BlockMaxima::new(&self.trained.config.sizes);
        if with_product {
            of_sum.count(&block_maxima(&self.trained.config.sizes, 0, &gradient).collect::<Vec<_>>());
            let share = 1.0 / divisor as f32;
            for value in &mut gradient {
                *value *= share;
            }
            divisor = 1;
            gradient_product = self.trained.last_gradient.as_ref().map(|last| inner_product(&gradient, last));
        }
        let most = self.trained.config.optimizer.clip_norm;
        let gradient_norm = most.map(|_| inner_product(&gradient, &gradient).sqrt() / divisor as f64);
        let clip = most.zip(gradient_norm).map_or(1.0, |(most, norm)| clip_factor(norm, most));
        self.begin(divisor, rate, clip);
        let chunks = self.step_all(&gradient);
        if let Some(begun) = self.begun.as_mut().filter(|_| with_product) {
            begun.gradient = Some(gradient);
            begun.divisor = tasks;
            begun.maxima = of_sum;
        }
        (StepOutcome { gradient_product, gradient_norm }, chunks)
    }

    /// Takes the step of every chunk, of a large vector on several threads.
    fn step_all(&mut self, gradient: &[f32]) -> Vec<SteppedChunk> {
        let begun = self.begun.as_mut().expect("the step was begun");
        let (trained, step) = (&self.trained, &begun.step);
        let mut results: Vec<Option<ChunkResult>> = Vec::new();
        results.resize_with(gradient.len().div_ceil(CHUNK_VALUES), || None);
        let chunks = gradient.chunks(CHUNK_VALUES).zip(self.next.chunks()).zip(&mut results).enumerate();
        let work = |(at, ((gradient, next), result)): (usize, ((&[f32], _), &mut Option<_>))| {
            *result = Some(step_chunk(trained, step, at * CHUNK_VALUES, ChunkGradient::Floats(gradient), next));
        };
        if gradient.len() < PARALLEL_FROM {
            chunks.for_each(work);
        } else {
            spread(chunks.collect(), work);
        }
        let stepped = gradient.chunks(CHUNK_VALUES).zip(results);
        stepped.map(|(chunk, result)| begun.count(chunk.len(), result.expect("every chunk was stepped"))).collect()
    }

    /// Drops the step that was begun; the state is that before it.
    pub fn abandon_step(&mut self) {
        self.begun = None;
    }

    /// What counts of the largest magnitudes that workers claim of the tasks' gradients: in each tensor up to four times the
    /// largest value of the step that was taken along their sum, which a single worker cannot enlarge unnoticed.
    ///
    /// # Panics
    /// If no step was begun.
    pub fn believed(&self, claimed: &[f32]) -> Vec<f32> {
        let Begun { maxima, .. } = self.begun.as_ref().expect("a step was begun");
        claimed.iter().zip(maxima.of_tensors()).map(|(claimed, of_sum)| claimed.min(MOST_CANCELLED * of_sum)).collect()
    }

    /// Makes the step that was begun part of the state, and moves the units on. `maxima` are the largest magnitudes of the
    /// tasks' gradients in each tensor; the compact format takes those of the step's gradient instead.
    ///
    /// # Panics
    /// If no step was begun, or not all of it was taken.
    pub fn commit_step(&mut self, maxima: &[f32]) {
        let Begun { divisor, stepped, maxima: mut sum, gradient, .. } = self.begun.take().expect("a step was begun");
        assert_eq!(stepped, self.parameters().len(), "every chunk was stepped once");
        let trained = &mut self.trained;
        let TrainingConfig { format, budget, .. } = trained.config;
        let has_blocks = self.next.replica.is_some();
        trained.units = trained.units.as_ref().map(|units| {
            if !has_blocks {
                return units.next(maxima, budget, format);
            }
            // What the sum of a whole budget would have been.
            sum.scale((budget as f64 / divisor as f64) as f32);
            units.next_of_blocks(&sum, budget)
        });
        trained.steps += 1;
        trained.last_gradient = gradient;
        std::mem::swap(&mut trained.vectors, &mut self.next);
    }
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
