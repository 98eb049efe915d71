//! Numbers for the workers of an iteration, nearly all of which may be zero.

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

/// A number for each of the workers that a decision is about, by position. Only those that are not zero take memory; the slice of
/// all numbers is built when first needed.
#[derive(Clone)]
pub struct PerWorker<T> {
    workers: usize,
    /// The numbers that are not zero, ascending by position.
    some: Vec<(usize, T)>,
    all: OnceLock<Vec<T>>,
}

impl<T: Copy + Default + PartialEq> PerWorker<T> {
    /// Creates the numbers of `workers` workers, of which those in `some` are not zero, by position.
    ///
    /// # Panics
    /// If a position is not below `workers`, or occurs twice.
    pub fn sparse(workers: usize, mut some: Vec<(usize, T)>) -> Self {
        some.retain(|(_, number)| *number != T::default());
        some.sort_unstable_by_key(|(position, _)| *position);
        assert!(some.is_sorted_by(|a, b| a.0 < b.0) && some.last().is_none_or(|(last, _)| *last < workers));
        Self { workers, some, all: OnceLock::new() }
    }

    /// Returns the number of workers.
    pub fn len(&self) -> usize {
        self.workers
    }

    /// Returns whether there are no workers.
    pub fn is_empty(&self) -> bool {
        self.workers == 0
    }

    /// Returns the number of the worker at a position.
    pub fn at(&self, position: usize) -> T {
        let found = self.some.binary_search_by_key(&position, |(position, _)| *position);
        found.map_or(T::default(), |at| self.some[at].1)
    }

    /// Returns the positions and numbers of those that are not zero, ascending by position.
    pub fn some(&self) -> impl DoubleEndedIterator<Item = (usize, T)> + ExactSizeIterator + Clone + '_ {
        self.some.iter().copied()
    }
}

impl<T: Copy + Default + PartialEq> From<Vec<T>> for PerWorker<T> {
    fn from(all: Vec<T>) -> Self {
        let some = all.iter().copied().enumerate().filter(|(_, number)| *number != T::default()).collect();
        Self { workers: all.len(), some, all: OnceLock::from(all) }
    }
}

impl<T: Copy + Default> Deref for PerWorker<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.all.get_or_init(|| {
            let mut all = vec![T::default(); self.workers];
            for &(position, number) in &self.some {
                all[position] = number;
            }
            all
        })
    }
}

impl<T: Copy + Default + fmt::Debug> fmt::Debug for PerWorker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: PartialEq> PartialEq for PerWorker<T> {
    fn eq(&self, other: &Self) -> bool {
        self.workers == other.workers && self.some == other.some
    }
}

impl<T: Copy + Default + PartialEq, const N: usize> PartialEq<[T; N]> for PerWorker<T> {
    fn eq(&self, other: &[T; N]) -> bool {
        **self == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_kept_and_all_are_there() {
        let sparse = PerWorker::sparse(5, vec![(3, 7_u64), (1, 2), (4, 0)]);
        assert_eq!(sparse, [0, 2, 0, 7, 0]);
        assert_eq!(sparse, PerWorker::from(vec![0, 2, 0, 7, 0]));
        assert_ne!(sparse, PerWorker::sparse(6, vec![(3, 7), (1, 2)]));
        assert_eq!((sparse.len(), sparse.at(3), sparse.at(0)), (5, 7, 0));
        assert_eq!(sparse.some().collect::<Vec<_>>(), [(1, 2), (3, 7)]);
    }
}
