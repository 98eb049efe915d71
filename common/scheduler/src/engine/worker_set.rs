//! A set of workers, as bits by slot.

use ata_types::WorkerId;

const BITS: usize = u64::BITS as usize;

/// A set of workers, with operations in constant time and an order that does not depend on its history: ascending.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkerSet {
    words: Vec<u64>,
    len: usize,
}

impl WorkerSet {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn contains(&self, worker: WorkerId) -> bool {
        let (word, bit) = place(worker);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    pub(super) fn insert(&mut self, worker: WorkerId) {
        let (word, bit) = place(worker);
        self.words.resize(self.words.len().max(word + 1), 0);
        self.len += usize::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
    }

    pub(super) fn remove(&mut self, worker: WorkerId) {
        let (word, bit) = place(worker);
        if let Some(word) = self.words.get_mut(word) {
            self.len -= usize::from(*word & bit != 0);
            *word &= !bit;
        }
    }

    /// Returns the number of workers that the sets have in common, by words of 64.
    pub(super) fn common<const N: usize>(sets: [&Self; N]) -> usize {
        let words = sets.iter().map(|set| set.words.len()).min().unwrap_or(0);
        let in_all = |at: usize| sets.iter().fold(u64::MAX, |word, set| word & set.words[at]);
        (0..words).map(|at| in_all(at).count_ones() as usize).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = WorkerId> + '_ {
        let some = if self.is_empty() { &[][..] } else { &self.words };
        some.iter().enumerate().flat_map(|(at, &word)| {
            let rest = |word: &u64| Some(word & (word - 1)).filter(|rest| *rest != 0);
            let words = std::iter::successors((word != 0).then_some(word), rest);
            words.map(move |word| WorkerId::from_slot(at * BITS + word.trailing_zeros() as usize))
        })
    }
}

impl FromIterator<WorkerId> for WorkerSet {
    fn from_iter<T: IntoIterator<Item = WorkerId>>(workers: T) -> Self {
        let mut set = Self::default();
        workers.into_iter().for_each(|worker| set.insert(worker));
        set
    }
}

fn place(worker: WorkerId) -> (usize, u64) {
    (worker.slot() / BITS, 1 << (worker.slot() % BITS))
}

/// The workers that got a task in an iteration, each once. Clearing the set takes no longer than filling it did.
#[derive(Debug, Default)]
pub(super) struct EmployedWorkers {
    workers: Vec<WorkerId>,
    set: WorkerSet,
}

impl EmployedWorkers {
    pub(super) fn add(&mut self, worker: WorkerId) {
        if !self.set.contains(worker) {
            self.set.insert(worker);
            self.workers.push(worker);
        }
    }

    pub(super) fn workers(&self) -> &[WorkerId] {
        &self.workers
    }

    /// Removes all workers, but keeps the memory.
    pub(super) fn cleared(mut self) -> Self {
        for worker in self.workers.drain(..) {
            self.set.remove(worker);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn is_a_set(operations in prop::collection::vec((any::<bool>(), 0usize..200), 0..300)) {
            let (mut set, mut expected) = (WorkerSet::default(), BTreeSet::new());
            for (insert, slot) in operations {
                let worker = WorkerId::from_slot(slot);
                if insert {
                    set.insert(worker);
                    expected.insert(worker);
                } else {
                    set.remove(worker);
                    expected.remove(&worker);
                }
                prop_assert_eq!(set.contains(worker), insert);
                prop_assert_eq!((set.len(), set.is_empty()), (expected.len(), expected.is_empty()));
                let even: WorkerSet = (0..100).map(|half| WorkerId::from_slot(2 * half)).collect();
                let common = expected.iter().filter(|worker| worker.slot().is_multiple_of(2)).count();
                prop_assert_eq!(WorkerSet::common([&set, &even]), common);
                prop_assert_eq!(WorkerSet::common([&even, &set, &set]), common);
            }
            prop_assert!(set.iter().eq(expected));
        }
    }
}
