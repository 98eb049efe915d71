//! The vectors that a step changes, and one chunk's part of a step.

use ata_types::{CHUNK_VALUES, WireFormat};

use super::Trained;
use crate::codec::encode_differences;
use crate::exact::{Units, block_maxima};
use crate::optimizer::{Optimizer, PieceStep, Range, TensorSteps, average, follow};

/// The number of values stepped at a time: 16 KiB per vector, so that all of them stay in a core's second cache.
const BLOCK: usize = 1 << 12;

/// A chunk of the next parameters, for the workers.
#[derive(Clone, Debug, PartialEq)]
pub struct SteppedChunk {
    /// The parameters that workers will compute at.
    pub whole: Vec<f32>,
    /// The encoded differences from the last parameters, if workers are sent differences ([`crate::apply_differences`]).
    pub differences: Option<Vec<u8>>,
}

pub(super) enum ChunkGradient<'a> {
    /// A sum as integers, in these units.
    Sums(&'a [i32], &'a Units),
    /// A sum as floats, or a mean if it is compared with that of the next step.
    Floats(&'a [f32]),
}

/// The vectors that a step changes, one `f32` per parameter each.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Vectors<V = Vec<f32>> {
    pub(super) parameters: V,
    /// The optimizer's vectors, in the order of [`Rule::moments`].
    pub(super) moments: Vec<V>,
    /// The parameters that workers hold, if they are sent rounded differences.
    pub(super) replica: Option<V>,
    /// The moving average of the parameters, if there is one.
    pub(super) ema: Option<V>,
}

pub(super) type VectorsChunk<'a> = Vectors<&'a mut [f32]>;

impl<V> Vectors<V> {
    fn each<'a, T>(&'a mut self, mut of: impl FnMut(&'a mut V) -> T) -> Vectors<T> {
        Vectors {
            parameters: of(&mut self.parameters),
            moments: self.moments.iter_mut().map(&mut of).collect(),
            replica: self.replica.as_mut().map(&mut of),
            ema: self.ema.as_mut().map(of),
        }
    }
}

impl Vectors {
    pub(super) fn new(optimizer: &Optimizer, format: WireFormat, parameters: Vec<f32>) -> Self {
        let moments = optimizer.rule.moments().iter().map(|_| vec![0.0; parameters.len()]).collect();
        let replica = (format == WireFormat::Compact).then(|| parameters.clone());
        let ema = optimizer.ema.map(|_| parameters.clone());
        Self { parameters, moments, replica, ema }
    }

    pub(super) fn zeros(&mut self) -> Self {
        self.each(|vector| vec![0.0; vector.len()])
    }

    pub(super) fn chunk(&mut self, at: usize, length: usize) -> VectorsChunk<'_> {
        self.each(|vector| &mut vector[at..at + length])
    }

    pub(super) fn chunks(&mut self) -> impl Iterator<Item = VectorsChunk<'_>> {
        let count = self.parameters.len().div_ceil(CHUNK_VALUES);
        let mut chunks = self.each(|vector| vector.chunks_mut(CHUNK_VALUES));
        (0..count).map(move |_| chunks.each(|chunks| chunks.next().expect("vectors have the same length")))
    }
}

impl VectorsChunk<'_> {
    /// Steps the values from `at` on: reads those of `trained`, and writes these. Returns the chunk for the workers, and
    /// the largest magnitudes of the gradient in its blocks.
    pub(super) fn step(
        mut self,
        trained: &Trained,
        steps: &TensorSteps,
        at: usize,
        gradient: &ChunkGradient<'_>,
    ) -> (SteppedChunk, Vec<(usize, f32)>) {
        let (sizes, current) = (&trained.config.sizes, &trained.vectors);
        let mut floats = [0.0; BLOCK];
        let mut maxima = Vec::new();
        // The first values of the chunk that are averaged, and that belong to tallies.
        let [averaged, tallied] = [sizes.trained_values(), sizes.tallied_from()].map(|first| first.saturating_sub(at));
        for from in (0..self.parameters.len()).step_by(BLOCK) {
            let to = self.parameters.len().min(from + BLOCK);
            let sum = match gradient {
                ChunkGradient::Sums(sums, units) => {
                    units.write_values(sizes, at + from, &sums[from..to], &mut floats[..to - from]);
                    &floats[..to - from]
                }
                ChunkGradient::Floats(values) => &values[from..to],
            };
            maxima.extend(block_maxima(sizes, at + from, sum));
            let cut = averaged.clamp(from, to);
            for (step, piece) in steps.pieces(sizes, at + from..at + cut) {
                let own = piece.start - at..piece.end - at;
                let range = Range {
                    parameters: &current.parameters[piece.clone()],
                    moments: current.moments.iter().map(|moment| &moment[piece.clone()]).collect(),
                    sum: &sum[own.start - from..own.end - from],
                    next_parameters: &mut self.parameters[own.clone()],
                    next_moments: self.moments.iter_mut().map(|moment| &mut moment[own.clone()]).collect(),
                };
                match step {
                    PieceStep::Take(step) => step.take(range),
                    PieceStep::Keep => range.keep(),
                    PieceStep::Set(values) => range.next_parameters.copy_from_slice(values),
                }
            }
            let end = tallied.clamp(cut, to);
            let (values, sum) = (&current.parameters[at + cut..at + end], &sum[cut - from..end - from]);
            average(values, sum, steps.tasks, &mut self.parameters[cut..end]);
            self.parameters[end..to].fill(0.0);
        }
        if let (Some(decay), Some(ema), Some(next)) = (trained.config.optimizer.ema, &current.ema, self.ema) {
            let cut = averaged.min(next.len());
            // The first step begins the average.
            let decay = if trained.steps == 0 { 0.0 } else { decay };
            follow(&ema[at..at + cut], &self.parameters[..cut], decay, &mut next[..cut]);
            next[cut..].copy_from_slice(&self.parameters[cut..]);
        }
        let stepped = match self.replica.zip(current.replica.as_ref()) {
            Some((next, held)) => {
                next.copy_from_slice(&held[at..at + next.len()]);
                let differences = encode_differences(next, self.parameters, averaged);
                SteppedChunk { whole: next.to_vec(), differences: Some(differences) }
            }
            None => SteppedChunk { whole: self.parameters.to_vec(), differences: None },
        };
        (stepped, maxima)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{TrainingConfig, TrainingState};
    use super::*;
    use crate::table::{ParameterTable, TensorKind};

    /// PyTorch's `AveragedModel` copies the parameters in its first update, and the buffers in every one.
    #[test]
    fn the_moving_average_begins_with_the_first_step() {
        let mut table = ParameterTable::of_shapes([("weight".into(), vec![300]), ("mean".into(), vec![30])]);
        table.tensors[1].kind = TensorKind::Averaged;
        for format in [WireFormat::F32Exact, WireFormat::Compact] {
            let optimizer = Optimizer { ema: Some(0.75), ..Optimizer::default() };
            let config = TrainingConfig { optimizer, sizes: (&table).into(), format, budget: 1 };
            let mut state = TrainingState::new(config, vec![1.0; 330]);
            assert_eq!(state.ema().unwrap(), state.parameters());
            let mut expected = Vec::new();
            for step in 0..5 {
                let gradient = (0..330).map(|at| (at as f32 * 0.1 + step as f32).sin()).collect();
                state.step_whole(gradient, 1, 0.1, false).unwrap();
                state.commit_step(&[1.0, 1.0]);
                if step == 0 {
                    expected = state.parameters().to_vec();
                }
                for (average, value) in expected[..300].iter_mut().zip(state.parameters()) {
                    *average += 0.25 * (value - *average);
                }
                expected[300..].copy_from_slice(&state.parameters()[300..]);
                assert_eq!(state.ema().unwrap(), expected);
                assert!(step == 0 || state.ema().unwrap()[..300] != state.parameters()[..300]);
            }
        }
    }
}
