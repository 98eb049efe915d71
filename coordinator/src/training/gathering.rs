//! The gradients of the step that is under way.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use ata_learn::{Aggregate, GradientSum, StepOutcome, TensorSizes, TrainingConfig, TrainingState, Units, add_sums};
use ata_types::{CHUNK_VALUES, VectorId};

use super::{HeldSum, Magnitudes, OrderedVector, Pace, StepOrder, StepResult, SumChunk, Summation};

/// Sums the gradients of a step as they arrive, in any order, and steps each chunk once all have it.
pub(super) struct Gathering {
    summation: Summation,
    sizes: TensorSizes,
    /// The sum of everything that has arrived, unless vectors are kept apart.
    sums: Vec<i32>,
    /// The vectors that have arrived, if they are.
    vectors: HashMap<VectorId, GradientSum>,
    /// Those that were put together before, if they are kept apart or in other units.
    whole: Vec<Arc<HeldSum>>,
    /// The first chunk of each vector that has not arrived.
    arrived: HashMap<VectorId, u64>,
    /// The largest magnitudes so far: of everything, or of each vector if a robust estimate is made of them.
    maxima: Vec<Vec<f32>>,
    saturated: u64,
    vanished: u64,
    order: Option<StepOrder>,
    /// How many chunks were stepped.
    stepped: u64,
}

impl Gathering {
    pub(super) fn new(summation: Summation, config: &TrainingConfig) -> Self {
        let sizes = config.sizes.clone();
        Self {
            summation,
            sums: vec![0; sizes.values()],
            maxima: Vec::new(),
            sizes,
            vectors: HashMap::new(),
            whole: Vec::new(),
            arrived: HashMap::new(),
            saturated: 0,
            vanished: 0,
            order: None,
            stepped: 0,
        }
    }

    /// Begins the next step.
    pub(super) fn clear(&mut self) {
        self.sums.fill(0);
        self.maxima.clear();
        self.vectors.clear();
        self.whole.clear();
        self.arrived.clear();
        (self.saturated, self.vanished, self.order, self.stepped) = (0, 0, None, 0);
    }

    /// Counts the magnitudes of some tasks.
    fn count(&mut self, Magnitudes { maxima, saturated, vanished }: Magnitudes) {
        match self.maxima.first_mut() {
            Some(all) if self.summation.aggregate == Aggregate::Mean => {
                all.iter_mut().zip(&maxima).for_each(|(most, other)| *most = most.max(*other));
            }
            _ => self.maxima.push(maxima),
        }
        self.saturated = self.saturated.saturating_add(saturated);
        self.vanished = self.vanished.saturating_add(vanished);
    }

    /// Counts the magnitudes of a sum.
    fn count_sum(&mut self, sum: &GradientSum) {
        let (maxima, saturated, vanished) = (sum.maxima.clone(), sum.saturated, sum.vanished);
        self.count(Magnitudes { maxima, saturated, vanished });
    }

    /// Adds a chunk of a vector.
    pub(super) fn add_chunk(&mut self, chunk: SumChunk) {
        let SumChunk { vector: id, at, sums, magnitudes } = chunk;
        let range = range(at, self.sums.len());
        if self.summation.is_separate() {
            let vector = self.vectors.entry(id).or_insert_with(|| GradientSum::new(&self.sizes));
            vector.values[range].copy_from_slice(&sums);
            // A vector that is kept apart has one header.
            for Magnitudes { maxima, saturated, vanished } in magnitudes {
                (vector.maxima, vector.saturated, vector.vanished) = (maxima, saturated, vanished);
            }
        } else {
            add_sums(&mut self.sums[range], &sums);
            for of_vector in magnitudes {
                self.count(of_vector);
            }
        }
        self.arrived.insert(id, at + 1);
    }

    /// Adds a vector that was put together. Its units are those of its iteration, which may be an earlier one.
    pub(super) fn add_whole(&mut self, held: Arc<HeldSum>, units: Option<&Units>) {
        if !self.summation.is_separate() && Some(&held.units) == units {
            add_sums(&mut self.sums, &held.sum.values);
            self.count_sum(&held.sum);
        } else {
            self.whole.push(held);
        }
    }

    /// Takes the order for the step, or another one that replaces it.
    pub(super) fn order(&mut self, order: StepOrder) {
        self.order = Some(order.replacing(self.order.take()));
    }

    /// The order for the step, if there is one.
    pub(super) fn ordered(&self) -> Option<&StepOrder> {
        self.order.as_ref()
    }

    fn chunks(&self) -> u64 {
        self.sums.len().div_ceil(CHUNK_VALUES) as u64
    }

    /// Steps what all vectors of the step have. Returns the result once that is everything.
    pub(super) fn advance(&mut self, state: &mut TrainingState, pace: &Pace) -> Option<StepResult> {
        let order = self.order.as_ref()?;
        let arrived = |ordered: &OrderedVector| self.arrived.get(&ordered.id).copied().unwrap_or(ordered.first_chunk);
        let ready = order.vectors.iter().map(arrived).min().unwrap_or(self.chunks());
        let is_whole =
            order.vectors.is_empty() || self.summation.is_separate() || state.needs_whole(order.with_product);
        let outcome = if !is_whole {
            self.step_chunks(state, ready);
            pace.set(Some(self.stepped));
            StepOutcome { gradient_product: None, gradient_norm: None }
        } else if ready == self.chunks() {
            self.step_whole(state)
        } else {
            return None;
        };
        if self.stepped < self.chunks() {
            return None;
        }
        let order = self.order.take()?;
        let claimed = self.largest();
        let is_sum = self.summation.aggregate == Aggregate::Mean;
        state.commit_step(&if is_sum { state.believed(&claimed) } else { claimed });
        let result = StepResult {
            iteration: order.iteration,
            learning_rate: order.learning_rate,
            gradient_norm: outcome.gradient_norm,
            gradient_product: outcome.gradient_product,
            saturated: self.saturated,
            vanished: self.vanished,
            units: state.units().cloned(),
        };
        self.clear();
        Some(result)
    }

    /// Steps the chunks before `ready`, and sends them.
    fn step_chunks(&mut self, state: &mut TrainingState, ready: u64) {
        let Some(order) = &mut self.order else { return };
        if self.stepped == 0 && ready > 0 {
            state.begin_step(order.tasks, order.learning_rate);
        }
        for at in self.stepped..ready {
            let range = range(at, self.sums.len());
            let chunk = state.step_chunk(range.start, &self.sums[range]);
            if let Some(writer) = &mut order.writer {
                writer.push(chunk);
            }
        }
        self.stepped = self.stepped.max(ready);
    }

    /// Takes the step of the whole gradient, and sends the parameters.
    fn step_whole(&mut self, state: &mut TrainingState) -> StepOutcome {
        let Some(mut order) = self.order.take() else { unreachable!("a step was ordered") };
        let (gradient, divisor) = self.gradient(&order, state.units());
        let (outcome, chunks) = state.step_whole(gradient, divisor, order.learning_rate, order.with_product);
        self.stepped = chunks.len() as u64;
        if let Some(writer) = &mut order.writer {
            for chunk in chunks {
                writer.push(chunk);
            }
        }
        self.order = Some(order);
        outcome
    }

    /// The largest magnitudes per tensor. Those of a few byzantine workers do not determine the units of a robust estimate: it
    /// takes the median over the vectors.
    fn largest(&self) -> Vec<f32> {
        let vectors = &self.maxima;
        let median = |tensor: usize| {
            let mut largest: Vec<f32> = vectors.iter().map(|maxima| maxima[tensor]).collect();
            largest.sort_unstable_by(f32::total_cmp);
            largest.get(largest.len() / 2).copied().unwrap_or(0.0)
        };
        (0..self.sizes.tensors()).map(median).collect()
    }

    /// The combined gradient, and what it is to be divided by.
    fn gradient(&mut self, order: &StepOrder, units: Option<&Units>) -> (Vec<f32>, u64) {
        let sizes = self.sizes.clone();
        let values = |units: &Units, sums: &[i32]| units.values(&sizes, sums);
        if !self.summation.is_separate() {
            // The gradient of an earlier iteration is the only one.
            let late = self.whole.pop();
            if let Some(late) = &late {
                self.count_sum(&late.sum);
            }
            let late = late.map(|late| values(&late.units, &late.sum.values));
            return (
                late.or_else(|| units.map(|units| values(units, &self.sums))).expect("a step has gradients"),
                order.tasks,
            );
        }
        let collected = order.vectors.iter().filter_map(|ordered| {
            let vector = self.vectors.remove(&ordered.id)?;
            Some(GradientSum { tasks: ordered.tasks, ..vector })
        });
        let whole = std::mem::take(&mut self.whole).into_iter().map(|held| Arc::unwrap_or_clone(held).sum);
        let vectors: Vec<GradientSum> = collected.chain(whole).collect();
        for vector in &vectors {
            self.count_sum(vector);
        }
        let units = units.expect("a step has gradients");
        if self.summation.aggregate != Aggregate::Mean {
            return (self.summation.aggregate.gradient(&vectors, units, &self.sizes), 1);
        }
        for vector in &vectors {
            add_sums(&mut self.sums, &vector.values);
        }
        (units.values(&self.sizes, &self.sums), order.tasks)
    }
}

/// The values of a chunk.
fn range(at: u64, values: usize) -> Range<usize> {
    let first = at as usize * CHUNK_VALUES;
    first..values.min(first + CHUNK_VALUES)
}
