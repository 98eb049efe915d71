//! A curve whose size is bounded, however long the run is.

use std::marker::PhantomData;

use serde::{Deserialize, Serialize};

/// The most points of a curve: a screen has no more columns to display.
const MOST_POINTS: usize = 1000;

#[derive(Clone, Copy, Debug)]
pub(super) enum Merge {
    Mean,
    Last,
}

/// A curve of points with N values each, of which there are at most a thousand: each point stands for equally many values, and when the
/// curve is full, neighbouring points are merged. Unknown values are NaN.
#[derive(Clone, Debug)]
pub struct Curve<P, const N: usize> {
    merge: [Merge; N],
    /// The number of values that each complete point stands for.
    stride: u64,
    points: Vec<[f64; N]>,
    /// The sums of the incomplete point, and its number of values.
    rest: ([f64; N], u64),
    /// The number of times that neighbours were merged: a new version replaces all points.
    version: u64,
    kind: PhantomData<P>,
}

/// A curve without what its kind determines.
#[derive(Serialize, Deserialize)]
pub(super) struct SavedCurve<P> {
    stride: u64,
    points: Vec<P>,
    rest: P,
    count: u64,
}

impl<P: From<[f64; N]> + Into<[f64; N]>, const N: usize> Curve<P, N> {
    pub(super) fn saved(&self) -> SavedCurve<P> {
        let (rest, count) = self.rest;
        let points = self.points.iter().copied().map(P::from).collect();
        SavedCurve { stride: self.stride, points, rest: rest.into(), count }
    }

    /// Returns the curve with saved points in the place of its own.
    pub(super) fn restored(self, saved: SavedCurve<P>) -> Result<Self, String> {
        let SavedCurve { stride, points, rest, count } = saved;
        if points.len() >= MOST_POINTS || !stride.is_power_of_two() || count >= stride {
            return Err(format!("a curve has {} points of {stride} values, and {count} more", points.len()));
        }
        let points = points.into_iter().map(P::into).collect();
        Ok(Self { stride, points, rest: (rest.into(), count), ..self })
    }

    pub(super) fn new(merge: [Merge; N]) -> Self {
        Self { merge, stride: 1, points: Vec::new(), rest: ([0.0; N], 0), version: 0, kind: PhantomData }
    }

    pub(super) fn add(&mut self, point: P) {
        let (sums, count) = &mut self.rest;
        for ((sum, value), merge) in sums.iter_mut().zip(point.into()).zip(self.merge) {
            *sum = match merge {
                Merge::Mean if *count > 0 => *sum + value,
                Merge::Mean | Merge::Last => value,
            };
        }
        *count += 1;
        if *count == self.stride {
            self.points.extend(self.unfinished());
            self.rest.1 = 0;
        }
        if self.points.len() == MOST_POINTS {
            self.halve();
        }
    }

    fn halve(&mut self) {
        let merge = self.merge;
        let merged = self.points.chunks(2).map(|pair| {
            std::array::from_fn(|at| match merge[at] {
                Merge::Mean => pair.iter().map(|point| point[at]).sum::<f64>() / pair.len() as f64,
                Merge::Last => pair[pair.len() - 1][at],
            })
        });
        self.points = merged.collect();
        self.stride *= 2;
        self.version += 1;
    }

    /// Returns the incomplete point, if it has begun.
    fn unfinished(&self) -> Option<[f64; N]> {
        let (sums, count) = &self.rest;
        (*count > 0).then(|| {
            std::array::from_fn(|at| match self.merge[at] {
                Merge::Mean => sums[at] / *count as f64,
                Merge::Last => sums[at],
            })
        })
    }

    /// Returns the points that are new to a reader at `mark`, and the position of the first of them. Advances `mark`.
    pub fn since(&self, mark: &mut ReadMark) -> (usize, Vec<P>) {
        let from = if mark.version == self.version { mark.complete.min(self.points.len()) } else { 0 };
        *mark = ReadMark { version: self.version, complete: self.points.len() };
        let points = self.points[from..].iter().copied().chain(self.unfinished());
        (from, points.map(P::from).collect())
    }
}

/// The part of a curve or of a heat map that a reader has.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadMark {
    pub(super) version: u64,
    /// The number of complete points or columns.
    pub(super) complete: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_curve_keeps_its_means_and_its_ends() {
        let mut curve: Curve<[f64; 2], 2> = Curve::new([Merge::Last, Merge::Mean]);
        for i in 1..=100_000_u32 {
            curve.add([f64::from(i), f64::from(i % 2)]);
        }
        let (from, points) = curve.since(&mut ReadMark::default());
        assert!(from == 0 && points.len() <= MOST_POINTS && points.len() >= MOST_POINTS / 2, "{}", points.len());
        assert_eq!(points.last().unwrap()[0], 100_000.0);
        assert!(points[..points.len() - 1].iter().all(|point| point[1] == 0.5));
    }

    /// A reader that truncates at `from` and appends always has the whole curve.
    #[test]
    fn new_points_complete_the_curve() {
        let mut curve: Curve<[f64; 1], 1> = Curve::new([Merge::Last]);
        let (mut mark, mut reader) = (ReadMark::default(), Vec::new());
        for i in 0..5000_u32 {
            curve.add([f64::from(i)]);
            if i % 37 == 0 {
                let (from, new) = curve.since(&mut mark);
                reader.truncate(from);
                reader.extend(new);
                assert_eq!(reader, curve.since(&mut ReadMark::default()).1, "after {i}");
            }
        }
    }
}
