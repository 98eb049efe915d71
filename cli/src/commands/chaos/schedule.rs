//! Which faults come when. All is drawn from the seed: the same seed gives the same schedule.

use std::time::Duration;

use ata_link::Condition;
use ata_wire::duration;
use clap::ValueEnum;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::args::FaultKind;

/// Time between the end of a fault and the next one, in seconds: from less than an iteration to many.
const GAP_S: (f64, f64) = (0.1, 2.0);

/// Bytes per second of a slow link: a transfer of the built-in models takes up to a second.
const SLOW_BYTES_PER_S: (u32, u32) = (1_000_000, 10_000_000);

/// Latency of a slow link: from another city to another continent.
const SLOW_LATENCY_MS: (u64, u64) = (10, 150);

/// A fault.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    /// Time since the fault before it was over.
    pub(super) after: Duration,
    /// The worker that it hits, if it hits one.
    pub(super) worker: u32,
    /// How long it lasts, if it is not over at once.
    pub(super) lasts: Duration,
    /// Of the worker's link.
    pub(super) condition: Condition,
}

/// The faults, without end. They come in rounds: in each, every kind comes once.
pub(super) struct Schedule {
    kinds: Vec<FaultKind>,
    /// What is left of the round.
    round: Vec<FaultKind>,
    workers: u32,
    heartbeat_timeout: Duration,
    rng: ChaCha8Rng,
}

impl Schedule {
    /// Draws faults of these kinds; none stands for all.
    pub(super) fn new(kinds: &[FaultKind], workers: u32, heartbeat_timeout: Duration, seed: u64) -> Self {
        let mut kinds = if kinds.is_empty() { FaultKind::value_variants().to_vec() } else { kinds.to_vec() };
        kinds.sort_unstable();
        kinds.dedup();
        Self { kinds, round: Vec::new(), workers, heartbeat_timeout, rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// The kinds that are drawn.
    pub(super) fn kinds(&self) -> &[FaultKind] {
        &self.kinds
    }

    fn kind(&mut self) -> FaultKind {
        if self.round.is_empty() {
            self.round.clone_from(&self.kinds);
            self.round.shuffle(&mut self.rng);
        }
        self.round.pop().expect("there is a kind at least")
    }

    /// A time as a multiple of the heartbeat timeout.
    fn timeouts(&mut self, from: f64, to: f64) -> Duration {
        duration(self.heartbeat_timeout.as_secs_f64() * self.rng.random_range(from..to))
    }
}

impl Iterator for Schedule {
    type Item = Fault;

    fn next(&mut self) -> Option<Fault> {
        let kind = self.kind();
        let lasts = match kind {
            FaultKind::StopCoordinator => self.timeouts(1.5, 5.0),
            FaultKind::StopWorker | FaultKind::StallLink => self.timeouts(1.5, 2.5),
            FaultKind::SlowLink => self.timeouts(1.0, 2.0),
            FaultKind::KillCoordinator | FaultKind::FillDisk | FaultKind::KillWorker | FaultKind::CutLink => {
                Duration::ZERO
            }
        };
        let condition = match kind {
            FaultKind::StallLink => Condition { stalled: true, ..Condition::default() },
            FaultKind::SlowLink => Condition {
                latency: Duration::from_millis(self.rng.random_range(SLOW_LATENCY_MS.0..=SLOW_LATENCY_MS.1)),
                bytes_per_s: Some(self.rng.random_range(SLOW_BYTES_PER_S.0..=SLOW_BYTES_PER_S.1)),
                stalled: false,
            },
            _ => Condition::default(),
        };
        let after = duration(self.rng.random_range(GAP_S.0..GAP_S.1));
        Some(Fault { kind, after, worker: self.rng.random_range(1..=self.workers), lasts, condition })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(2);

    fn faults(kinds: &[FaultKind], seed: u64, count: usize) -> Vec<Fault> {
        Schedule::new(kinds, 4, TIMEOUT, seed).take(count).collect()
    }

    #[test]
    fn a_seed_gives_one_schedule() {
        assert_eq!(faults(&[], 7, 100), faults(&[], 7, 100));
        assert_ne!(faults(&[], 7, 100), faults(&[], 8, 100));
    }

    #[test]
    fn every_round_has_every_kind() {
        let all: BTreeSet<FaultKind> = FaultKind::value_variants().iter().copied().collect();
        for round in faults(&[], 3, 10 * all.len()).chunks(all.len()) {
            assert_eq!(round.iter().map(|fault| fault.kind).collect::<BTreeSet<_>>(), all);
        }
        let only = [FaultKind::KillWorker, FaultKind::CutLink, FaultKind::KillWorker];
        let chosen = faults(&only, 3, 20);
        assert_eq!(chosen.iter().filter(|fault| fault.kind == FaultKind::KillWorker).count(), 10);
        let hit: BTreeSet<u32> = chosen.iter().map(|fault| fault.worker).collect();
        assert_eq!(hit, (1..=4).collect());
    }

    /// What is stopped or stalled is so for longer than the heartbeat timeout, or the fault would go unnoticed.
    #[test]
    fn faults_last_long_enough() {
        for fault in faults(&[FaultKind::StopCoordinator, FaultKind::StopWorker, FaultKind::StallLink], 5, 300) {
            assert!(fault.lasts > TIMEOUT && fault.lasts < 5 * TIMEOUT, "{fault:?}");
            assert_eq!(fault.condition.stalled, fault.kind == FaultKind::StallLink);
        }
    }
}
