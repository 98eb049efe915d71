//! The step that the engine ordered, until it is taken, and the leases that no step has taken.

use std::collections::{BTreeSet, VecDeque};

use ata_types::{CollectionId, Iteration, Lease, WorkerId};

/// An optimizer step that waits to be taken.
pub(crate) struct Order {
    /// The number of the order: an order that was replaced must not be carried out.
    pub(crate) number: u64,
    pub(crate) iteration: Iteration,
    pub(crate) lr_factor: f64,
    pub(crate) collections: Vec<CollectionId>,
    /// The leases in the collections.
    pub(crate) collected: Vec<(WorkerId, Lease)>,
}

/// The orders of a run, of which the last may be open.
#[derive(Default)]
pub(crate) struct Orders {
    placed: u64,
    open: Option<Order>,
    /// The collections that arrived and have not been in a step.
    delivered: BTreeSet<CollectionId>,
}

impl Orders {
    /// Places an order for a step. This replaces an open order.
    pub(crate) fn place(
        &mut self,
        iteration: Iteration,
        lr_factor: f64,
        collections: Vec<CollectionId>,
        collected: Vec<(WorkerId, Lease)>,
    ) {
        self.placed += 1;
        self.open = Some(Order { number: self.placed, iteration, lr_factor, collections, collected });
    }

    /// Records that a collection arrived. Returns whether the open order waited for it.
    pub(crate) fn deliver(&mut self, collection: CollectionId) -> bool {
        self.delivered.insert(collection);
        self.open.as_ref().is_some_and(|order| order.collections.contains(&collection))
    }

    /// Returns the open order, if everything that it waits for has arrived.
    pub(crate) fn complete(&self) -> Option<&Order> {
        let is_delivered = |order: &&Order| order.collections.iter().all(|id| self.delivered.contains(id));
        self.open.as_ref().filter(is_delivered)
    }

    /// Handles a result that enters no step: an order that includes it will not be carried out.
    pub(crate) fn lose(&mut self, lease: &Lease) {
        if let Some(own) = &lease.own {
            self.delivered.remove(own);
        }
        self.open.take_if(|order| order.collected.iter().any(|(_, collected)| collected == lease));
    }

    pub(crate) fn take(&mut self, number: u64) -> Option<Order> {
        let order = self.open.take_if(|order| order.number == number)?;
        for collection in &order.collections {
            self.delivered.remove(collection);
        }
        Some(order)
    }
}

/// The number of outstanding leases of each iteration.
#[derive(Default)]
pub(crate) struct Outstanding {
    /// The numbers by iteration, ascending.
    leases: VecDeque<(Iteration, u64)>,
}

impl Outstanding {
    pub(crate) fn assigned(&mut self, iteration: Iteration) {
        let at = self.leases.partition_point(|(other, _)| *other < iteration);
        match self.leases.get_mut(at) {
            Some((other, count)) if *other == iteration => *count += 1,
            _ => self.leases.insert(at, (iteration, 1)),
        }
    }

    pub(crate) fn ended(&mut self, iteration: Iteration) {
        let at = self.leases.partition_point(|(other, _)| *other < iteration);
        self.leases[at].1 -= 1;
        while self.leases.len() > 1 && self.leases[0].1 == 0 {
            self.leases.pop_front();
        }
    }

    /// Returns the earliest iteration whose parameters a lease is computed with; `None` if no lease is assigned.
    pub(crate) fn oldest_iteration(&self) -> Option<Iteration> {
        self.leases.iter().find(|(_, count)| *count > 0).map(|(iteration, _)| *iteration)
    }
}
