//! The vectors that a step changes, and their chunks.

use ata_types::{CHUNK_VALUES, WireFormat};

use crate::optimizer::Rule;

/// The vectors that a step changes, one `f32` per parameter each.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Vectors {
    pub(super) parameters: Vec<f32>,
    /// The optimizer's vectors, in the order of [`Rule::moments`].
    pub(super) moments: Vec<Vec<f32>>,
    /// The parameters that workers hold, if they are sent rounded differences.
    pub(super) replica: Option<Vec<f32>>,
}

/// A chunk of each vector.
pub(super) struct VectorsChunk<'a> {
    pub(super) parameters: &'a mut [f32],
    pub(super) moments: Vec<&'a mut [f32]>,
    pub(super) replica: Option<&'a mut [f32]>,
}

impl Vectors {
    /// Creates the vectors before the first step.
    pub(super) fn new(rule: Rule, format: WireFormat, parameters: Vec<f32>) -> Self {
        let moments = rule.moments().iter().map(|_| vec![0.0; parameters.len()]).collect();
        let replica = (format == WireFormat::Compact).then(|| parameters.clone());
        Self { parameters, moments, replica }
    }

    /// Resizes the vectors to the lengths of `other`; their content does not matter.
    pub(super) fn resize_like(&mut self, other: &Self) {
        if self.parameters.len() != other.parameters.len() {
            let zeros = |like: &Vec<f32>| vec![0.0; like.len()];
            *self = Self {
                parameters: zeros(&other.parameters),
                moments: other.moments.iter().map(zeros).collect(),
                replica: other.replica.as_ref().map(zeros),
            };
        }
    }

    /// Returns `length` values of each vector, from `at` on.
    pub(super) fn chunk(&mut self, at: usize, length: usize) -> VectorsChunk<'_> {
        VectorsChunk {
            parameters: &mut self.parameters[at..at + length],
            moments: self.moments.iter_mut().map(|moment| &mut moment[at..at + length]).collect(),
            replica: self.replica.as_mut().map(|replica| &mut replica[at..at + length]),
        }
    }

    /// Returns all chunks, in order.
    pub(super) fn chunks(&mut self) -> impl Iterator<Item = VectorsChunk<'_>> {
        let mut moments: Vec<_> = self.moments.iter_mut().map(|moment| moment.chunks_mut(CHUNK_VALUES)).collect();
        let mut replica = self.replica.as_mut().map(|replica| replica.chunks_mut(CHUNK_VALUES));
        self.parameters.chunks_mut(CHUNK_VALUES).map(move |parameters| VectorsChunk {
            parameters,
            moments: moments.iter_mut().map(|chunks| chunks.next().expect("as many as parameters")).collect(),
            replica: replica.as_mut().map(|chunks| chunks.next().expect("as many as parameters")),
        })
    }
}
