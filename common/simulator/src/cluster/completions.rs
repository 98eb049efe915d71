//! Pending results, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ata_types::{LeaseId, Time, WorkerId};

/// A lease that will end. Those that end at the same time are in the order of their numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Completion {
    pub(super) at: Time,
    pub(super) lease: LeaseId,
    pub(super) worker: WorkerId,
    /// The number of interrupts of its worker when this was added: it is void if the worker was interrupted since.
    pub(super) interrupts: u32,
    pub(super) ending: CompletionKind,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CompletionKind {
    /// One task, as in most leases, or one batch ends after this time.
    One(Time),
    /// Several tasks end, whose times are stored at this index.
    Several(u32),
    Failure,
}

/// A priority queue that is filled in batches. A whole iteration's results are sorted at once, which is several times
/// faster than a heap; results that are added while some of these are pending go into a heap.
///
/// Results may become void. The queue's owner counts them, and calls [`Self::retain`] when they outnumber the others.
#[derive(Default)]
pub(super) struct Completions {
    /// The sorted results, latest first.
    sorted: Vec<Completion>,
    late: BinaryHeap<Reverse<Completion>>,
    is_sorted: bool,
    /// The number of results that [`Self::retain`] looked at.
    #[cfg(test)]
    pub(super) looked_at: usize,
}

impl Completions {
    pub(super) fn push(&mut self, completion: Completion) {
        if self.is_sorted && !self.sorted.is_empty() {
            self.late.push(Reverse(completion));
        } else {
            self.is_sorted = false;
            self.sorted.push(completion);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.sorted.len() + self.late.len()
    }

    /// Drops all results that `keep` rejects; `none_is` says in advance that it would reject all.
    pub(super) fn retain(&mut self, none_is: bool, keep: impl Fn(&Completion) -> bool) {
        #[cfg(test)]
        {
            self.looked_at += self.len();
        }
        if none_is {
            self.sorted.clear();
            self.late.clear();
        } else {
            self.sorted.retain(&keep);
            self.late.retain(|Reverse(late)| keep(late));
        }
    }

    pub(super) fn take(&mut self, is_wanted: impl Fn(&Completion) -> bool) -> Vec<Completion> {
        let mut removed: Vec<Completion> = self.sorted.extract_if(.., |next| is_wanted(next)).collect();
        let (late, left) = self.late.drain().partition(|Reverse(late)| is_wanted(late));
        self.late = left;
        removed.extend(Vec::from(late).into_iter().map(|Reverse(late)| late));
        removed
    }

    fn is_late_next(&mut self) -> bool {
        if !self.is_sorted {
            self.sorted.sort_unstable_by(|a, b| b.cmp(a));
            self.is_sorted = true;
        }
        match (self.sorted.last(), self.late.peek()) {
            (Some(sorted), Some(Reverse(late))) => late < sorted,
            (sorted, _) => sorted.is_none(),
        }
    }

    pub(super) fn peek(&mut self) -> Option<&Completion> {
        if self.is_late_next() { self.late.peek().map(|Reverse(late)| late) } else { self.sorted.last() }
    }

    pub(super) fn pop(&mut self) -> Option<Completion> {
        if self.is_late_next() { self.late.pop().map(|Reverse(late)| late) } else { self.sorted.pop() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_time_whenever_they_were_added() {
        let completion = |at: f64, lease| Completion {
            at: Time(at),
            lease: LeaseId(lease),
            worker: WorkerId::from_slot(0),
            interrupts: 0,
            ending: CompletionKind::One(Time(0.0)),
        };
        let mut queue = Completions::default();
        for (lease, at) in (0..).zip([3.0, 1.0, 2.0, 2.0]) {
            queue.push(completion(at, lease));
        }
        let pop = |queue: &mut Completions| queue.pop().map(|next| (next.at.0, next.lease.0));
        assert_eq!(pop(&mut queue), Some((1.0, 1)));
        queue.push(completion(2.5, 4));
        queue.push(completion(9.0, 5));
        assert_eq!([(); 4].map(|()| pop(&mut queue).unwrap().1), [2, 3, 4, 0]);
        queue.push(completion(8.0, 6));
        assert_eq!(queue.peek().unwrap().at, Time(8.0));
        queue.retain(false, |completion| completion.at < Time(9.0));
        assert_eq!([pop(&mut queue), pop(&mut queue)], [Some((8.0, 6)), None]);
    }
}
