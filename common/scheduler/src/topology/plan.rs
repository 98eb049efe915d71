//! Decides in which iterations vectors are exchanged in shards, and by which workers.

use ata_types::{CHUNK_VALUES, ExchangeChoice, Iteration, MAX_SHARDS, WorkerId};

use super::{LinkRates, LinkTimes, OwnTimes, WorkerPairs};

/// One iteration out of this many is a star even if shards are used, so that the links are measured anew.
const MEASURED_EVERY: u64 = 64;

/// The largest exponent of the backoff: after failures in a row, shards are tried again after 2, 4, 8, … iterations, up to 2 to this
/// power.
const MAX_BACKOFF: u32 = 10;

/// Decides whether shards are used, given the exchanges so far.
#[derive(Debug)]
pub struct ShardPlan {
    choice: ExchangeChoice,
    /// The measured speed of the paths between workers.
    pub pairs: WorkerPairs,
    /// The number of exchanges that failed since the last success.
    failures: u32,
    /// The first iteration that may exchange vectors in shards again.
    resumes: Iteration,
}

impl ShardPlan {
    /// Creates the plan of a run in which no exchange was tried yet.
    pub fn new(choice: ExchangeChoice) -> Self {
        Self { choice, pairs: WorkerPairs::default(), failures: 0, resumes: Iteration::FIRST }
    }

    /// Returns whether vectors may be exchanged in shards at all.
    pub fn is_allowed(&self) -> bool {
        self.choice != ExchangeChoice::Star
    }

    /// Returns whether the vectors of an iteration may be exchanged in shards.
    pub fn is_due(&self, iteration: Iteration) -> bool {
        let is_measured = iteration.number().is_multiple_of(MEASURED_EVERY);
        self.is_allowed() && iteration >= self.resumes && !is_measured
    }

    /// Returns whether these workers exchange their vectors in shards, given what is known about the links.
    pub fn is_worth_it(&self, members: &[WorkerId], links: &LinkRates) -> bool {
        let times = links.times();
        match self.choice {
            ExchangeChoice::Star => false,
            ExchangeChoice::Auto => times.is_sharded(&times.of(members.iter().copied())),
            ExchangeChoice::Shards => (2..=MAX_SHARDS).contains(&members.len()) && !links.are_shards_suspended(),
        }
    }

    /// Returns the timeout in seconds of a chunk sent to another one of these members, if a vector has this many chunks.
    pub fn chunk_timeout_s(&self, members: &[WorkerId], chunks: u64, times: &LinkTimes) -> f64 {
        let others = members.len().saturating_sub(1) as f64;
        let slowest_s = times.of(members.iter().copied()).iter().map(OwnTimes::longest_s).fold(0.0, f64::max);
        let star_s = Some(slowest_s / chunks as f64 * others).filter(|seconds| *seconds > 0.0);
        self.pairs.chunk_timeout_s(members, 4 * CHUNK_VALUES as u64, star_s)
    }

    /// Records that an exchange failed, as is known in iteration `now`.
    pub fn failed(&mut self, now: Iteration) {
        self.failures = (self.failures + 1).min(MAX_BACKOFF);
        self.resumes = Iteration(now.number() + (1 << self.failures));
    }

    /// Records in iteration `now` that the worker to blame for a failure was found, so that the others need not wait.
    pub fn cleared(&mut self, now: Iteration) {
        (self.failures, self.resumes) = (0, now.next());
    }

    /// Records that an exchange succeeded for all of these members.
    pub fn succeeded(&mut self, members: &[WorkerId]) {
        self.failures = 0;
        self.pairs.reach.succeeded(members);
    }
}
