//! The kinds of faults, and their sequence. The same seed gives the same sequence.

use std::time::Duration;

use ata_fault_proxy::Condition;
use clap::ValueEnum;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use super::cluster::duration;

/// The range of the time between a fault's end and the next fault, in seconds: from less than an iteration to many.
const GAP_S: (f64, f64) = (0.1, 2.0);

/// The range of the duration of a transfer of the parameters over a slow link, in seconds.
const SLOW_TRANSFER_S: (f64, f64) = (0.1, 1.0);

/// Checkpoint intervals of coordinators: each step; several steps, so that some are lost; a time; and the default.
const CADENCES: [&str; 4] = ["1", "5", "2s", "60s"];

/// The range of the latency of a slow link: from another city to another continent.
const SLOW_LATENCY_MS: (u64, u64) = (10, 150);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FaultKind {
    /// The coordinator is killed (SIGKILL), and a new one resumes the run.
    KillCoordinator,
    /// The coordinator is killed, and so are new ones while they start, until one is allowed to run.
    KillStart,
    /// Processes that end the run are killed before they finish; then the run is extended.
    KillEnd,
    /// The coordinator is asked to stop (SIGTERM), and a new one resumes the run.
    EndCoordinator,
    /// The coordinator is stopped (SIGSTOP) for longer than the heartbeat timeout.
    StopCoordinator,
    /// No file of the coordinator can grow, as on a full disk: it gives up, and a new one resumes when there is room.
    FillDisk,
    /// A worker is killed and restarted.
    KillWorker,
    /// A worker is stopped for longer than the heartbeat timeout.
    StopWorker,
    /// A worker's connections break.
    CutLink,
    /// A worker's connections transfer nothing for longer than the heartbeat timeout, as with a pulled cable.
    StallLink,
    /// A worker's connections are slow for a while.
    SlowLink,
}

impl FaultKind {
    /// Returns the name of the kind, as accepted by `--only`.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// The delay after the end of the previous fault.
    pub(crate) after: Duration,
    /// The affected worker, unless the coordinator is affected.
    pub(crate) worker: u32,
    /// The duration of a fault that is not instantaneous.
    pub(crate) lasts: Duration,
    pub(crate) condition: Condition,
    /// Whether a fault of the coordinator is injected during an optimizer step.
    pub(crate) is_aimed: bool,
    /// The times at which starting or ending processes are killed, as fractions of their usual duration.
    pub(crate) moments: [f64; 2],
    /// The checkpoint interval of the next coordinator, unless it replaces one that was killed.
    pub(crate) cadence: String,
}

/// An endless sequence of faults, in rounds that each contain every kind once.
pub(crate) struct Schedule {
    kinds: Vec<FaultKind>,
    round: Vec<FaultKind>,
    target: Target,
    rng: ChaCha8Rng,
}

/// The cluster that the faults affect.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) workers: u32,
    pub(crate) heartbeat_timeout: Duration,
    pub(crate) parameters_bytes: u64,
    /// The checkpoint interval of every coordinator; `None` draws one for each.
    pub(crate) cadence: Option<String>,
}

impl Schedule {
    /// Creates a schedule of faults of these kinds; an empty slice stands for all.
    pub(crate) fn new(kinds: &[FaultKind], target: Target, seed: u64) -> Self {
        let mut kinds = if kinds.is_empty() { FaultKind::value_variants().to_vec() } else { kinds.to_vec() };
        kinds.sort_unstable();
        kinds.dedup();
        Self { kinds, round: Vec::new(), target, rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    pub(crate) fn kinds(&self) -> &[FaultKind] {
        &self.kinds
    }

    fn kind(&mut self) -> FaultKind {
        if self.round.is_empty() {
            self.round.clone_from(&self.kinds);
            self.round.shuffle(&mut self.rng);
        }
        self.round.pop().expect("there is a kind at least")
    }

    fn slow_bytes_per_s(&mut self) -> u32 {
        let transfer_s = self.rng.random_range(SLOW_TRANSFER_S.0..SLOW_TRANSFER_S.1);
        (self.target.parameters_bytes as f64 / transfer_s).clamp(1.0, f64::from(u32::MAX)) as u32
    }

    /// Draws a time between two multiples of the heartbeat timeout.
    fn timeouts(&mut self, from: f64, to: f64) -> Duration {
        duration(self.target.heartbeat_timeout.as_secs_f64() * self.rng.random_range(from..to))
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
            _ => Duration::ZERO,
        };
        let condition = match kind {
            FaultKind::StallLink => Condition { stalled: true, ..Condition::default() },
            FaultKind::SlowLink => Condition {
                latency: Duration::from_millis(self.rng.random_range(SLOW_LATENCY_MS.0..=SLOW_LATENCY_MS.1)),
                bytes_per_s: Some(self.slow_bytes_per_s()),
                ..Condition::default()
            },
            _ => Condition::default(),
        };
        let after = duration(self.rng.random_range(GAP_S.0..GAP_S.1));
        let cadence = CADENCES[self.rng.random_range(0..CADENCES.len())];
        Some(Fault {
            kind,
            after,
            worker: self.rng.random_range(1..=self.target.workers),
            lasts,
            condition,
            is_aimed: self.rng.random_bool(0.5),
            moments: [self.rng.random(), self.rng.random()],
            cadence: self.target.cadence.clone().unwrap_or_else(|| cadence.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(2);

    fn faults(kinds: &[FaultKind], seed: u64, count: usize) -> Vec<Fault> {
        let target =
            Target { workers: 4, heartbeat_timeout: TIMEOUT, parameters_bytes: 20_000_000, cadence: Some("7".into()) };
        Schedule::new(kinds, target, seed).take(count).collect()
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

    /// Faults that stop a process or a link last longer than the heartbeat timeout.
    #[test]
    fn faults_last_long_enough() {
        for fault in faults(&[FaultKind::StopCoordinator, FaultKind::StopWorker, FaultKind::StallLink], 5, 300) {
            assert!(fault.lasts > TIMEOUT && fault.lasts < 5 * TIMEOUT, "{fault:?}");
            assert_eq!(fault.condition.stalled, fault.kind == FaultKind::StallLink);
        }
    }
}
