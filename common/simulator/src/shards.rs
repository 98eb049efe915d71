//! An exchange in shards, in which the workers of a step sum their vectors among each other.

use ata_scheduler::{LinkTimes, Observed};
use ata_types::{CollectionId, WorkerId};

/// One worker's sum over its leases.
pub(crate) type VectorPart = (WorkerId, CollectionId);

/// An exchange in shards. It begins when the last of its members has computed, since no stripe can be summed before.
#[derive(Debug)]
pub(crate) struct ShardExchange {
    /// The time that the engine predicted for the whole exchange.
    predicted_s: f64,
    /// The time that the sums actually take.
    sums_s: f64,
    /// The time that the whole exchange actually takes.
    window_s: f64,
    members: Vec<VectorPart>,
    /// The parts that their members have computed.
    computed: Vec<VectorPart>,
    began: Option<f64>,
    /// The number of parts that arrived at the coordinator.
    delivered: usize,
}

impl ShardExchange {
    /// Creates an exchange among these members, if the engine assumes one for them, given the links it knows. The time of the
    /// exchange follows from the actual links.
    pub(crate) fn new(known: &LinkTimes, links: &LinkTimes, members: Vec<VectorPart>) -> Option<Self> {
        let workers = || members.iter().map(|(worker, _)| *worker);
        let (own, known_own) = (links.of(workers()), known.of(workers()));
        known.is_sharded(&known_own).then(|| Self {
            predicted_s: known.shards_s(&known_own),
            sums_s: own.iter().map(|own| own.up_s).fold(links.up_s, f64::max),
            window_s: links.shards_s(&own),
            computed: Vec::with_capacity(members.len()),
            members,
            began: None,
            delivered: 0,
        })
    }

    pub(crate) fn contains(&self, part: VectorPart) -> bool {
        self.members.contains(&part)
    }

    pub(crate) fn has_member(&self, worker: WorkerId) -> bool {
        self.members.iter().any(|(member, _)| *member == worker)
    }

    pub(crate) fn compute(&mut self, now: f64, part: VectorPart) {
        self.computed.push(part);
        if self.computed.len() == self.members.len() {
            self.began = Some(now);
        }
    }

    /// Returns the time at which the sums arrive at the coordinator, unless they already have: each member sends the equivalent of one
    /// gradient, and the coordinator receives one.
    pub(crate) fn arrives_at(&self) -> Option<f64> {
        let began = self.began.filter(|_| !self.is_delivered())?;
        Some(began + self.sums_s)
    }

    /// Delivers the next of the parts that arrive in the sums.
    pub(crate) fn deliver(&mut self) -> Option<VectorPart> {
        let part = self.members.get(self.delivered).copied();
        self.delivered += 1;
        part
    }

    /// Returns whether no part is missing, so that the loss of a member has no effect any more.
    pub(crate) fn is_delivered(&self) -> bool {
        self.delivered >= self.members.len()
    }

    /// Returns what is observed about the exchange once all parts have arrived.
    pub(crate) fn observe(&self, at: f64) -> Option<Observed> {
        let predicted_s = self.predicted_s;
        self.began.map(|began| Observed::Shards { seconds: at - began, predicted_s })
    }

    /// Returns the time at which all members have the new parameters, if the exchange has begun.
    pub(crate) fn ends_at(&self) -> Option<f64> {
        self.began.map(|began| began + self.window_s)
    }

    /// Returns the parts that were computed and have not arrived: their workers send them to the coordinator instead.
    pub(crate) fn give_up(self) -> impl Iterator<Item = VectorPart> {
        let arrived = self.members[..self.delivered].to_vec();
        self.computed.into_iter().filter(move |part| !arrived.contains(part))
    }
}
