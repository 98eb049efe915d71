//! Gathers the gradients of the current step.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use ata_sums::{GradientSum, TensorSizes, TrainingOutcome, TrainingState, Units, add_sums};
use ata_types::{CHUNK_VALUES, VectorId};
use ata_wire::GradientHeader;

use super::{HeldSum, OrderedVector, StepOrder, StepPace, StepResult, SumChunk};

/// Sums the gradients of a step as they arrive, in any order, and steps each chunk once it has arrived of all vectors.
pub(super) struct Gathering {
    /// Whether vectors are kept separate until all have arrived, rather than added as they arrive.
    keeps_apart: bool,
    sizes: TensorSizes,
    /// The chunks of the sum, unless vectors are kept separate. A chunk is empty if no data has arrived for it, or if it was stepped.
    sums: Vec<Vec<i32>>,
    /// The vectors that have arrived, if vectors are kept separate.
    vectors: HashMap<VectorId, GradientSum>,
    /// The assembled vectors, if vectors are kept separate or their units differ.
    whole: Vec<Arc<HeldSum>>,
    /// The first chunk of each vector that has not arrived.
    arrived: HashMap<VectorId, u64>,
    /// The largest magnitude of each tensor so far.
    maxima: Vec<f32>,
    saturated: u64,
    vanished: u64,
    order: Option<StepOrder>,
    stepped: u64,
}

impl Gathering {
    pub(super) fn new(keeps_apart: bool, sizes: TensorSizes) -> Self {
        Self {
            keeps_apart,
            sums: vec![Vec::new(); sizes.values().div_ceil(CHUNK_VALUES)],
            maxima: vec![0.0; sizes.tensors()],
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

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.keeps_apart, self.sizes.clone());
    }

    fn count(&mut self, maxima: &[f32], saturated: u64, vanished: u64) {
        self.maxima.iter_mut().zip(maxima).for_each(|(most, other)| *most = most.max(*other));
        self.saturated = self.saturated.saturating_add(saturated);
        self.vanished = self.vanished.saturating_add(vanished);
    }

    fn add_sum(&mut self, sum: &GradientSum) {
        self.count(&sum.maxima, sum.saturated, sum.vanished);
        for (total, chunk) in self.sums.iter_mut().zip(sum.values.chunks(CHUNK_VALUES)) {
            add(total, chunk.into());
        }
    }

    pub(super) fn add_chunk(&mut self, chunk: SumChunk) {
        let SumChunk { vector: id, at, sums, headers } = chunk;
        if self.keeps_apart {
            let vector = self.vectors.entry(id).or_insert_with(|| GradientSum::new(&self.sizes));
            vector.values[at as usize * CHUNK_VALUES..][..sums.len()].copy_from_slice(&sums);
            // A vector that is kept separate has one header.
            for GradientHeader { maxima, saturated, vanished, .. } in headers {
                (vector.maxima, vector.saturated, vector.vanished) = (maxima, saturated, vanished);
            }
        } else {
            add(&mut self.sums[at as usize], sums.into());
            for GradientHeader { maxima, saturated, vanished, .. } in headers {
                self.count(&maxima, saturated, vanished);
            }
        }
        self.arrived.insert(id, at + 1);
    }

    /// Adds an assembled vector. Its units are those of its iteration, which may be an earlier one.
    pub(super) fn add_whole(&mut self, held: Arc<HeldSum>, units: Option<&Units>) {
        if !self.keeps_apart && Some(&held.units) == units {
            self.add_sum(&held.sum);
        } else {
            self.whole.push(held);
        }
    }

    /// Sets the order for the step, or replaces it.
    pub(super) fn order(&mut self, order: StepOrder) {
        self.order = Some(order.replacing(self.order.take()));
    }

    fn chunks(&self) -> u64 {
        self.sums.len() as u64
    }

    /// Steps the chunks that have arrived of all vectors. Returns the result once all chunks are stepped.
    pub(super) fn advance(&mut self, state: &mut TrainingState, pace: &StepPace) -> Result<Option<StepResult>, String> {
        let Some(order) = self.order.as_ref() else { return Ok(None) };
        let arrived = |ordered: &OrderedVector| self.arrived.get(&ordered.id).copied().unwrap_or(ordered.first_chunk);
        let ready = order.vectors.iter().map(arrived).min().unwrap_or(self.chunks());
        let is_whole = order.vectors.is_empty() || self.keeps_apart || state.needs_whole(order.with_product);
        let outcome = if !is_whole {
            self.step_chunks(state, ready);
            pace.set(Some(self.stepped));
            TrainingOutcome::default()
        } else if ready == self.chunks() {
            self.step_whole(state)?
        } else {
            return Ok(None);
        };
        let is_done = self.stepped == self.chunks();
        let Some(order) = self.order.take_if(|_| is_done) else { return Ok(None) };
        state.commit_step(&state.believed(&self.maxima));
        let result = StepResult {
            iteration: order.iteration,
            learning_rate: outcome.own_rate.unwrap_or(order.learning_rate),
            outcome,
            saturated: self.saturated,
            vanished: self.vanished,
            units: state.units().cloned(),
        };
        self.clear();
        Ok(Some(result))
    }

    /// Steps the chunks before `ready`, and writes the resulting parameters.
    fn step_chunks(&mut self, state: &mut TrainingState, ready: u64) {
        let Some(order) = &mut self.order else { return };
        if self.stepped == 0 && ready > 0 {
            state.begin_step(order.tasks, order.learning_rate);
        }
        for at in self.stepped..ready {
            let sums = std::mem::take(&mut self.sums[at as usize]);
            debug_assert!(!sums.is_empty(), "every chunk of a step has arrived");
            let chunk = state.step_chunk(at as usize * CHUNK_VALUES, &sums);
            if let Some(writer) = &mut order.writer {
                writer.push(chunk);
            }
        }
        self.stepped = self.stepped.max(ready);
    }

    /// Takes the step with the whole gradient, and writes the resulting parameters.
    fn step_whole(&mut self, state: &mut TrainingState) -> Result<TrainingOutcome, String> {
        let Some(mut order) = self.order.take() else { unreachable!("a step was ordered") };
        let gradient = self.gradient(&order, state.units());
        let (outcome, chunks) = state.step_whole(gradient, order.tasks, order.learning_rate, order.with_product)?;
        self.stepped = chunks.len() as u64;
        if let Some(writer) = &mut order.writer {
            for chunk in chunks {
                writer.push(chunk);
            }
        }
        self.order = Some(order);
        Ok(outcome)
    }

    fn gradient(&mut self, order: &StepOrder, units: Option<&Units>) -> Vec<f32> {
        if !self.keeps_apart
            && let Some(late) = self.whole.pop()
        {
            // A step with the gradient of an earlier iteration has no other gradient.
            let HeldSum { sum, units } = &*late;
            self.count(&sum.maxima, sum.saturated, sum.vanished);
            return units.values(&self.sizes, &sum.values);
        }
        let collected: Vec<_> = order.vectors.iter().filter_map(|ordered| self.vectors.remove(&ordered.id)).collect();
        let whole = std::mem::take(&mut self.whole);
        for vector in collected.iter().chain(whole.iter().map(|held| &held.sum)) {
            self.add_sum(vector);
        }
        let mut sum = Vec::with_capacity(self.sizes.values());
        for chunk in &mut self.sums {
            sum.extend_from_slice(&std::mem::take(chunk));
        }
        units.expect("a step has gradients").values(&self.sizes, &sum)
    }
}

/// Adds a chunk to a total, which is empty until the first addition.
fn add(total: &mut Vec<i32>, chunk: Cow<'_, [i32]>) {
    if total.is_empty() {
        *total = chunk.into_owned();
    } else {
        add_sums(total, &chunk);
    }
}
