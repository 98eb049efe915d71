//! Checks of collections: each gradient that a worker keeps is in exactly one of them, until it is delivered or lost.

use std::collections::{BTreeMap, BTreeSet};

use ata_types::{CollectionId, Lease, LeaseId, WorkerId};

use crate::faults::Counts;

#[derive(Default)]
pub(crate) struct Collections {
    live: BTreeMap<CollectionId, (WorkerId, Vec<Lease>)>,
    delivered: BTreeSet<CollectionId>,
    /// The collections of the step that was ordered last, unless it was withdrawn.
    ordered: Option<Vec<CollectionId>>,
    pub(crate) counts: Counts,
}

impl Collections {
    pub(crate) fn ask(&mut self, worker: WorkerId, collection: CollectionId, leases: &[Lease]) {
        assert!(!self.delivered.contains(&collection), "what was delivered is asked for again");
        if let Some((holder, before)) = self.live.remove(&collection) {
            assert!(
                holder == worker && leases.len() < before.len() && leases.iter().all(|lease| before.contains(lease))
            );
            self.counts.add("collections that shrank", 1);
        }
        let is_asked = |(_, others): &(WorkerId, Vec<Lease>)| others.iter().any(|lease| leases.contains(lease));
        assert!(!self.live.values().any(is_asked), "a gradient is collected twice");
        if !leases.is_empty() {
            self.live.insert(collection, (worker, leases.to_vec()));
        }
    }

    pub(crate) fn deliver(&mut self, worker: WorkerId, collection: CollectionId) -> &[Lease] {
        assert!(self.delivered.insert(collection), "delivered twice");
        let (holder, leases) = &self.live[&collection];
        assert_eq!(*holder, worker);
        leases
    }

    /// Returns a delivered collection of one lease, and its worker.
    pub(crate) fn delivered(&self, collection: CollectionId) -> (WorkerId, Lease) {
        assert!(self.delivered.contains(&collection), "only what was delivered is compared");
        let (worker, leases) = &self.live[&collection];
        assert_eq!(leases.len(), 1);
        (*worker, leases[0])
    }

    pub(crate) fn give_up(&mut self, collection: CollectionId) {
        assert!(!self.delivered.contains(&collection) && self.live.remove(&collection).is_some());
        self.counts.add("collections that workers gave up", 1);
    }

    /// Drops what a worker that is gone has not delivered.
    pub(crate) fn lose(&mut self, worker: WorkerId) {
        let Self { live, delivered, .. } = self;
        live.retain(|collection, (holder, _)| *holder != worker || delivered.contains(collection));
    }

    pub(crate) fn is_awaited(&self, collection: CollectionId) -> bool {
        self.live.contains_key(&collection) && !self.delivered.contains(&collection)
    }

    pub(crate) fn end(&mut self, collection: CollectionId) {
        self.live.remove(&collection);
        self.delivered.remove(&collection);
    }

    /// Drops a lost gradient that a worker kept; returns whether a step that waits for it is withdrawn.
    pub(crate) fn lose_gradient(&mut self, lease: Lease) -> bool {
        let is_live = self.live.values().any(|(_, leases)| leases.contains(&lease));
        assert!(!is_live, "what is in a live collection is not lost");
        if lease.own.is_some() {
            self.counts.add("gradients that were lost on their way", 1);
            return false;
        }
        self.counts.add("gradients that were lost with their worker", 1);
        let was_ordered = self.ordered.take().is_some();
        self.counts.add("steps that were taken back", u64::from(was_ordered));
        was_ordered
    }

    /// Checks that a step is ordered with exactly the leases of these collections.
    pub(crate) fn order(&mut self, collections: &[CollectionId], collected: &[(WorkerId, Lease)]) {
        assert!(self.ordered.is_none(), "one step per iteration, unless it is taken back");
        let leases = |id: &CollectionId| {
            let (worker, leases) = &self.live[id];
            leases.iter().map(|lease| (lease.id, *worker)).collect::<Vec<_>>()
        };
        let mut asked: Vec<(LeaseId, WorkerId)> = collections.iter().flat_map(leases).collect();
        let mut kept: Vec<(LeaseId, WorkerId)> = collected.iter().map(|(worker, lease)| (lease.id, *worker)).collect();
        asked.sort_unstable();
        kept.sort_unstable();
        assert_eq!(asked, kept, "each gradient that was kept is in one collection");
        self.ordered = Some(collections.to_vec());
    }

    pub(crate) fn commit(&mut self) {
        let ordered = self.ordered.take().expect("a step that was taken back is not committed");
        assert!(ordered.iter().all(|collection| self.delivered.contains(collection)), "not all were delivered");
        for collection in ordered {
            self.end(collection);
        }
    }
}
