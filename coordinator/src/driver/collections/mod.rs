//! The vectors that workers are asked for.
//!
//! The engine asks a worker for the sum of the gradients of some leases. Tasks of a worker that was lost while it sent its sum are
//! collected from the first chunk on that did not arrive; a collection of the engine that holds both such tasks and others is
//! several vectors, as is one of more ranges of tasks than a request may name.
//!
//! Several workers may exchange their vectors in shards: each of them sends some chunks of the sum of all. These vectors count
//! once all of their chunks have arrived, and until then the others are asked again if one of them is lost.

mod late;
mod requests;
mod shared;

pub(super) use requests::Requests;
pub(super) use shared::Member;

use std::collections::{BTreeMap, HashSet};

use ata_record::RefusalKind;
use ata_scheduler::topology::VectorProgress;
use ata_types::{CollectionId, Iteration, LeaseId, TaskRange, VectorId, WorkerId};
use ata_wire::limits::MAX_RANGES;
use ata_wire::{Collection, GradientHeader, Shard};

use super::uploads::UploadRefusal;
use crate::training::{Gate, Magnitudes, OrderedVector};
use shared::SharedSum;

/// A vector that a worker was asked for.
#[derive(Debug)]
struct Vector {
    worker: WorkerId,
    /// The collection of the engine that it is part of.
    part_of: CollectionId,
    request: Collection,
    /// The leases with its tasks.
    leases: Vec<(LeaseId, TaskRange)>,
    /// The gate for its chunks, once its header was accepted.
    gate: Option<Gate>,
    has_arrived: bool,
    /// How far it has come, once its leases are known to be computed.
    progress: Option<VectorProgress>,
    /// Whether it was asked for again, in the units of the iteration.
    is_repeated: bool,
}

impl Vector {
    /// The chunks that the worker sends.
    fn shard(&self) -> Option<Shard> {
        self.request.shards.as_ref().map(|shards| shards.of(shards.place))
    }
}

/// The vectors of the iteration that is under way.
#[derive(Debug)]
pub(super) struct Collections {
    vectors: BTreeMap<VectorId, Vector>,
    /// The sum of those that are exchanged in shards.
    shared: Option<SharedSum>,
    /// How many vectors were asked for so far.
    asked: u64,
    /// Chunks per vector.
    chunks: u64,
    /// Whether vectors are kept apart until all have arrived. If not, the part of one that has arrived counts if its worker is lost.
    are_separate: bool,
    /// Tasks of lost workers, and the first chunk of their sum that did not arrive; later ones replace earlier ones.
    parts: Vec<(TaskRange, u64)>,
    /// Whether the step is taken already, so that no more vectors are needed.
    is_taken: bool,
    /// When the iteration was first looked at.
    began_s: Option<f64>,
}

/// A vector that is let in.
pub(super) struct AcceptedVector {
    pub(super) gate: Gate,
    /// The first of its chunks that is sent.
    pub(super) first_chunk: u64,
    /// Which of its chunks are sent.
    pub(super) shard: Shard,
}

/// A vector that arrived whole, or failed: its worker, and the engine's collection if that is complete or failed by it.
pub(super) struct EndedVector {
    pub(super) worker: WorkerId,
    pub(super) collection: CollectionId,
}

impl Collections {
    /// No vectors, of so many chunks each.
    pub(super) fn new(chunks: u64, are_separate: bool) -> Self {
        Self {
            vectors: BTreeMap::new(),
            shared: None,
            asked: 0,
            chunks,
            are_separate,
            parts: Vec::new(),
            is_taken: false,
            began_s: None,
        }
    }

    /// The engine asks a worker for the sum over some leases, with their tasks; this replaces what it asked for before under the
    /// same name. Returns what to tell the worker.
    pub(super) fn ask(
        &mut self,
        worker: WorkerId,
        collection: CollectionId,
        iteration: Iteration,
        leases: &[(LeaseId, TaskRange)],
    ) -> Requests {
        let (kept, withdrawn) = self.withdraw(collection, leases);
        let mut collections = Vec::new();
        let mut by_first: BTreeMap<u64, Vec<(LeaseId, TaskRange)>> = BTreeMap::new();
        for &(lease, tasks) in leases.iter().filter(|(lease, _)| !kept.contains(lease)) {
            by_first.entry(self.first_chunk(tasks)).or_default().push((lease, tasks));
        }
        for (first_chunk, leases) in by_first {
            for leases in in_vectors(leases) {
                let request = self.add(worker, collection, iteration, leases, first_chunk);
                collections.extend(Some(request).filter(|_| first_chunk < self.chunks));
            }
        }
        Requests { withdrawn, collections }
    }

    /// Adds a vector. Returns the request for it.
    fn add(
        &mut self,
        worker: WorkerId,
        collection: CollectionId,
        iteration: Iteration,
        leases: Vec<(LeaseId, TaskRange)>,
        first_chunk: u64,
    ) -> Collection {
        let (id, has_arrived) = (self.next_id(), first_chunk == self.chunks);
        let tasks = leases.iter().map(|(_, tasks)| *tasks).collect();
        let request = Collection { id, iteration, tasks, first_chunk, shards: None };
        let vector = Vector {
            worker,
            part_of: collection,
            request: request.clone(),
            leases,
            gate: None,
            has_arrived,
            progress: None,
            is_repeated: false,
        };
        self.vectors.insert(id, vector);
        request
    }

    fn next_id(&mut self) -> VectorId {
        self.asked += 1;
        VectorId(self.asked)
    }

    /// Whether a worker is still asked for a vector.
    pub(super) fn is_asked(&self, worker: WorkerId, id: VectorId) -> bool {
        self.vectors.get(&id).is_some_and(|vector| vector.worker == worker)
    }

    /// Withdraws what was asked for, except vectors that were let in and are still wanted. Returns the leases of these, and the
    /// vectors that were withdrawn.
    fn withdraw(
        &mut self,
        collection: CollectionId,
        wanted: &[(LeaseId, TaskRange)],
    ) -> (HashSet<LeaseId>, Vec<VectorId>) {
        let wanted: HashSet<LeaseId> = wanted.iter().map(|(lease, _)| *lease).collect();
        let stays = |vector: &Vector| vector.gate.is_some() && vector.leases.iter().all(|(id, _)| wanted.contains(id));
        let of_it = self.vectors.values().filter(|vector| vector.part_of == collection && stays(vector));
        let kept = of_it.flat_map(|vector| &vector.leases).map(|(lease, _)| *lease).collect();
        (kept, self.end(|vector| vector.part_of == collection && !stays(vector)))
    }

    fn first_chunk(&self, tasks: TaskRange) -> u64 {
        if self.is_taken {
            return self.chunks;
        }
        let mut parts = self.parts.iter().rev();
        parts.find(|(part, _)| part.overlaps(tasks)).map_or(0, |(_, first_chunk)| *first_chunk)
    }

    /// Checks the header of a vector that a worker is about to send.
    pub(super) fn check(&self, worker: WorkerId, header: &GradientHeader) -> Result<(), (RefusalKind, String)> {
        let id = header.vector.unwrap_or(VectorId(0));
        let Some(vector) = self.vectors.get(&id).filter(|vector| vector.worker == worker) else {
            let kind = if id.0 <= self.asked { RefusalKind::Stale } else { RefusalKind::Foreign };
            return Err((kind, format!("vector {id} is not asked of worker {worker}")));
        };
        if vector.gate.is_some() {
            return Err((RefusalKind::Replayed, format!("vector {id} is being sent already")));
        }
        Ok(())
    }

    /// Whether vectors are kept apart until all have arrived.
    pub(super) fn are_separate(&self) -> bool {
        self.are_separate
    }

    /// The workers of the vectors that have not been let in.
    pub(super) fn awaited_workers(&self) -> impl Iterator<Item = WorkerId> {
        let awaited = self.vectors.values().filter(|vector| vector.gate.is_none() && !vector.has_arrived);
        awaited.map(|vector| vector.worker)
    }

    /// Whether no vector was let in, except those that failed before any of their chunks passed.
    pub(super) fn are_untouched(&self) -> bool {
        let is_asked = |vector: &Vector| vector.gate.is_none() && !vector.has_arrived;
        self.vectors.values().all(is_asked) && self.parts.iter().all(|(_, next)| *next == 0)
    }

    /// The request to repeat for a vector that was announced in other units than those of the iteration, once.
    pub(super) fn repeat(&mut self, id: VectorId) -> Option<Collection> {
        let vector = self.vectors.get_mut(&id).filter(|vector| {
            // The units of later iterations are sent with the leases.
            !vector.is_repeated && vector.request.iteration == Iteration::FIRST
        })?;
        (vector.is_repeated, vector.progress) = (true, None);
        Some(vector.request.clone())
    }

    /// The vectors whose leases have been computed for longer than `timeout_s`, and whose headers have not come.
    pub(super) fn overdue(
        &mut self,
        now_s: f64,
        timeout_s: f64,
        is_computed: impl Fn(&VectorId, &LeaseId) -> bool,
    ) -> Vec<(WorkerId, VectorId)> {
        let is_due = |id: &VectorId, vector: &Vector| {
            let mut leases = vector.leases.iter();
            vector.gate.is_none() && !vector.has_arrived && leases.all(|(lease, _)| is_computed(id, lease))
        };
        let mut overdue = Vec::new();
        for (id, vector) in self.vectors.iter_mut().filter(|(id, vector)| is_due(id, vector)) {
            if now_s - vector.progress.get_or_insert(VectorProgress::new(now_s)).due_s > timeout_s {
                overdue.push((vector.worker, *id));
            }
        }
        overdue
    }

    /// The leases of a vector.
    pub(super) fn leases(&self, id: VectorId) -> impl Iterator<Item = LeaseId> + '_ {
        self.vectors.get(&id).into_iter().flat_map(|vector| &vector.leases).map(|(lease, _)| *lease)
    }

    /// Lets a vector in whose header was checked.
    pub(super) fn accept(&mut self, id: VectorId, magnitudes: Magnitudes) -> Result<AcceptedVector, UploadRefusal> {
        let gone = || UploadRefusal::NotHeld { reason: format!("vector {id} is no longer asked for") };
        let vector = self.vectors.get_mut(&id).filter(|_| !self.is_taken).ok_or_else(gone)?;
        let shared = self.shared.as_ref().filter(|shared| shared.members.contains(&id));
        let first_chunk = vector.request.first_chunk;
        let gate = shared.map_or_else(|| Gate::new(id, first_chunk, self.chunks), |shared| shared.gate.clone());
        gate.announce(magnitudes);
        vector.gate = Some(gate.clone());
        Ok(AcceptedVector { gate, first_chunk, shard: vector.shard().unwrap_or(Shard::ALL) })
    }

    /// A vector has arrived whole. Returns the engine's collections that have, too.
    pub(super) fn arrived(&mut self, id: VectorId) -> Vec<EndedVector> {
        let Some(vector) = self.vectors.get_mut(&id) else { return Vec::new() };
        vector.has_arrived = true;
        // Each of those that were exchanged in shards is in chunks of all of them.
        let mates: Vec<&Vector> = self.mates(id).iter().filter_map(|id| self.vectors.get(id)).collect();
        if !mates.iter().all(|mate| mate.has_arrived) {
            return Vec::new();
        }
        let has_arrived = |collection: CollectionId| {
            let mut parts = self.vectors.values().filter(|vector| vector.part_of == collection);
            parts.all(|vector| vector.has_arrived)
        };
        let ended = mates.into_iter().map(|mate| EndedVector { worker: mate.worker, collection: mate.part_of });
        ended.filter(|ended| has_arrived(ended.collection)).collect()
    }

    /// A vector of a worker will not arrive whole. Returns the engine's collection, which fails.
    pub(super) fn failed(&mut self, worker: WorkerId, id: VectorId) -> Option<EndedVector> {
        let collection = self.vectors.get(&id).filter(|vector| vector.worker == worker)?.part_of;
        self.end(|vector| vector.part_of == collection);
        Some(EndedVector { worker, collection })
    }

    /// The session of a worker has ended. Returns its collections that have arrived whole all the same.
    pub(super) fn left(&mut self, worker: WorkerId) -> Vec<EndedVector> {
        let chunks = self.chunks;
        let is_whole = |vector: &Vector| vector.gate.as_ref().is_some_and(|gate| gate.close() == chunks);
        let whole = self.vectors.iter().filter(|(_, vector)| vector.worker == worker && !vector.has_arrived);
        let whole: Vec<VectorId> = whole.filter(|(_, vector)| is_whole(vector)).map(|(id, _)| *id).collect();
        let whole: Vec<VectorId> = whole.into_iter().flat_map(|id| self.mates(id)).collect();
        let ended = whole.into_iter().flat_map(|id| self.arrived(id)).collect();
        self.lost(worker);
        ended
    }

    /// The engine has lost a worker, with all of its collections that were not delivered.
    pub(super) fn lost(&mut self, worker: WorkerId) {
        let unfinished = self.vectors.values().filter(|vector| vector.worker == worker && !vector.has_arrived);
        let unfinished: Vec<CollectionId> = unfinished.map(|vector| vector.part_of).collect();
        self.end(|vector| vector.worker == worker && unfinished.contains(&vector.part_of));
    }

    /// Removes vectors, and remembers how much of them has arrived.
    fn end(&mut self, is_over: impl Fn(&Vector) -> bool) -> Vec<VectorId> {
        let mut ended = Vec::new();
        for (id, vector) in self.vectors.extract_if(.., |_, vector| is_over(vector)) {
            let Vector { request, leases, gate, has_arrived, .. } = vector;
            let is_whole = has_arrived && request.shards.is_none();
            let arrived = if is_whole { self.chunks } else { request.first_chunk };
            let next = gate.map_or(arrived, |gate| gate.close());
            if !self.are_separate {
                self.parts.extend(leases.into_iter().map(|(_, tasks)| (tasks, next)));
            }
            ended.push(id);
        }
        ended
    }

    /// The vectors of some of the engine's collections, for the order of a step.
    pub(super) fn ordered(&self, collections: &[CollectionId]) -> Vec<OrderedVector> {
        let of_them = self.vectors.iter().filter(|(_, vector)| collections.contains(&vector.part_of));
        let (shared, apart): (Vec<_>, Vec<_>) = of_them.partition(|(id, _)| self.is_shared(**id));
        let tasks = |vector: &Vector| vector.leases.iter().map(|(_, tasks)| tasks.count).sum::<u64>();
        let mut ordered: Vec<OrderedVector> = Vec::new();
        ordered.extend(apart.into_iter().map(|(id, vector)| OrderedVector {
            id: *id,
            first_chunk: vector.request.first_chunk,
            tasks: tasks(vector),
        }));
        if let Some(SharedSum { id, .. }) = self.shared.as_ref().filter(|_| !shared.is_empty()) {
            let tasks = shared.iter().map(|(_, vector)| tasks(vector)).sum();
            ordered.push(OrderedVector { id: *id, first_chunk: 0, tasks });
        }
        ordered
    }

    /// Whether there are vectors of a collection of the engine.
    pub(super) fn has(&self, collection: CollectionId) -> bool {
        self.vectors.values().any(|vector| vector.part_of == collection)
    }

    /// The workers whose vectors are asked for, each once, and the chunks that those who exchange them in shards send.
    pub(super) fn contributors(&self) -> BTreeMap<WorkerId, Option<Shard>> {
        let mut contributors = BTreeMap::new();
        for vector in self.vectors.values() {
            let shard: &mut Option<Shard> = contributors.entry(vector.worker).or_default();
            *shard = shard.or(vector.shard());
        }
        contributors
    }

    /// The step is taken, although the engine waits for some of its tasks again.
    pub(super) fn taken(&mut self) {
        self.is_taken = true;
    }

    /// The step was committed.
    pub(super) fn stepped(&mut self) {
        (self.is_taken, self.began_s) = (false, None);
        self.shared = None;
        self.vectors.clear();
        self.parts.clear();
    }
}

/// Leases of each of the vectors that hold some leases, which are within the limits of a request.
fn in_vectors(mut leases: Vec<(LeaseId, TaskRange)>) -> Vec<Vec<(LeaseId, TaskRange)>> {
    leases.sort_by_key(|(_, tasks)| tasks.first);
    let mut ranges = 1;
    let fits = |(_, tasks): &(LeaseId, TaskRange), (_, next): &(LeaseId, TaskRange)| {
        ranges += usize::from(tasks.end() < next.first);
        let fits = ranges <= MAX_RANGES;
        ranges = if fits { ranges } else { 1 };
        fits
    };
    leases.chunk_by(fits).map(<[_]>::to_vec).collect()
}

#[cfg(test)]
mod tests;
