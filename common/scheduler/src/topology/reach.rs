//! Which workers reach each other, as found out before they exchange vectors.
//!
//! One connection at a time is tried in each direction. A pair that failed is tried again, more and more rarely.

use std::collections::BTreeMap;

use ata_types::{Iteration, WorkerId};

/// The number of iterations after which a pair that failed is tried again; it doubles with each further failure. The cost of a pair
/// that never works is the time that its exchange takes to fail: at half this value, a run of 1000 iterations pays it once more.
const RETRY_AFTER: u64 = 8;

/// The number of doublings of that interval: after this many failures, a pair is tried every 1024 iterations.
const MOST_DOUBLINGS: u32 = 7;

/// The known connections between workers.
#[derive(Debug, Default)]
pub struct Reach {
    /// The pairs by their two workers, the lower number first.
    pairs: BTreeMap<(WorkerId, WorkerId), Pair>,
}

/// The connections between two workers.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    /// Whether the first worker reaches the second, and the other way around.
    reached: [bool; 2],
    /// The number of failures since vectors were last exchanged.
    failures: u32,
    /// The first iteration in which the pair may be tried again.
    due: Iteration,
}

impl Pair {
    fn is_good(&self) -> bool {
        self.reached == [true; 2]
    }
}

fn key(one: WorkerId, other: WorkerId) -> (WorkerId, WorkerId) {
    (one.min(other), one.max(other))
}

impl Reach {
    /// Returns the connection to try next among these workers: the worker that connects, and its target. `may_meet` returns whether two of
    /// them may connect at all. Pairs with the fewest failures come first, so that an unreachable worker does not keep others waiting.
    pub fn next(
        &self,
        iteration: Iteration,
        workers: &[WorkerId],
        may_meet: impl Fn(WorkerId, WorkerId) -> bool,
    ) -> Option<(WorkerId, WorkerId)> {
        let mut failures: BTreeMap<WorkerId, u32> = BTreeMap::new();
        for ((one, other), pair) in &self.pairs {
            for worker in [one, other] {
                *failures.entry(*worker).or_default() += pair.failures;
            }
        }
        let of = |worker: &WorkerId| failures.get(worker).copied().unwrap_or(0);
        let pairs = workers.iter().flat_map(|one| workers.iter().map(move |other| (*one, *other)));
        let open = pairs.filter(|(one, other)| one < other && may_meet(*one, *other)).filter_map(|(one, other)| {
            let pair = self.pairs.get(&(one, other)).copied().unwrap_or_default();
            let way = if pair.reached[0] { (other, one) } else { (one, other) };
            (!pair.is_good() && pair.due <= iteration).then_some((of(&one).max(of(&other)), way))
        });
        open.min().map(|(_, way)| way)
    }

    /// Records that a worker has tried to connect to another one.
    pub fn answered(&mut self, iteration: Iteration, from: WorkerId, to: WorkerId, is_reached: bool) {
        if is_reached {
            let pair = self.pairs.entry(key(from, to)).or_default();
            pair.reached[usize::from(from > to)] = true;
        } else {
            self.fail(iteration, from, to);
        }
    }

    /// Records that two workers cannot exchange vectors. They are tried again later.
    pub(super) fn fail(&mut self, iteration: Iteration, one: WorkerId, other: WorkerId) {
        let pair = self.pairs.entry(key(one, other)).or_default();
        // Both ends may report the failure.
        if pair.due > iteration {
            return;
        }
        let due = Iteration(iteration.number() + (RETRY_AFTER << pair.failures.min(MOST_DOUBLINGS)));
        *pair = Pair { reached: [false; 2], failures: pair.failures + 1, due };
    }

    /// Records that workers have exchanged vectors.
    pub fn succeeded(&mut self, workers: &[WorkerId]) {
        for ((one, other), pair) in &mut self.pairs {
            if pair.is_good() && workers.contains(one) && workers.contains(other) {
                pair.failures = 0;
            }
        }
    }

    /// Forgets a worker that is gone. If it comes back, others may reach it.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.pairs.retain(|(one, other), _| *one != worker && *other != worker);
    }

    /// Returns those of some workers that exchange vectors. The worker that is in the most pairs that do not work is excluded,
    /// until all pairs work. Of several such workers, it is the one whose pairs failed more often, and then the one with the higher
    /// number.
    pub fn members(&self, workers: &[WorkerId]) -> Vec<WorkerId> {
        let mut members = workers.to_vec();
        members.sort_unstable();
        loop {
            let of = |one: WorkerId| {
                let pairs = members.iter().filter(move |other| **other != one).map(move |other| key(one, *other));
                let pairs: Vec<Pair> = pairs.map(|pair| self.pairs.get(&pair).copied().unwrap_or_default()).collect();
                let bad = pairs.iter().filter(|pair| !pair.is_good()).count();
                (bad, pairs.iter().map(|pair| pair.failures).sum::<u32>(), one)
            };
            match members.iter().map(|member| of(*member)).max() {
                Some((1.., _, worst)) => members.retain(|member| *member != worst),
                _ => return members,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(slots: &[usize]) -> Vec<WorkerId> {
        slots.iter().map(|slot| WorkerId::from_slot(*slot)).collect()
    }

    /// Tries all connections that are due, of which only some work. Returns how many were tried.
    fn probe(reach: &mut Reach, at: u64, all: &[WorkerId], works: impl Fn(usize, usize) -> bool) -> usize {
        let mut tried = 0;
        while let Some((from, to)) = reach.next(Iteration(at), all, |_, _| true) {
            reach.answered(Iteration(at), from, to, works(from.slot(), to.slot()));
            tried += 1;
        }
        tried
    }

    #[test]
    fn only_those_who_reach_each_other_are_members() {
        let (mut reach, all) = (Reach::default(), workers(&[0, 1, 2, 3]));
        assert_eq!(reach.members(&all).len(), 1, "nothing is known");
        assert_eq!(probe(&mut reach, 1, &all[..2], |_, _| true), 2, "in both directions");
        assert_eq!(reach.members(&all), workers(&[0, 1]));
        // No worker reaches 3, but 3 reaches all.
        assert_eq!(probe(&mut reach, 1, &all, |_, to| to != 3), 4 + 3);
        assert_eq!(reach.members(&all), workers(&[0, 1, 2]));
        reach.forget(all[3]);
        assert_eq!(reach.next(Iteration(1), &all, |one, other| one != all[3] && other != all[3]), None);
        assert_eq!(probe(&mut reach, 1, &all, |_, _| true), 6);
        assert_eq!(reach.members(&all), all);
    }

    #[test]
    fn an_unreachable_worker_does_not_keep_others_waiting() {
        let (mut reach, all) = (Reach::default(), workers(&[0, 1, 2, 3, 4]));
        let mut failures = 0;
        while reach.members(&all).len() < 4 {
            let (from, to) = reach.next(Iteration(1), &all, |_, _| true).unwrap();
            let is_reached = from.slot() != 0 && to.slot() != 0;
            failures += usize::from(!is_reached);
            reach.answered(Iteration(1), from, to, is_reached);
        }
        // After the first failure, either worker may be the cause.
        assert_eq!(failures, 2);
    }

    #[test]
    fn a_pair_is_tried_again_more_and_more_rarely() {
        let (mut reach, all) = (Reach::default(), workers(&[0, 1]));
        let mut at = 1;
        let mut waits = Vec::new();
        for _ in 0..10 {
            assert_eq!(probe(&mut reach, at, &all, |_, _| true), 2);
            assert_eq!(reach.members(&all), all);
            reach.fail(Iteration(at), all[0], all[1]);
            reach.fail(Iteration(at), all[1], all[0]);
            assert_eq!(reach.members(&all).len(), 1);
            let due = (at..at + 100_000).find(|at| reach.next(Iteration(*at), &all, |_, _| true).is_some()).unwrap();
            waits.push(due - at);
            at = due;
        }
        assert_eq!(waits, [8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024]);
        probe(&mut reach, at, &all, |_, _| true);
        reach.succeeded(&all);
        reach.fail(Iteration(at), all[0], all[1]);
        assert!(reach.next(Iteration(at + 8), &all, |_, _| true).is_some());
    }
}
