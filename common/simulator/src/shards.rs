//! An exchange in shards: the workers of a step sum their vectors among each other.

use ata_scheduler::Exchange;
use ata_types::{CollectionId, WorkerId};

/// One worker's sum over its leases.
pub(crate) type Part = (WorkerId, CollectionId);

/// An exchange in shards. It begins when the last of its members has computed, since no shard can be summed before.
#[derive(Debug)]
pub(crate) struct ShardExchange {
    exchange: Exchange,
    members: Vec<Part>,
    /// Those whose members have computed them.
    computed: Vec<Part>,
    began: Option<f64>,
    /// Those that arrived at the coordinator.
    delivered: usize,
}

impl ShardExchange {
    /// An exchange among these members, if they are as many as would exchange vectors in shards.
    pub(crate) fn new(exchange: Exchange, members: Vec<Part>) -> Option<Self> {
        exchange.is_sharded(members.len()).then(|| Self {
            exchange,
            computed: Vec::with_capacity(members.len()),
            members,
            began: None,
            delivered: 0,
        })
    }

    pub(crate) fn contains(&self, part: Part) -> bool {
        self.members.contains(&part)
    }

    pub(crate) fn has_member(&self, worker: WorkerId) -> bool {
        self.members.iter().any(|(member, _)| *member == worker)
    }

    /// A member has computed its part.
    pub(crate) fn compute(&mut self, now: f64, part: Part) {
        self.computed.push(part);
        if self.computed.len() == self.members.len() {
            self.began = Some(now);
        }
    }

    /// When the sums have arrived at the coordinator, unless they already have: each member sends what amounts to one gradient, and
    /// the coordinator gets one.
    pub(crate) fn arrives_at(&self) -> Option<f64> {
        let began = self.began.filter(|_| !self.is_delivered())?;
        Some(began + self.exchange.own_up_s.max(self.exchange.up_s))
    }

    /// The next of the parts that arrive in the sums, which it now does.
    pub(crate) fn deliver(&mut self) -> Option<Part> {
        let part = self.members.get(self.delivered).copied();
        self.delivered += 1;
        part
    }

    /// Whether no part is missing: the loss of a member changes nothing any more.
    pub(crate) fn is_delivered(&self) -> bool {
        self.delivered >= self.members.len()
    }

    /// When all members have the new parameters, if the exchange has begun.
    pub(crate) fn ends_at(&self) -> Option<f64> {
        let workers = self.members.len();
        self.began.map(|began| began + self.exchange.window_s(workers, workers))
    }

    /// The parts that were computed and have not arrived: their workers send them to the coordinator instead.
    pub(crate) fn give_up(self) -> impl Iterator<Item = Part> {
        let arrived = self.members[..self.delivered].to_vec();
        self.computed.into_iter().filter(move |part| !arrived.contains(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ata_scheduler::Topology;

    const EXCHANGE: Exchange =
        Exchange { up_s: 10.0, down_s: 5.0, own_up_s: 10.0, own_down_s: 5.0, topology: Topology::Shards };

    fn parts(workers: u32) -> Vec<Part> {
        (1..=workers).map(|number| (WorkerId::new(number).unwrap(), CollectionId(number.into()))).collect()
    }

    #[test]
    fn it_begins_with_the_last_part_and_ends_with_the_window() {
        let mut shards = ShardExchange::new(EXCHANGE, parts(4)).unwrap();
        for (at, part) in [1.0, 2.0, 4.0, 7.0].into_iter().zip(parts(4)) {
            assert_eq!((shards.arrives_at(), shards.ends_at()), (None, None));
            shards.compute(at, part);
        }
        assert_eq!((shards.arrives_at(), shards.ends_at()), (Some(17.0), Some(7.0 + 13.75)));
        for part in parts(4) {
            assert!(!shards.is_delivered());
            assert_eq!(shards.deliver(), Some(part));
        }
        assert_eq!((shards.arrives_at(), shards.ends_at()), (None, Some(20.75)));
        assert!(shards.is_delivered());
    }

    #[test]
    fn what_was_computed_and_did_not_arrive_is_sent_again() {
        let all = parts(3);
        let mut shards = ShardExchange::new(EXCHANGE, all.clone()).unwrap();
        shards.compute(1.0, all[2]);
        shards.compute(2.0, all[1]);
        assert_eq!(shards.give_up().collect::<Vec<_>>(), [all[2], all[1]]);
        let mut shards = ShardExchange::new(EXCHANGE, all.clone()).unwrap();
        for part in &all {
            shards.compute(1.0, *part);
        }
        shards.deliver();
        assert_eq!(shards.give_up().collect::<Vec<_>>(), all[1..]);
    }

    #[test]
    fn a_star_is_none() {
        assert!(ShardExchange::new(EXCHANGE, parts(1)).is_none());
        assert!(ShardExchange::new(Exchange { topology: Topology::Star, ..EXCHANGE }, parts(4)).is_none());
    }
}
