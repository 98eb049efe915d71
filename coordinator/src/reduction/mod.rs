//! The way of vectors from the engine's requests to the step.
//!
//! The engine asks for collections: sums of the gradients of some leases of a worker. Each is one vector or, if tasks of a worker that was
//! lost in the middle of its own are among them, or more ranges of tasks than a request may name, several. A vector goes through the
//! states of [`vector::State`]:
//!
//! ```text
//!          header       reports, units,            last chunk           step
//! Asked ──────────▶ Announced ──────────▶ Open ──────────▶ Whole ──────────▶ gone
//!                       │   room      ┌▶ Filling ────────▶ Held ─────────────▲
//!                       └─────────────┘
//! ```
//! Most pass a gate to the training thread, chunk by chunk. The vector of one lease that is used whole is put together first. Several
//! workers may exchange their vectors in shards: each of them sends some chunks of the sum of all, through one gate.
//!
//! If a vector ends early, what has passed its gate counts: others send the sum of its tasks from the next chunk on.
//!
//! # Methods
//! - The engine asks: `ask`, `own`, `lease_reported`, `lease_ended`; it orders a step: `take_whole`, `ordered`, `stepped`.
//! - Workers answer: `check`, `announce`, `arrived`, `failed`. `admit` says which vectors may be sent now.
//! - Workers are gone: `left`, `lost`. Time passes: `late`, `overdue`, `give_way`.
//!
//! # Layout
//! - here: [`Reduction`], what is asked for, and the order of a step; `vector`: a vector's life
//! - `admission`: headers, and which vectors may be sent; `room`: room for those that are used whole; `gate`: lets chunks through
//! - `ending`: vectors that arrive, fail, or whose worker is lost; `late`: those that are not waited for
//! - `exchange`: the sum of vectors that are exchanged; `exchanges`: how exchanges go, and who is to blame; `requests`: what workers are told

mod admission;
mod ending;
mod exchange;
pub(crate) mod exchanges;
mod gate;
mod late;
mod requests;
mod room;
mod vector;

pub(crate) use admission::AdmittedVector;
pub(crate) use exchange::Member;
pub(crate) use gate::Gate;
pub(crate) use requests::Requests;
pub(crate) use vector::{Announcement, Sink, UploadRefusal, VectorReply};

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use ata_types::{CollectionId, Iteration, Lease, LeaseId, TaskOutcome, TaskRange, VectorId, WorkerId};
use ata_wire::limits::MAX_RANGES;
use ata_wire::{Stripe, VectorRequest};

use crate::training::{HeldSum, OrderedVector};
use exchange::SharedSum;
use room::Room;
use vector::{State, Vector};

/// The vectors of the iteration that is under way, and those of asynchronous leases.
#[derive(Debug)]
pub(crate) struct Reduction {
    vectors: BTreeMap<VectorId, Vector>,
    /// The sum of those that are exchanged in shards.
    shared: Option<SharedSum>,
    /// The leases that are computed, and have not ended.
    computed: HashSet<LeaseId>,
    /// How many vectors were asked for so far.
    asked: u64,
    /// Chunks per vector.
    chunks: u64,
    /// Whether vectors are kept apart until all have arrived. If not, the part of one that has arrived counts if its worker is lost.
    are_separate: bool,
    /// Tasks of vectors that ended early, and the first chunk of their sum that did not pass; later ones replace earlier ones.
    prefixes: Vec<(TaskRange, u64)>,
    room: Room,
    /// Whether the step is taken already, so that no more vectors are needed.
    is_taken: bool,
    /// When the iteration was first looked at.
    began_s: Option<f64>,
}

/// A vector that arrived whole, or failed: its worker, and the engine's collection if that is complete or failed by it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EndedVector {
    pub(crate) worker: WorkerId,
    pub(crate) collection: CollectionId,
}

impl Reduction {
    /// No vectors, of so many chunks each, and room for so many at a time that are used whole.
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

    /// The engine asks a worker for the sum over some leases; this replaces what it asked for before under the same name. Returns what
    /// to tell the worker.
    pub(crate) fn ask(&mut self, iteration: Iteration, asked: &ata_scheduler::Collection) -> Requests {
        let ata_scheduler::Collection { worker, id, leases } = asked;
        let (kept, withdrawn) = self.withdraw(*id, leases);
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
        Requests { withdrawn, requests }
    }

    /// A worker gets a lease. Returns the vector that it is asked for together with it, if there is one.
    pub(crate) fn own(&mut self, worker: WorkerId, lease: &Lease) -> Option<VectorId> {
        lease.own.map(|collection| self.add(worker, collection, lease.iteration, vec![*lease], 0).id)
    }

    /// A worker has computed a lease.
    pub(crate) fn lease_reported(&mut self, lease: LeaseId) {
        self.computed.insert(lease);
    }

    /// A lease ended. If it was not applied, its own vector is of no use. Returns what is withdrawn from its worker.
    pub(crate) fn lease_ended(&mut self, lease: &Lease, outcome: TaskOutcome) -> Vec<VectorId> {
        self.computed.remove(&lease.id);
        let Some(own) = lease.own.filter(|_| outcome != TaskOutcome::Applied) else { return Vec::new() };
        let is_here = self.vectors.values().any(|vector| vector.part_of == own && vector.has_arrived());
        let ended = self.end(|vector| vector.part_of == own);
        if is_here { Vec::new() } else { ended }
    }

    /// Adds a vector. Returns the request for it.
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
            state: if first_chunk == self.chunks { State::Whole } else { State::Asked },
        };
        self.vectors.insert(id, vector);
        request
    }

    fn next_id(&mut self) -> VectorId {
        self.asked += 1;
        VectorId(self.asked)
    }

    /// Withdraws what was asked for, except vectors that were let in and are still wanted. Returns the leases of these, and the
    /// vectors that were withdrawn.
    fn withdraw(&mut self, collection: CollectionId, wanted: &[Lease]) -> (HashSet<LeaseId>, Vec<VectorId>) {
        let stays = |vector: &Vector| !vector.is_outside() && vector.leases.iter().all(|lease| wanted.contains(lease));
        let of_it = self.vectors.values().filter(|vector| vector.part_of == collection && stays(vector));
        let kept = of_it.flat_map(|vector| &vector.leases).map(|lease| lease.id).collect();
        (kept, self.end(|vector| vector.part_of == collection && !stays(vector)))
    }

    fn first_chunk(&self, tasks: TaskRange) -> u64 {
        if self.is_taken {
            return self.chunks;
        }
        let mut prefixes = self.prefixes.iter().rev();
        prefixes.find(|(prefix, _)| prefix.overlaps(tasks)).map_or(0, |(_, first_chunk)| *first_chunk)
    }

    /// Chunks per vector.
    pub(crate) fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Whether vectors are kept apart until all have arrived.
    pub(crate) fn are_separate(&self) -> bool {
        self.are_separate
    }

    /// Whether there are vectors of a collection of the engine.
    pub(crate) fn has(&self, collection: CollectionId) -> bool {
        self.vectors.values().any(|vector| vector.part_of == collection)
    }

    /// The workers whose vectors make a step, each once, and the chunks that those who exchange them in shards send.
    pub(crate) fn contributors(&self, collections: &[CollectionId]) -> BTreeMap<WorkerId, Option<Stripe>> {
        let mut contributors = BTreeMap::new();
        for vector in self.vectors.values().filter(|vector| collections.contains(&vector.part_of)) {
            let stripe: &mut Option<Stripe> = contributors.entry(vector.worker).or_default();
            *stripe = stripe.or(vector.stripe());
        }
        contributors
    }

    /// The vectors of some of the engine's collections that a step takes whole, each the first time that it is ordered.
    pub(crate) fn take_whole(&mut self, collections: &[CollectionId]) -> Vec<Arc<HeldSum>> {
        let of_step = self.vectors.values_mut().filter(|vector| collections.contains(&vector.part_of));
        let take = |vector: &mut Vector| {
            let State::Held(sum) = &vector.state else { return None };
            (!std::mem::replace(&mut vector.is_taken, true)).then(|| sum.clone())
        };
        of_step.filter_map(take).collect()
    }

    /// A vector that was delivered whole, for a comparison, and its lease.
    pub(crate) fn whole(&self, collection: CollectionId) -> Option<(LeaseId, Arc<HeldSum>)> {
        let vector = self.vectors.values().find(|vector| vector.part_of == collection)?;
        let State::Held(sum) = &vector.state else { return None };
        Some((vector.leases.first()?.id, sum.clone()))
    }

    /// The other vectors of some of the engine's collections, for the order of a step.
    pub(crate) fn ordered(&self, collections: &[CollectionId]) -> Vec<OrderedVector> {
        let of_step = |vector: &Vector| collections.contains(&vector.part_of) && !vector.is_own();
        let (shared, apart): (Vec<_>, Vec<_>) =
            self.vectors.iter().filter(|(_, vector)| of_step(vector)).partition(|(id, _)| self.is_shared(**id));
        let apart = apart.into_iter().map(|(id, vector)| (*id, vector.request.first_chunk));
        let sum = self.shared.as_ref().filter(|_| !shared.is_empty()).map(|sum| (sum.id, 0));
        apart.chain(sum).map(|(id, first_chunk)| OrderedVector { id, first_chunk }).collect()
    }

    /// The step is taken, although the engine waits for some of its tasks again.
    pub(crate) fn taken(&mut self) {
        self.is_taken = true;
    }

    /// The step was committed. Vectors of asynchronous leases that are not in it go on.
    pub(crate) fn stepped(&mut self) {
        (self.is_taken, self.began_s) = (false, None);
        self.shared = None;
        self.vectors.retain(|_, vector| vector.is_own() && !vector.is_taken);
        self.prefixes.clear();
    }
}

/// Leases of each of the vectors that hold some leases, which are within the limits of a request.
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
mod tests;
