//! The network between workers and coordinator: messages, and their faults.

#![expect(missing_docs, reason = "the names of some fields say what they are")]

use std::collections::BTreeMap;

use ata_types::{CollectionId, Lease, LeaseId, MachineId, WorkerId};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

const DELAY_S: std::ops::Range<f64> = 0.001..0.02;
const STRAGGLER_DELAY_S: std::ops::Range<f64> = 0.001..4.0;

/// The name of a session, which is unique even across crashes of the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VirtualSession {
    /// The number of times that the coordinator had restarted.
    pub restarts: u32,
    /// The number of the session, from 0.
    pub number: u64,
}

/// A message between a worker and the coordinator, usually in a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// A worker's process, of this number and on this machine, asks for a session.
    Hello(u64, MachineId),
    /// A worker is alive.
    Heartbeat(VirtualSession),
    /// A worker has computed a lease, in the time of each task or of the whole batch.
    Done(VirtualSession, Lease, Vec<f64>),
    /// A worker could not compute a lease.
    Failed(VirtualSession, LeaseId),
    /// A worker sends the sum of the gradients of these leases.
    Sum(VirtualSession, CollectionId, Vec<LeaseId>),
    /// A worker could not send a collection.
    GivenUp(VirtualSession, CollectionId),
    /// The answer to [`Message::Hello`] from the process of this number.
    Welcome(u64, VirtualSession),
    /// The answer to [`Message::Heartbeat`].
    Alive(VirtualSession),
    /// The session is over.
    Gone(VirtualSession),
    /// A worker gets a lease, and is asked for the lease's own collection, if there is one.
    Assign(VirtualSession, Lease),
    /// A lease is no longer needed.
    Cancel(VirtualSession, LeaseId),
    /// A worker is asked for the sum of the gradients of these leases. This is sent again with each [`Message::Alive`].
    Collect(VirtualSession, CollectionId, Vec<LeaseId>),
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    ToWorker,
    ToCoordinator,
}

impl Message {
    /// Returns the direction in which the message is sent.
    pub fn direction(&self) -> Direction {
        match self {
            Self::Hello(..)
            | Self::Heartbeat(_)
            | Self::Done(..)
            | Self::Failed(..)
            | Self::Sum(..)
            | Self::GivenUp(..) => Direction::ToCoordinator,
            _ => Direction::ToWorker,
        }
    }
}

/// A time span in which no message of a worker gets through in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Partition {
    pub worker: WorkerId,
    pub direction: Direction,
    pub from_s: f64,
    pub to_s: f64,
}

/// The faults of messages and workers, as probabilities and times. By default there are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// The probability that a message is lost.
    pub loss: f64,
    /// The probability that a message arrives twice.
    pub duplication: f64,
    /// The probability that a message takes seconds, not milliseconds, and later messages overtake it. If this is 0, messages
    /// arrive in order.
    pub straggling: f64,
    /// The probability that a lease or a collection fails.
    pub failure: f64,
    /// The time after which messages are no longer lost, duplicated or late, and nothing fails.
    pub end_s: f64,
    /// The probability that a worker reports no time, or a hundred times the true one.
    pub misreport: f64,
    /// The probability that a worker that starts again does so on another machine.
    pub replacement: f64,
    /// Time spans in which workers are cut off.
    pub partitions: Vec<Partition>,
}

/// The number of messages that suffered each fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounts {
    pub lost: u64,
    /// The number of messages that arrive twice.
    pub duplicated: u64,
    /// The number of messages that arrive before one that was sent earlier.
    pub overtaking: u64,
}

/// A network, and the faults in it.
#[derive(Debug)]
pub struct VirtualNetwork {
    faults: Faults,
    rng: ChaCha8Rng,
    /// The latest arrival of a message to or from each worker so far.
    latest_s: BTreeMap<(WorkerId, Direction), f64>,
    counts: MessageCounts,
}

impl VirtualNetwork {
    /// Creates a network with these faults, whose random numbers are determined by `seed`.
    pub fn new(faults: Faults, seed: u64) -> Self {
        let (rng, latest_s) = (ChaCha8Rng::seed_from_u64(seed), BTreeMap::new());
        Self { faults, rng, latest_s, counts: MessageCounts::default() }
    }

    /// Returns the number of messages that suffered each fault so far.
    pub fn counts(&self) -> MessageCounts {
        self.counts
    }

    /// Returns the times at which a message that is sent now arrives; there is usually one.
    pub(crate) fn arrivals(&mut self, now: f64, worker: WorkerId, direction: Direction) -> Vec<f64> {
        let Self { faults, rng, latest_s, counts } = self;
        let is_cut_off = faults.partitions.iter().any(|partition| {
            (partition.worker, partition.direction) == (worker, direction)
                && (partition.from_s..partition.to_s).contains(&now)
        });
        let is_over = now >= faults.end_s;
        let mut happens = |rate: f64| !is_over && rng.random_bool(rate);
        let copies = match (is_cut_off || happens(faults.loss), happens(faults.duplication)) {
            (true, _) => 0,
            (false, is_duplicated) => 1 + usize::from(is_duplicated),
        };
        counts.lost += u64::from(copies == 0);
        counts.duplicated += u64::from(copies > 1);
        let straggling = if is_over { 0.0 } else { faults.straggling };
        let latest = latest_s.entry((worker, direction)).or_default();
        (0..copies)
            .map(|_| {
                let delay_s = if rng.random_bool(straggling) { STRAGGLER_DELAY_S } else { DELAY_S };
                let mut at = now + rng.random_range(delay_s);
                if straggling > 0.0 {
                    counts.overtaking += u64::from(at < *latest);
                } else {
                    at = at.max(*latest);
                }
                *latest = latest.max(at);
                at
            })
            .collect()
    }

    /// Returns whether a lease or a collection that is done now fails.
    pub(crate) fn fails(&mut self, now: f64) -> bool {
        now < self.faults.end_s && self.rng.random_bool(self.faults.failure)
    }

    /// Returns the factor by which a worker multiplies the times that it reports.
    pub(crate) fn misreport(&mut self) -> f64 {
        if self.rng.random_bool(self.faults.misreport) { [0.0, 100.0][self.rng.random_range(0..2)] } else { 1.0 }
    }

    /// Returns whether a worker that starts does so on another machine.
    pub(crate) fn replaces(&mut self) -> bool {
        self.rng.random_bool(self.faults.replacement)
    }
}
