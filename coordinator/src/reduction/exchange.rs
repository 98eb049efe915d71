//! Vectors that workers exchange in shards.

use std::time::Duration;

use ata_scheduler::Collection;
use ata_types::{CollectionId, Iteration, VectorId, WorkerId};
use ata_wire::{PeerAddress, SessionToken, ShardMember, Shards, VectorRequest};

use super::vector::Vector;
use super::{Gate, Reduction, in_vectors};

/// The sum of the vectors of all members of an exchange.
#[derive(Debug)]
pub(super) struct SharedSum {
    /// The name of the sum for the training thread.
    pub(super) id: VectorId,
    pub(super) members: Vec<VectorId>,
    pub(super) gate: Gate,
}

impl Reduction {
    /// Returns whether this many workers may exchange vectors in shards: if no chunk has arrived, and vectors need not be kept separate.
    pub(crate) fn may_share(&self, members: usize) -> bool {
        let is_new = self.shared.is_none() && self.prefixes.is_empty() && !self.is_taken;
        is_new && !self.are_separate && members as u64 <= self.chunks
    }

    /// Adds the vectors of collections that are exchanged in shards, by workers at these addresses. `keys` holds a key for each pair of
    /// workers, and each chunk must arrive within `timeout_s`. Returns the requests to the workers.
    pub(crate) fn ask_in_shards(
        &mut self,
        iteration: Iteration,
        members: Vec<(Collection, PeerAddress)>,
        keys: &[Vec<SessionToken>],
        timeout_s: f64,
    ) -> Vec<(WorkerId, VectorRequest)> {
        let addresses: Vec<PeerAddress> = members.iter().map(|(_, address)| address.clone()).collect();
        let chunk_timeout = Duration::from_millis((1000.0 * timeout_s) as u64);
        let (mut requests, mut apart) = (Vec::new(), Vec::new());
        for (place, (Collection { worker, id, leases }, _)) in members.into_iter().enumerate() {
            // Each worker has one vector in the exchange. Leases that do not fit into it are sent to the coordinator in further vectors.
            let mut vectors = in_vectors(leases).into_iter();
            let Some(leases) = vectors.next() else { continue };
            let plain = self.add(worker, id, iteration, leases, 0);
            apart.extend(vectors.map(|leases| (worker, self.add(worker, id, iteration, leases, 0))));
            let members = addresses.iter().cloned().zip(&keys[place]);
            let members = members.map(|(address, key)| ShardMember { address, key: *key }).collect();
            let shards = Some(Shards { place, members, chunk_timeout });
            let request = VectorRequest { shards, ..plain };
            if let Some(vector) = self.vectors.get_mut(&request.id) {
                vector.request = request.clone();
            }
            requests.push((worker, request));
        }
        let members = requests.iter().map(|(_, request)| request.id).collect();
        let id = self.next_id();
        self.shared = Some(SharedSum { id, members, gate: Gate::new(id, 0, self.chunks) });
        requests.extend(apart);
        requests
    }

    pub(crate) fn members(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.members.len() as u64)
    }

    /// Returns the next chunk of the exchange that has not arrived, and the worker that sends it, once all members have begun.
    pub(crate) fn awaited(&self) -> Option<(u64, WorkerId)> {
        let SharedSum { members, gate, .. } = self.shared.as_ref()?;
        let vectors: Option<Vec<&Vector>> = members.iter().map(|id| self.vectors.get(id)).collect();
        let (vectors, next) = (vectors?, gate.next());
        let have_begun = !vectors.iter().any(|vector| vector.is_outside());
        let owner = vectors.get(next as usize % members.len())?.worker;
        (have_begun && next < self.chunks).then_some((next, owner))
    }

    pub(crate) fn is_shared(&self, id: VectorId) -> bool {
        self.exchange_of(id).is_some()
    }

    pub(super) fn exchange_of(&self, id: VectorId) -> Option<&SharedSum> {
        self.shared.as_ref().filter(|shared| shared.members.contains(&id))
    }

    pub(crate) fn shares(&self, collection: CollectionId) -> bool {
        self.vectors.iter().any(|(id, vector)| vector.part_of == collection && self.is_shared(*id))
    }

    /// Returns all vectors of the exchange that this one belongs to, or only this one if it is not exchanged.
    pub(crate) fn mates(&self, id: VectorId) -> Vec<VectorId> {
        self.exchange_of(id).map_or(vec![id], |shared| shared.members.clone())
    }

    /// Ends the exchange. Returns the requests that replace it: each worker's own sum, starting at the first chunk that has not arrived.
    pub(crate) fn ask_apart(&mut self) -> Vec<(WorkerId, VectorRequest)> {
        let Some(SharedSum { members, gate, id }) = self.shared.take() else { return Vec::new() };
        let first_chunk = gate.close();
        if first_chunk == self.chunks {
            // All chunks have arrived.
            self.shared = Some(SharedSum { id, members, gate });
            return Vec::new();
        }
        let mut requests = Vec::new();
        for (_, mut vector) in self.vectors.extract_if(.., |id, _| members.contains(id)).collect::<Vec<_>>() {
            vector.withdraw_announcement("its exchange is over");
            let Vector { worker, part_of, request, leases, .. } = vector;
            self.prefixes.extend(leases.iter().map(|lease| (lease.tasks, first_chunk)));
            requests.push((worker, self.add(worker, part_of, request.iteration, leases, first_chunk)));
        }
        requests
    }
}
