//! The life cycle of vectors, from the engine's requests to the step.
//!
//! The engine asks for collections: sums of the gradients of some leases of a worker. Usually a collection is one vector. It is split into
//! several if it includes tasks of a worker that was lost while it sent its own vector, or more ranges of tasks than a request may name. A
//! vector goes through the states of [`vector::VectorState`]:
//!
//! ```text
//!          header       reports, units,            last chunk           step
//! Asked ──────────▶ Announced ──────────▶ Open ──────────▶ Whole ──────────▶ gone
//!                       │   room      ┌▶ Filling ────────▶ Held ─────────────▲
//!                       └─────────────┘
//! ```
//! Most vectors pass through a gate to the training thread, chunk by chunk. A vector of a single lease that is used whole is assembled
//! first. Several workers may exchange their vectors in shards: each of them sends some chunks of the total, through one shared gate.
//!
//! If a vector ends early, the chunks that have passed its gate count: other workers send the sum of its tasks from the next chunk on.
//!
//! # Methods
//! - The engine asks: `ask`, `own`, `lease_ended`; it orders a step: `take_whole`, `ordered`, `stepped`.
//! - Workers answer: `check`, `announce`, `arrived`, `failed`. `admit` says which vectors may be sent now.
//! - Workers leave: `left`, `lost`. Time passes: `late`, `overdue`, `give_way`.
//!
//! # Layout
//! - here: [`Reduction`], the requests for vectors, and the order of a step; `vector`: the states of a vector
//! - `admission`: checks headers and admits vectors; `room`: room for vectors that are used whole; `gate`: passes chunks on
//! - `ending`: ends vectors that arrive, fail, or lose their worker; vectors that are not worth waiting for
//! - `exchange`: the sum of exchanged vectors; `exchanges`: the progress of exchanges

mod admission;
mod ending;
mod exchange;
pub(crate) mod exchanges;
mod gate;
pub(crate) mod room;
mod vector;

pub(crate) use admission::AdmittedVector;
pub(crate) use gate::Gate;
pub(crate) use vector::{Announcement, Sink, VectorReply};

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use ata_types::{CollectionId, Iteration, Lease, LeaseId, TaskOutcome, TaskRange, VectorId, WorkerId};
use ata_wire::limits::MAX_RANGES;
use ata_wire::{Stripe, VectorRequest};

use crate::training::{HeldSum, OrderedVector};
use exchange::SharedSum;
use room::Room;
use vector::{Vector, VectorState};

/// The vectors of the current iteration, and those of asynchronous leases.
#[derive(Debug)]
pub(crate) struct Reduction {
    vectors: BTreeMap<VectorId, Vector>,
    /// The sum of the vectors that are exchanged in shards.
    shared: Option<SharedSum>,
    /// The computed leases that have not ended.
    pub(crate) computed: HashSet<LeaseId>,
    asked: u64,
    pub(crate) chunks: u64,
    /// Whether vectors are kept separate until all have arrived. If not, the chunks that have arrived from a lost worker count.
    pub(crate) are_separate: bool,
    /// The tasks of vectors that ended early, and the first chunk of their sum that did not pass. Later entries override earlier ones.
    prefixes: Vec<(TaskRange, u64)>,
    room: Room,
    /// Whether the step is taken already, so that no more vectors are needed.
    pub(crate) is_taken: bool,
    /// The time at which the iteration was first checked, in seconds.
    began_s: Option<f64>,
}

impl Reduction {
    /// Creates a reduction of vectors of `chunks` chunks, of which `places` that are used whole may be assembled at a time.
    pub(crate) fn new(chunks: u64, are_separate: bool, places: usize) -> Self {
        Self {
            vectors: BTreeMap::new(),
            shared: None,
            computed: HashSet::new(),
            asked: 0,
            chunks,
            are_separate,
            prefixes: Vec::new(),
            room: Room::new(places),
            is_taken: false,
            began_s: None,
        }
    }

    /// Adds the vectors of a collection, replacing earlier vectors of the same collection. Returns the vectors to withdraw and to request.
    pub(crate) fn ask(
        &mut self,
        iteration: Iteration,
        asked: &ata_scheduler::Collection,
    ) -> (Vec<VectorId>, Vec<VectorRequest>) {
        let ata_scheduler::Collection { worker, id, leases } = asked;
        // Admitted vectors that are still wanted stay.
        let stays = |vector: &Vector| !vector.is_outside() && vector.leases.iter().all(|lease| leases.contains(lease));
        let of_it = self.vectors.values().filter(|vector| vector.part_of == *id && stays(vector));
        let kept: HashSet<LeaseId> = of_it.flat_map(|vector| &vector.leases).map(|lease| lease.id).collect();
        let withdrawn = self.end(|vector| vector.part_of == *id && !stays(vector));
        let mut requests = Vec::new();
        let mut by_first: BTreeMap<u64, Vec<Lease>> = BTreeMap::new();
        for lease in leases.iter().filter(|lease| !kept.contains(&lease.id)) {
            by_first.entry(self.first_chunk(lease.tasks)).or_default().push(*lease);
        }
        for (first_chunk, leases) in by_first {
            for leases in in_vectors(leases) {
                let request = self.add(*worker, *id, iteration, leases, first_chunk);
                requests.extend(Some(request).filter(|_| first_chunk < self.chunks));
            }
        }
        (withdrawn, requests)
    }

    /// Adds the vector that is requested together with a lease, if there is one. Returns its id.
    pub(crate) fn own(&mut self, worker: WorkerId, lease: &Lease) -> Option<VectorId> {
        lease.own.map(|collection| self.add(worker, collection, lease.iteration, vec![*lease], 0).id)
    }

    /// Records that a lease ended. If it was not applied, its own vector is useless. Returns the vectors to withdraw from its worker.
    pub(crate) fn lease_ended(&mut self, lease: &Lease, outcome: TaskOutcome) -> Vec<VectorId> {
        self.computed.remove(&lease.id);
        let Some(own) = lease.own.filter(|_| outcome != TaskOutcome::Applied) else { return Vec::new() };
        let is_here = self.vectors.values().any(|vector| vector.part_of == own && vector.has_arrived());
        let ended = self.end(|vector| vector.part_of == own);
        if is_here { Vec::new() } else { ended }
    }

    fn add(
        &mut self,
        worker: WorkerId,
        part_of: CollectionId,
        iteration: Iteration,
        leases: Vec<Lease>,
        first_chunk: u64,
    ) -> VectorRequest {
        let id = self.next_id();
        let tasks = leases.iter().map(|lease| lease.tasks).collect();
        let request = VectorRequest { id, iteration, tasks, first_chunk, shards: None };
        let vector = Vector {
            worker,
            part_of,
            request: request.clone(),
            leases,
            progress: None,
            is_repeated: false,
            is_taken: false,
            state: if first_chunk == self.chunks { VectorState::Whole } else { VectorState::Asked },
        };
        self.vectors.insert(id, vector);
        request
    }

    fn next_id(&mut self) -> VectorId {
        self.asked += 1;
        VectorId(self.asked)
    }

    fn first_chunk(&self, tasks: TaskRange) -> u64 {
        if self.is_taken {
            return self.chunks;
        }
        let mut prefixes = self.prefixes.iter().rev();
        prefixes.find(|(prefix, _)| prefix.overlaps(tasks)).map_or(0, |(_, first_chunk)| *first_chunk)
    }

    pub(crate) fn has(&self, collection: CollectionId) -> bool {
        self.vectors.values().any(|vector| vector.part_of == collection)
    }

    /// Returns the workers whose vectors make a step and, for each that exchanges its vector in shards, the chunks that it sends.
    pub(crate) fn contributors(&self, collections: &[CollectionId]) -> BTreeMap<WorkerId, Option<Stripe>> {
        let mut contributors = BTreeMap::new();
        for vector in self.vectors.values().filter(|vector| collections.contains(&vector.part_of)) {
            let stripe: &mut Option<Stripe> = contributors.entry(vector.worker).or_default();
            *stripe = stripe.or(vector.stripe());
        }
        contributors
    }

    /// Returns the vectors of these collections that a step uses whole. Each is returned only the first time that it is ordered.
    pub(crate) fn take_whole(&mut self, collections: &[CollectionId]) -> Vec<Arc<HeldSum>> {
        let of_step = self.vectors.values_mut().filter(|vector| collections.contains(&vector.part_of));
        let take = |vector: &mut Vector| {
            let VectorState::Held(sum) = &vector.state else { return None };
            (!std::mem::replace(&mut vector.is_taken, true)).then(|| sum.clone())
        };
        of_step.filter_map(take).collect()
    }

    /// Returns a vector that was delivered whole, for a comparison, and its lease.
    pub(crate) fn whole(&self, collection: CollectionId) -> Option<(LeaseId, Arc<HeldSum>)> {
        let vector = self.vectors.values().find(|vector| vector.part_of == collection)?;
        let VectorState::Held(sum) = &vector.state else { return None };
        Some((vector.leases.first()?.id, sum.clone()))
    }

    /// Returns the vectors of these collections that pass a gate, for the order of a step.
    pub(crate) fn ordered(&self, collections: &[CollectionId]) -> Vec<OrderedVector> {
        let of_step = |vector: &Vector| collections.contains(&vector.part_of) && !vector.is_own();
        let (shared, apart): (Vec<_>, Vec<_>) =
            self.vectors.iter().filter(|(_, vector)| of_step(vector)).partition(|(id, _)| self.is_shared(**id));
        let apart = apart.into_iter().map(|(id, vector)| (*id, vector.request.first_chunk));
        let sum = self.shared.as_ref().filter(|_| !shared.is_empty()).map(|sum| (sum.id, 0));
        apart.chain(sum).map(|(id, first_chunk)| OrderedVector { id, first_chunk }).collect()
    }

    /// Records that the step was committed. Vectors of asynchronous leases that are not part of it remain.
    pub(crate) fn stepped(&mut self) {
        (self.is_taken, self.began_s) = (false, None);
        self.shared = None;
        self.vectors.retain(|_, vector| vector.is_own() && !vector.is_taken);
        self.prefixes.clear();
    }
}

/// Splits leases into vectors that are within the limits of a request.
fn in_vectors(mut leases: Vec<Lease>) -> Vec<Vec<Lease>> {
    leases.sort_by_key(|lease| lease.tasks.first);
    let mut ranges = 1;
    let fits = |lease: &Lease, next: &Lease| {
        ranges += usize::from(lease.tasks.end() < next.tasks.first);
        let fits = ranges <= MAX_RANGES;
        ranges = if fits { ranges } else { 1 };
        fits
    };
    leases.chunk_by(fits).map(<[_]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_in_many_ranges_are_several_vectors() {
        let lease = |first: u64| {
            let tasks = TaskRange::single(first);
            Lease { id: LeaseId(first), iteration: Iteration::FIRST, tasks, own: None }
        };
        let sizes = |leases: Vec<_>| in_vectors(leases).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes((0..200_000).rev().map(lease).collect()), [200_000], "they are one range");
        assert_eq!(sizes((0..70_000).map(|at| lease(2 * at)).collect()), [MAX_RANGES, 70_000 - MAX_RANGES]);
    }
}
