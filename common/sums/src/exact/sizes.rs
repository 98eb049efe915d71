//! The position of each tensor in a flat vector.

use std::ops::Range;
use std::sync::Arc;

use crate::table::{ParameterTable, TensorEntry, TensorKind};

/// The number of sums that are added up side by side, as in two registers of AVX-512.
const LANES: usize = 16;

/// The lengths of a model's tensors, in flat order, and how many of them are trained. Clones are cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSizes {
    /// The end of each tensor in the flat vector.
    ends: Arc<[usize]>,
    /// The number of tensors that are trained. The others, which are averaged, follow them.
    pub(crate) trained: usize,
    pub(crate) tallies: Tallies,
}

/// The places of tallies in the flat vector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tallies {
    /// The sum of the tasks' weights.
    pub(crate) weight: Option<usize>,
    /// The numbers of tasks that have a gradient for each trained tensor.
    pub(crate) uses: Option<Range<usize>>,
    /// The squares of the tasks' gradients in each trained tensor.
    pub(crate) squares: Option<Range<usize>>,
}

impl From<&ParameterTable> for TensorSizes {
    fn from(table: &ParameterTable) -> Self {
        let trained = table.tensors.iter().take_while(|entry| entry.kind == TensorKind::Trained).count();
        let sizes = Self::new(table.tensors.iter().map(TensorEntry::elements));
        let range = |kind| {
            let tensor = table.tensors.iter().position(|entry| entry.kind == kind)?;
            Some(sizes.ends[tensor] - table.tensors[tensor].elements()..sizes.ends[tensor])
        };
        let tallies = Tallies {
            weight: range(TensorKind::Weight).map(|range| range.start),
            uses: range(TensorKind::Uses),
            squares: range(TensorKind::Squares),
        };
        Self { trained, tallies, ..sizes }
    }
}

impl TensorSizes {
    /// Creates the sizes of trained tensors with these lengths.
    pub fn new(lengths: impl IntoIterator<Item = usize>) -> Self {
        let ends = lengths.into_iter().scan(0, |end, length| {
            *end += length;
            Some(*end)
        });
        let ends: Arc<[usize]> = ends.collect();
        Self { trained: ends.len(), ends, tallies: Tallies::default() }
    }

    pub(crate) fn is_trained(&self, tensor: usize) -> bool {
        tensor < self.trained
    }

    /// Returns the place of the first value of a tally, or the number of values if there is none.
    pub(crate) fn tallied_from(&self) -> usize {
        let Tallies { weight, uses, squares } = &self.tallies;
        let first = weight.iter().copied().chain(uses.iter().chain(squares).map(|tally| tally.start)).min();
        first.unwrap_or_else(|| self.values())
    }

    /// Returns the number of values in the trained tensors, which precede the others.
    pub fn trained_values(&self) -> usize {
        self.trained.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// Returns the range of each trained tensor.
    pub(crate) fn of_trained(&self) -> impl Iterator<Item = Range<usize>> {
        let starts = std::iter::once(&0).chain(&*self.ends);
        starts.zip(&self.ends[..self.trained]).map(|(start, end)| *start..*end)
    }

    /// Returns the sum of the squares of each trained tensor's part of a flat vector. Its bits are the same on every CPU.
    pub fn squares(&self, vector: &[f32]) -> impl Iterator<Item = f64> {
        self.of_trained().map(|range| {
            let mut sums = [0.0; LANES];
            for values in vector[range].chunks(LANES) {
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(*value) * f64::from(*value));
            }
            sums.iter().sum()
        })
    }

    /// Returns the number of tensors.
    pub fn tensors(&self) -> usize {
        self.ends.len()
    }

    /// Returns the number of values in all tensors.
    pub fn values(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Splits a range of the flat vector by tensor. Returns each part's tensor index and range.
    pub fn pieces(&self, range: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        let Range { mut start, end } = range;
        let first = self.ends.partition_point(|tensor_end| *tensor_end <= start);
        let pieces = self.ends.iter().enumerate().skip(first).map_while(move |(tensor, &tensor_end)| {
            let piece = start..tensor_end.min(end);
            start = piece.end;
            (piece.start < end).then_some((tensor, piece))
        });
        pieces.filter(|(_, piece)| !piece.is_empty())
    }

    /// Splits a range by tensor and by blocks of `length` values. Returns each part's tensor index, block index and range.
    pub(crate) fn blocks(
        &self,
        range: Range<usize>,
        length: usize,
    ) -> impl Iterator<Item = (usize, usize, Range<usize>)> + '_ {
        self.pieces(range).flat_map(move |(tensor, piece)| {
            (piece.start / length..piece.end.div_ceil(length)).map(move |block| {
                let end = (block * length).saturating_add(length);
                (tensor, block, piece.start.max(block * length)..piece.end.min(end))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_cover_the_range_and_each_lies_in_its_tensor(
            lengths in prop::collection::vec(0usize..7, 0..9),
            cuts in any::<[prop::sample::Index; 2]>(),
        ) {
            let sizes = TensorSizes::new(lengths.iter().copied());
            let owners: Vec<usize> = lengths.iter().enumerate().flat_map(|(at, &length)| vec![at; length]).collect();
            prop_assert_eq!((sizes.tensors(), sizes.values()), (lengths.len(), owners.len()));
            let cuts = cuts.map(|cut| cut.index(owners.len() + 1));
            let range = cuts[0].min(cuts[1])..cuts[0].max(cuts[1]);
            let pieces: Vec<_> = sizes.pieces(range.clone()).collect();
            let found: Vec<_> = pieces.iter().flat_map(|(tensor, piece)| piece.clone().map(|at| (at, *tensor))).collect();
            prop_assert_eq!(found, range.clone().map(|at| (at, owners[at])).collect::<Vec<_>>());
            prop_assert!(pieces.windows(2).all(|pair| pair[0].0 < pair[1].0), "one piece per tensor");
            for length in [1, 3, usize::MAX] {
                let blocks = sizes.blocks(range.clone(), length).flat_map(|(tensor, block, part)| {
                    part.map(move |at| (at, tensor, block))
                });
                let expected = range.clone().map(|at| (at, owners[at], at / length));
                prop_assert_eq!(blocks.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            }
        }
    }
}
