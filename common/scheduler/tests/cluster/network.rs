//! Messages between workers and coordinator, and what becomes of them on the way.

use std::collections::{BTreeMap, BTreeSet};

use ata_types::{Lease, LeaseId, WorkerId};
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

use crate::Counts;
use crate::scenario::Rates;

/// A session's token: no other session, of this coordinator or of one before, has it.
pub(crate) type Token = u64;

/// A gradient.
#[derive(Clone, Debug)]
pub(crate) struct Gradient {
    pub(crate) lease: Lease,
    /// The parameters that it was computed at.
    pub(crate) parameters: u64,
    pub(crate) busy_s: Vec<f64>,
}

#[derive(Clone, Debug)]
pub(crate) enum ToCoordinator {
    Hello { worker: WorkerId, machine: u64, process: u64, fuses: bool },
    Heartbeat { worker: WorkerId, session: Token },
    Done { worker: WorkerId, session: Token, gradient: Gradient },
    Failed { worker: WorkerId, session: Token, lease: LeaseId },
}

impl ToCoordinator {
    fn sender(&self) -> WorkerId {
        let (Self::Hello { worker, .. }
        | Self::Heartbeat { worker, .. }
        | Self::Done { worker, .. }
        | Self::Failed { worker, .. }) = self;
        *worker
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ToWorker {
    Welcome {
        process: u64,
        session: Token,
    },
    Assign {
        session: Token,
        lease: Lease,
        parameters: u64,
    },
    Cancel {
        session: Token,
        lease: LeaseId,
    },
    /// The answer to a heartbeat.
    Alive {
        session: Token,
    },
    /// The session is over.
    Gone {
        session: Token,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum Message {
    ToCoordinator(ToCoordinator),
    ToWorker(WorkerId, ToWorker),
}

/// A worker, and whether messages to it are meant, or those from it.
type Way = (WorkerId, bool);

pub(crate) struct Network {
    rng: ChaCha8Rng,
    pub(crate) rates: Rates,
    /// Ways that are cut, and how often: cuts may overlap.
    cut: BTreeMap<Way, u32>,
    /// When the last message of each way arrives that was sent so far.
    last_s: BTreeMap<Way, f64>,
}

impl Network {
    pub(crate) fn new(rng: ChaCha8Rng, rates: Rates) -> Self {
        Self { rng, rates, cut: BTreeMap::new(), last_s: BTreeMap::new() }
    }

    pub(crate) fn cut(&mut self, ways: &BTreeSet<Way>) {
        for way in ways {
            *self.cut.entry(*way).or_default() += 1;
        }
    }

    pub(crate) fn mend(&mut self, ways: &BTreeSet<Way>) {
        for way in ways {
            *self.cut.entry(*way).or_default() -= 1;
        }
    }

    /// When a message that is sent now arrives: once, as a rule.
    pub(crate) fn arrivals(&mut self, now_s: f64, message: &Message, counts: &mut Counts) -> Vec<f64> {
        let way = match message {
            Message::ToCoordinator(message) => (message.sender(), false),
            Message::ToWorker(worker, _) => (*worker, true),
        };
        let is_cut = self.cut.get(&way).is_some_and(|cuts| *cuts > 0);
        if is_cut || self.rng.random_bool(self.rates.loss) {
            counts.lost += 1;
            return Vec::new();
        }
        let copies = 1 + usize::from(self.rng.random_bool(self.rates.duplicate));
        counts.duplicated += copies as u64 - 1;
        let latest = self.last_s.entry(way).or_default();
        let mut arrival = || {
            let is_straggler = self.rng.random_bool(self.rates.straggle);
            let mut at_s = now_s + self.rng.random_range(0.001..if is_straggler { 4.0 } else { 0.02 });
            if self.rates.straggle > 0.0 {
                counts.overtaken += u64::from(at_s < *latest);
            } else {
                at_s = at_s.max(*latest);
            }
            *latest = latest.max(at_s);
            at_s
        };
        (0..copies).map(|_| arrival()).collect()
    }
}
