//! A step, which changes the state only when it is committed.

use std::ops::Range;

use ata_types::{CHUNK_VALUES, GradientSquares};

use super::chunk::{ChunkGradient, SteppedChunk, VectorsChunk};
use super::{Trained, TrainingConfig, TrainingState};
use crate::exact::{BlockMaxima, Tallies, block_maxima};
use crate::optimizer::{OwnStep, Rule, StepSetup, TensorSteps};
use crate::spread::{PARALLEL_FROM, spread};

/// The number of values summed in sequence, so that the total is the same for every number of threads.
const SUMMED: usize = 1 << 14;

/// The largest factor by which the largest value of a task may exceed the largest value of its step's sum and still count. The values of
/// other tasks may cancel it: with the range that [`Units`](crate::Units) leave above a maximum, a value is clamped in the next step only
/// if they cancel 256-fold. With a larger factor, one worker could make the units coarser.
const MOST_CANCELLED: f32 = 4.0;

#[derive(Debug)]
pub(super) struct Begun {
    steps: TensorSteps,
    /// The number that turns the gradient of `maxima` into a mean.
    divisor: u64,
    stepped: usize,
    maxima: BlockMaxima,
    /// The mean gradient, if it is to be compared with that of the next step.
    gradient: Option<Vec<f32>>,
}

/// Properties of the mean gradient of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrainingOutcome {
    /// The inner product with the mean gradient of the step before, if `with_product` was set in both.
    pub gradient_product: Option<f64>,
    /// The Euclidean norm before clipping, if a limit is set.
    pub gradient_norm: Option<f64>,
    /// The learning rate of the program's own optimizer, if it has one.
    pub own_rate: Option<f64>,
    /// The squares of the gradients, if tasks tally theirs.
    pub squares: Option<GradientSquares>,
}

impl TrainingState {
    /// Returns `true` if a step needs the whole gradient before its first chunk, and must use [`TrainingState::step_whole`].
    pub fn needs_whole(&self, with_product: bool) -> bool {
        let TrainingConfig { optimizer, sizes, .. } = &self.trained.config;
        with_product || self.own.is_some() || optimizer.clip_norm.is_some() || sizes.tallied_from() < sizes.values()
    }

    /// Begins a step along the mean of the gradients of `tasks` tasks, at the learning rate `rate`. The step is then taken chunk by chunk.
    pub fn begin_step(&mut self, tasks: u64, rate: f64) {
        debug_assert!(!self.needs_whole(false), "the norm of the gradient is not known chunk by chunk");
        self.begin(tasks, rate, scale_by(tasks as f64), None, None);
    }

    fn begin(&mut self, tasks: u64, rate: f64, scale: f32, times: Option<&[u64]>, known: Option<Vec<f32>>) {
        if self.next.parameters.len() != self.parameters().len() {
            self.next = self.trained.vectors.zeros();
        }
        let Trained { config: TrainingConfig { optimizer, sizes, .. }, steps, .. } = &self.trained;
        let step = StepSetup { tasks, scale, time: steps + 1, rate, tensors: sizes.trained, times, known };
        self.begun = Some(Begun {
            steps: TensorSteps::new(optimizer, step),
            divisor: tasks,
            stepped: 0,
            maxima: BlockMaxima::new(sizes),
            gradient: None,
        });
    }

    /// Steps a chunk, which begins at value `at` of the flat vector, along the sum `sums` of the tasks' gradients in
    /// integers of [`TrainingState::units`]. Chunks may have any length and come in any order, each once.
    ///
    /// # Panics
    /// Panics if no step was begun, no units were set, or the chunk is not inside the vector.
    pub fn step_chunk(&mut self, at: usize, sums: &[i32]) -> SteppedChunk {
        let begun = self.begun.as_mut().expect("a step was begun");
        let units = self.trained.units.as_ref().expect("the units of the sums are known");
        let next = self.next.chunk(at, sums.len());
        let (stepped, maxima) = next.step(&self.trained, &begun.steps, at, &ChunkGradient::Sums(sums, units));
        begun.stepped += sums.len();
        begun.maxima.count(maxima);
        stepped
    }

    /// Begins a step along `gradient`, the sum of `tasks` tasks' gradients, and takes it. Returns the chunks of the
    /// next parameters in order, with [`CHUNK_VALUES`] each. Fails if the program's own optimizer does.
    ///
    /// # Panics
    /// Panics if there is not one number per parameter.
    pub fn step_whole(
        &mut self,
        mut gradient: Vec<f32>,
        tasks: u64,
        rate: f64,
        with_product: bool,
    ) -> Result<(TrainingOutcome, Vec<SteppedChunk>), String> {
        assert_eq!(gradient.len(), self.parameters().len());
        let mut gradient_product = None;
        let Tallies { weight, uses, squares } = self.trained.config.sizes.tallies.clone();
        let squares = squares.and_then(|tally| self.squares(&gradient[tally], &gradient));
        let mut divisor = weight.map_or(tasks as f64, |at| gradient[at].into());
        let mut averaged_over = tasks;
        let times = uses.as_ref().map(|uses| self.times(uses, &gradient));
        let trained = 0..self.trained.config.sizes.trained_values();
        // The maxima are those of the sum, as in a step by chunks: those of the mean are rounded.
        let mut of_sum = BlockMaxima::new(&self.trained.config.sizes);
        if with_product {
            of_sum.count(block_maxima(&self.trained.config.sizes, 0, &gradient));
            let (share, tasks) = (scale_by(divisor), tasks as f32);
            let (of_trained, of_averaged) = gradient.split_at_mut(trained.end);
            for value in of_trained {
                *value *= share;
            }
            for value in of_averaged {
                *value /= tasks;
            }
            (divisor, averaged_over) = (1.0, 1);
            gradient_product = self
                .trained
                .last_gradient
                .as_ref()
                .map(|last| inner_product(&gradient[trained.clone()], &last[trained.clone()]));
        }
        let most = self.trained.config.optimizer.clip_norm;
        let gradient_norm = most.map(|_| {
            let gradient = &gradient[trained.clone()];
            inner_product(gradient, gradient).sqrt() / divisor.max(f64::MIN_POSITIVE)
        });
        // PyTorch's `clip_grad_norm_` has the same factor.
        let clip = most.zip(gradient_norm).map_or(1.0, |(most, norm)| (most / (norm + 1e-6)).min(1.0));
        let scale = scale_by(divisor) * clip as f32;
        let known = self.step_own(&gradient[trained], scale, rate, times.as_deref())?;
        let (known, own_rate) = known.unzip();
        self.begin(averaged_over, rate, scale, times.as_deref(), known);
        let chunks = self.step_all(&gradient);
        if let (Some(uses), Some(times)) = (uses, times) {
            self.keep_times(uses, &times);
        }
        if let Some(begun) = self.begun.as_mut().filter(|_| with_product) {
            begun.gradient = Some(gradient);
            begun.divisor = tasks;
            begun.maxima = of_sum;
        }
        Ok((TrainingOutcome { gradient_product, gradient_norm, own_rate, squares }, chunks))
    }

    /// Adds up the squares of the tasks' gradients, which are tallied by tensor, and of their sum. Adam divides a value by the root of its mean
    /// square; so each tensor counts as much as the mean of that says. It is not known before the first step.
    fn squares(&self, tallied: &[f32], sum: &[f32]) -> Option<GradientSquares> {
        let Trained { config, vectors, steps, .. } = &self.trained;
        let second = matches!(config.optimizer.rule, Rule::Adam | Rule::AdamW).then(|| &vectors.moments[1]);
        if second.is_some() && *steps == 0 {
            return None;
        }
        let correction = 1.0 - config.optimizer.betas[1].powi(i32::try_from(*steps).unwrap_or(i32::MAX));
        let weight = |range: Range<usize>| {
            let Some(second) = second else { return 1.0 };
            let sum = second[range.clone()].iter().copied().map(f64::from).sum::<f64>();
            1.0 / ((sum / (range.len().max(1) as f64 * correction)).sqrt() + config.optimizer.epsilon)
        };
        let weights = config.sizes.of_trained().map(weight);
        let of_tensors = weights.zip(tallied).zip(config.sizes.squares(sum));
        let of_tensors =
            of_tensors.map(|((weight, of_tasks), of_sum)| (weight * f64::from(*of_tasks), weight * of_sum));
        let (of_tasks, of_sum) = of_tensors.fold((0.0, 0.0), |(a, b), (c, d)| (a + c, b + d));
        Some(GradientSquares { of_tasks, of_sum })
    }

    /// Lets the program's own optimizer, if there is one, take a step along a sum of gradients. Returns the values after it, and the learning
    /// rate.
    fn step_own(
        &mut self,
        sum: &[f32],
        scale: f32,
        rate_factor: f64,
        times: Option<&[u64]>,
    ) -> Result<Option<(Vec<f32>, f64)>, String> {
        let Some(own) = &mut self.own else { return Ok(None) };
        let mut values = self.trained.vectors.parameters.clone();
        let mean: Vec<f32> = sum.iter().map(|value| value * scale).collect();
        let used: Option<Vec<bool>> = times.map(|times| times.iter().map(|time| *time > 0).collect());
        let time = self.trained.steps + 1;
        let step = OwnStep { time, rate_factor, values: &mut values, gradient: &mean, used: used.as_deref() };
        let rate = own.step(step)?;
        Ok(Some((values, rate)))
    }

    /// Returns the number of this step for each trained tensor: those in which it had no gradient do not count. It is 0 for a tensor without
    /// gradient. The optimizer's first vector has the numbers so far at the places of the tally.
    fn times(&self, uses: &Range<usize>, gradient: &[f32]) -> Vec<u64> {
        let before = |at: usize| self.trained.vectors.moments.first().map_or(0, |moment| moment[at] as u64);
        uses.clone().map(|at| if gradient[at] > 0.0 { before(at) + 1 } else { 0 }).collect()
    }

    fn keep_times(&mut self, uses: Range<usize>, times: &[u64]) {
        let before = self.trained.vectors.moments.first();
        for (before, next) in before.into_iter().zip(&mut self.next.moments) {
            for (at, time) in uses.clone().zip(times) {
                next[at] = if *time > 0 { *time as f32 } else { before[at] };
            }
        }
    }

    /// Steps every chunk; for a large vector, on several threads.
    fn step_all(&mut self, gradient: &[f32]) -> Vec<SteppedChunk> {
        let begun = self.begun.as_mut().expect("the step was begun");
        let (trained, steps) = (&self.trained, &begun.steps);
        let mut results = vec![None; gradient.len().div_ceil(CHUNK_VALUES)];
        let chunks = gradient.chunks(CHUNK_VALUES).zip(self.next.chunks()).zip(&mut results).enumerate();
        let work = |(at, ((gradient, next), result)): (usize, ((&[f32], VectorsChunk<'_>), &mut Option<_>))| {
            *result = Some(next.step(trained, steps, at * CHUNK_VALUES, &ChunkGradient::Floats(gradient)));
        };
        if gradient.len() < PARALLEL_FROM {
            chunks.for_each(work);
        } else {
            spread(chunks.collect(), work);
        }
        begun.stepped = gradient.len();
        let results = results.into_iter().map(|result| result.expect("every chunk was stepped"));
        let counted = results.map(|(stepped, maxima)| {
            begun.maxima.count(maxima);
            stepped
        });
        counted.collect()
    }

    /// Drops the current step, so that the state is the one before it.
    pub fn abandon_step(&mut self) {
        self.begun = None;
    }

    /// Bounds the largest magnitudes that workers claim for the tasks' gradients: in each tensor, by four times the
    /// largest value of the sum along which the step was taken, which a single worker cannot enlarge unnoticed.
    ///
    /// # Panics
    /// Panics if no step was begun.
    pub fn believed(&self, claimed: &[f32]) -> Vec<f32> {
        let Begun { maxima, .. } = self.begun.as_ref().expect("a step was begun");
        claimed.iter().zip(maxima.of_tensors()).map(|(claimed, of_sum)| claimed.min(MOST_CANCELLED * of_sum)).collect()
    }

    /// Makes the current step part of the state, and updates the units. `maxima` are the largest magnitudes of the
    /// tasks' gradients in each tensor; for trained tensors, the compact format uses those of the step's gradient instead.
    ///
    /// # Panics
    /// Panics if no step was begun, or not all of it was taken.
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
            // This scales the maxima to the sum of a whole budget.
            sum.scale((budget as f64 / divisor as f64) as f32);
            units.next_of_blocks(&sum, maxima, budget)
        });
        trained.steps += 1;
        trained.last_gradient = gradient;
        std::mem::swap(&mut trained.vectors, &mut self.next);
    }
}

/// Returns the factor that divides by the number of tasks or by the sum of their weights. Tasks without any weight have no gradient.
fn scale_by(divisor: f64) -> f32 {
    if divisor > 0.0 { 1.0 / divisor as f32 } else { 0.0 }
}

/// Computes Σ aᵢ·bᵢ, in an order that does not depend on the number of threads.
fn inner_product(a: &[f32], b: &[f32]) -> f64 {
    let blocks = a.chunks(SUMMED).zip(b.chunks(SUMMED));
    blocks.map(|(a, b)| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()).sum()
}
