//! A curve of bounded size, however long the run.

/// Points of a curve: more than a screen has columns to tell them apart.
const MOST_POINTS: usize = 1000;

/// How several points become one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Merge {
    /// Their mean.
    Mean,
    /// The last one's value.
    Last,
}

/// A curve whose points each stand for equally many values; when it is full, neighbours are merged. What is unknown is NaN.
#[derive(Clone, Debug)]
pub(crate) struct Curve<const N: usize> {
    merge: [Merge; N],
    /// Values of each whole point.
    stride: u64,
    points: Vec<[f64; N]>,
    /// The sums of the point that is not whole yet, and of how many values.
    rest: ([f64; N], u64),
    /// How often neighbours were merged: points of another version are others.
    version: u64,
}

impl<const N: usize> Curve<N> {
    pub(super) fn new(merge: [Merge; N]) -> Self {
        Self { merge, stride: 1, points: Vec::new(), rest: ([0.0; N], 0), version: 0 }
    }

    pub(super) fn add(&mut self, values: [f64; N]) {
        let (sums, count) = &mut self.rest;
        for ((sum, value), merge) in sums.iter_mut().zip(values).zip(self.merge) {
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

    /// The point that is not whole yet, if it has begun.
    fn unfinished(&self) -> Option<[f64; N]> {
        let (sums, count) = &self.rest;
        (*count > 0).then(|| {
            std::array::from_fn(|at| match self.merge[at] {
                Merge::Mean => sums[at] / *count as f64,
                Merge::Last => sums[at],
            })
        })
    }

    /// What a reader lacks who has seen up to `seen`: where it begins, and the points from there on.
    pub(crate) fn since(&self, seen: &mut Seen) -> (usize, Vec<[f64; N]>) {
        let from = if seen.version == self.version { seen.whole.min(self.points.len()) } else { 0 };
        *seen = Seen { version: self.version, whole: self.points.len() };
        let mut points = self.points[from..].to_vec();
        points.extend(self.unfinished());
        (from, points)
    }
}

/// How much of a curve a reader has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(super) version: u64,
    /// Whole points.
    pub(super) whole: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_curve_keeps_its_means_and_its_ends() {
        let mut curve = Curve::new([Merge::Last, Merge::Mean]);
        for i in 1..=100_000_u32 {
            curve.add([f64::from(i), f64::from(i % 2)]);
        }
        let (from, points) = curve.since(&mut Seen::default());
        assert!(from == 0 && points.len() <= MOST_POINTS && points.len() >= MOST_POINTS / 2, "{}", points.len());
        assert_eq!(points.last().unwrap()[0], 100_000.0);
        assert!(points[..points.len() - 1].iter().all(|point| point[1] == 0.5));
    }

    /// A reader that cuts at `from` and appends has the whole curve, whenever it looks.
    #[test]
    fn what_is_new_completes_what_was_seen() {
        let mut curve = Curve::new([Merge::Last]);
        let (mut seen, mut reader) = (Seen::default(), Vec::new());
        for i in 0..5000_u32 {
            curve.add([f64::from(i)]);
            if i % 37 == 0 {
                let (from, new) = curve.since(&mut seen);
                reader.truncate(from);
                reader.extend(new);
                assert_eq!(reader, curve.since(&mut Seen::default()).1, "after {i}");
            }
        }
    }
}
