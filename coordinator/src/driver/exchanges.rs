//! Which workers exchange their vectors in shards.

use std::collections::BTreeSet;

use ata_scheduler::LinkRates;
use ata_types::{CollectionId, ExchangeChoice, Iteration, MAX_SHARDS, WorkerId};

/// An exchange is a star again once in so many iterations, so that the links are measured anew.
const MEASURED_EVERY: u64 = 64;

/// After failures in a row, shards are tried again after 2 iterations, 4, 8, and so on up to 2 to this power.
const MAX_BACKOFF: u32 = 10;

/// Seconds without a chunk after which an exchange has failed: on links of 100 kB/s, one of fifteen that arrive at the same time takes
/// them.
const STALL_TIMEOUT_S: f64 = 20.0;

/// The exchanges in shards of a run.
#[derive(Debug)]
pub(super) struct Exchanges {
    choice: ExchangeChoice,
    /// Pairs of workers that could not reach each other, the lower number first.
    unfit: BTreeSet<(WorkerId, WorkerId)>,
    /// Exchanges that failed since one did not.
    failures: u32,
    /// The first iteration in which the next one may be.
    resumes: Iteration,
    last: Option<Exchange>,
    /// The predicted time of the step's exchange in seconds.
    predicted_s: Option<f64>,
    /// The chunk that the exchange under way waits for, and since when.
    awaited: Option<(u64, f64)>,
}

/// The exchange that began last.
#[derive(Debug)]
struct Exchange {
    /// Its members, in the order of their places, and what each was asked for.
    members: Vec<(WorkerId, CollectionId)>,
    is_over: bool,
}

impl Exchanges {
    pub(super) fn new(choice: ExchangeChoice) -> Self {
        Self {
            choice,
            unfit: BTreeSet::new(),
            failures: 0,
            resumes: Iteration::FIRST,
            last: None,
            predicted_s: None,
            awaited: None,
        }
    }

    /// Whether vectors may be exchanged in shards at all.
    pub(super) fn are_allowed(&self) -> bool {
        self.choice != ExchangeChoice::Star
    }

    /// Whether the vectors of an iteration may be.
    pub(super) fn is_due(&self, iteration: Iteration) -> bool {
        let is_measured = iteration.number().is_multiple_of(MEASURED_EVERY);
        self.are_allowed() && iteration >= self.resumes && !is_measured
    }

    /// Whether these workers exchange their vectors in shards, given what is known of the links.
    pub(super) fn are_worth_it(&self, members: &[WorkerId], links: &LinkRates) -> bool {
        let times = links.times();
        match self.choice {
            ExchangeChoice::Star => false,
            ExchangeChoice::Auto => times.is_sharded(&times.of(members.iter().copied())),
            ExchangeChoice::Shards => (2..=MAX_SHARDS).contains(&members.len()) && !links.are_shards_suspended(),
        }
    }

    /// The workers of these that can all reach each other, as far as is known.
    pub(super) fn fit(&self, mut workers: Vec<WorkerId>) -> Vec<WorkerId> {
        let is_unfit = |one: WorkerId, other: WorkerId| self.unfit.contains(&(one.min(other), one.max(other)));
        loop {
            let unreached = |worker: &WorkerId| workers.iter().filter(|other| is_unfit(*worker, **other)).count();
            let Some(worst) = workers.iter().copied().max_by_key(unreached).filter(|worst| unreached(worst) > 0) else {
                return workers;
            };
            workers.retain(|worker| *worker != worst);
        }
    }

    /// An exchange begins, which is predicted to take so many seconds.
    pub(super) fn begin(&mut self, members: Vec<(WorkerId, CollectionId)>, predicted_s: f64) {
        if self.last.as_ref().is_some_and(|last| !last.is_over) {
            self.failures = 0;
        }
        self.last = Some(Exchange { members, is_over: false });
        self.predicted_s = Some(predicted_s);
        self.awaited = None;
    }

    /// The predicted time of the step's exchange, if there was one.
    pub(super) fn take_prediction(&mut self) -> Option<f64> {
        self.predicted_s.take()
    }

    /// Whether a worker is a member of the last exchange, which is not over.
    pub(super) fn has(&self, worker: WorkerId) -> bool {
        let mut members = self.last.iter().filter(|last| !last.is_over).flat_map(|last| &last.members);
        members.any(|(member, _)| *member == worker)
    }

    /// A member could not work with the one at some place. Returns whether that was not known of this exchange.
    pub(super) fn accuse(&mut self, worker: WorkerId, collection: CollectionId, place: usize) -> bool {
        let Some(last) = self.last.as_ref().filter(|last| !last.is_over) else { return false };
        if !last.members.contains(&(worker, collection)) {
            return false;
        }
        if let Some((other, _)) = last.members.get(place).filter(|(other, _)| *other != worker) {
            self.unfit.insert((worker.min(*other), worker.max(*other)));
        }
        true
    }

    /// Some chunk is awaited now. Returns whether it has been for too long.
    pub(super) fn stalls(&mut self, now_s: f64, chunk: Option<u64>) -> bool {
        let since_s = match (self.awaited, chunk) {
            (Some((before, since_s)), Some(chunk)) if before == chunk => since_s,
            _ => now_s,
        };
        self.awaited = chunk.map(|chunk| (chunk, since_s));
        now_s - since_s > STALL_TIMEOUT_S
    }

    /// The others no longer work with a worker.
    pub(super) fn exclude(&mut self, worker: WorkerId) {
        let others = self.last.iter().flat_map(|last| &last.members).map(|(other, _)| *other);
        let pairs = others.filter(|other| *other != worker).map(|other| (worker.min(other), worker.max(other)));
        self.unfit.extend(pairs.collect::<Vec<_>>());
    }

    /// The last exchange ends early. Returns its members, the first time.
    pub(super) fn end(&mut self) -> Vec<(WorkerId, CollectionId)> {
        let Some(last) = self.last.as_mut().filter(|last| !last.is_over) else { return Vec::new() };
        last.is_over = true;
        last.members.clone()
    }

    /// The last exchange failed in an iteration. Returns its members, the first time.
    pub(super) fn fail(&mut self, iteration: Iteration) -> Vec<(WorkerId, CollectionId)> {
        let members = self.end();
        if !members.is_empty() {
            self.failures = (self.failures + 1).min(MAX_BACKOFF);
            self.resumes = Iteration(iteration.number() + (1 << self.failures));
        }
        members
    }

    /// A worker is gone. If it comes back, others may reach it.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.unfit.retain(|(one, other)| *one != worker && *other != worker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(slot: usize) -> WorkerId {
        WorkerId::from_slot(slot)
    }

    fn begin(exchanges: &mut Exchanges, members: usize) {
        exchanges.begin((0..members).map(|slot| (worker(slot), CollectionId(slot as u64 + 1))).collect(), 1.0);
    }

    /// One that nobody reaches is left out, and not those who say so.
    #[test]
    fn who_cannot_be_reached_is_left_out() {
        let mut exchanges = Exchanges::new(ExchangeChoice::Auto);
        let all: Vec<WorkerId> = (0..4).map(worker).collect();
        assert_eq!(exchanges.fit(all.clone()), all);
        for accuser in [0, 3] {
            begin(&mut exchanges, 4);
            assert!(exchanges.accuse(worker(accuser), CollectionId(accuser as u64 + 1), 2));
            assert!(!exchanges.accuse(worker(accuser), CollectionId(9), 2), "that was another exchange");
        }
        assert_eq!(exchanges.fit(all.clone()), [0, 1, 3].map(worker));
        exchanges.forget(worker(2));
        assert_eq!(exchanges.fit(all.clone()), all);
    }

    #[test]
    fn whoever_brings_an_exchange_to_a_halt_is_left_out() {
        let mut exchanges = Exchanges::new(ExchangeChoice::Auto);
        begin(&mut exchanges, 3);
        let halts = [(0.0, Some(4)), (15.0, Some(4)), (19.0, Some(5)), (38.0, Some(5)), (39.1, Some(5)), (39.2, None)];
        assert_eq!(
            halts.map(|(now_s, chunk)| exchanges.stalls(now_s, chunk)),
            [false, false, false, false, true, false]
        );
        exchanges.exclude(worker(0));
        assert_eq!(exchanges.fit((0..4).map(worker).collect()), [1, 2, 3].map(worker));
    }

    #[test]
    fn failures_make_exchanges_rarer_until_one_succeeds() {
        let mut exchanges = Exchanges::new(ExchangeChoice::Auto);
        let mut fail = |iteration| {
            begin(&mut exchanges, 3);
            assert!(exchanges.has(worker(2)));
            let members = exchanges.fail(Iteration(iteration)).len();
            assert!(!exchanges.has(worker(2)) && exchanges.fail(Iteration(iteration)).is_empty());
            let next = (iteration + 1..iteration + 99).find(|next| exchanges.is_due(Iteration(*next)));
            (members, next.unwrap() - iteration)
        };
        assert_eq!([fail(1), fail(3), fail(7)], [(3, 2), (3, 4), (3, 8)]);
        begin(&mut exchanges, 3);
        begin(&mut exchanges, 3);
        exchanges.fail(Iteration(20));
        assert!(!exchanges.is_due(Iteration(21)) && exchanges.is_due(Iteration(22)));
        begin(&mut exchanges, 3);
        assert_eq!(exchanges.end().len(), 3);
        assert!(exchanges.is_due(Iteration(23)), "a member was late");
        assert!(!exchanges.is_due(Iteration(MEASURED_EVERY)), "the links are measured");
        assert!(!Exchanges::new(ExchangeChoice::Star).is_due(Iteration(1)));
    }
}
