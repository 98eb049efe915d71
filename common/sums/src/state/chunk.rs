//! One chunk's part of a step.

use super::Trained;
use super::vectors::{Vectors, VectorsChunk};
use crate::codec::encode_differences;
use crate::exact::{Units, block_maxima};
use crate::optimizer::{OptimizerStep, Range};

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

/// The gradient of a chunk.
#[derive(Clone, Copy)]
pub(super) enum ChunkGradient<'a> {
    /// A sum as integers, in these units.
    Sums(&'a [i32], &'a Units),
    /// A sum as floats, or a mean if it is compared with that of the next step.
    Floats(&'a [f32]),
}

/// The result of stepping a chunk: the chunk, and the largest magnitudes of the gradient in its blocks.
pub(super) struct ChunkResult {
    pub(super) stepped: SteppedChunk,
    pub(super) maxima: Vec<(usize, f32)>,
}

impl ChunkGradient<'_> {
    pub(super) fn len(self) -> usize {
        match self {
            Self::Sums(sums, _) => sums.len(),
            Self::Floats(values) => values.len(),
        }
    }
}

/// Steps the values from `at` on: reads the current ones, and writes the `next` ones.
pub(super) fn step_chunk(
    trained: &Trained,
    step: &OptimizerStep,
    at: usize,
    gradient: ChunkGradient<'_>,
    mut next: VectorsChunk<'_>,
) -> ChunkResult {
    let sizes = &trained.config.sizes;
    let mut floats = [0.0; BLOCK];
    let mut maxima = Vec::new();
    for from in (0..gradient.len()).step_by(BLOCK) {
        let to = gradient.len().min(from + BLOCK);
        let sum = match gradient {
            ChunkGradient::Sums(sums, units) => {
                units.write_values(sizes, at + from, &sums[from..to], &mut floats[..to - from]);
                &floats[..to - from]
            }
            ChunkGradient::Floats(values) => &values[from..to],
        };
        maxima.extend(block_maxima(sizes, at + from, sum));
        step.take(next.range(&trained.vectors, at, from, to, sum));
    }
    ChunkResult { stepped: next.finish(&trained.vectors, at), maxima }
}

impl VectorsChunk<'_> {
    /// Returns a range of the chunk, which begins at value `at` of the `current` vectors.
    fn range<'a>(&'a mut self, current: &'a Vectors, at: usize, from: usize, to: usize, sum: &'a [f32]) -> Range<'a> {
        Range {
            parameters: &current.parameters[at + from..at + to],
            moments: current.moments.iter().map(|moment| &moment[at + from..at + to]).collect(),
            sum,
            next_parameters: &mut self.parameters[from..to],
            next_moments: self.moments.iter_mut().map(|moment| &mut moment[from..to]).collect(),
        }
    }

    /// Returns the chunk for the workers, once its parameters have been stepped.
    fn finish(self, current: &Vectors, at: usize) -> SteppedChunk {
        let Some((next, held)) = self.replica.zip(current.replica.as_ref()) else {
            return SteppedChunk { whole: self.parameters.to_vec(), differences: None };
        };
        next.copy_from_slice(&held[at..at + next.len()]);
        let differences = encode_differences(next, self.parameters);
        SteppedChunk { whole: next.to_vec(), differences: Some(differences) }
    }
}
