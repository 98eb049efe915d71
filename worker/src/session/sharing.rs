//! The exchanges in shards in which a session takes part.
#![allow(clippy::wildcard_imports, reason = "it is a part of the module above, in a file of its own")]

use super::*;
use ata_wire::{PeerAddress, SetHeader, Stripe};
use bytes::Bytes;

/// The exchanges of a session: the one whose parameters arrive, and the next one.
pub(super) struct Sharing<'a> {
    peers: Option<&'a PeerServer>,
    connections: Connections,
    to_coordinator: mpsc::Sender<WorkerMessage>,
    events: mpsc::Sender<ExchangeEvent>,
    exchanges: Vec<MemberExchange>,
    arriving: Option<ArrivingSet>,
    probes: JoinSet<()>,
}

/// A set of which the coordinator sends only this worker's chunks.
struct ArrivingSet {
    vector: VectorId,
    own_left: usize,
    awaits_others: bool,
}

impl<'a> Sharing<'a> {
    pub(super) fn new(
        peers: Option<&'a PeerServer>,
        to_coordinator: mpsc::Sender<WorkerMessage>,
        events: mpsc::Sender<ExchangeEvent>,
    ) -> Self {
        let (connections, probes) = (Connections::default(), JoinSet::new());
        Self { peers, connections, to_coordinator, events, exchanges: Vec::new(), arriving: None, probes }
    }

    pub(super) fn address(&self) -> Option<PeerAddress> {
        self.peers.map(|server| server.address.clone())
    }

    pub(super) fn open(&mut self, request: &VectorRequest, format: WireFormat) {
        let Some(PeerServer { peers, .. }) = self.peers else { return };
        let opened = MemberExchange::open(request, format, peers, &mut self.connections, &self.events);
        let Some(exchange) = opened else { return };
        // Other members may still read the parameters that result from the previous exchange.
        self.exchanges.retain(|earlier| earlier.iteration.next() >= exchange.iteration);
        self.exchanges.push(exchange);
    }

    /// Connects to another worker, as the coordinator requested, and reports the outcome.
    pub(super) fn reach(&mut self, probe: u64, address: &PeerAddress) {
        while self.probes.try_join_next().is_some() {}
        let (reached, to_coordinator) = (self.connections.reach(address), self.to_coordinator.clone());
        self.probes.spawn(async move {
            let outcome = reached.await;
            send(&to_coordinator, FromWorker::Reached { probe, outcome });
        });
    }

    /// Leaves an exchange that is over, and reports it. Returns whether parameters were awaited from it.
    pub(super) fn leave(&mut self, vector: VectorId) -> bool {
        self.report(vector, true);
        self.exchanges.retain(|exchange| exchange.vector != vector);
        self.stop_awaiting(vector)
    }

    pub(super) fn report(&mut self, vector: VectorId, has_failed: bool) {
        if let Some(report) = self.exchange(vector).and_then(|exchange| exchange.report(has_failed)) {
            send(&self.to_coordinator, FromWorker::ExchangeReport(report));
        }
    }

    pub(super) fn exchange(&mut self, vector: VectorId) -> Option<&mut MemberExchange> {
        self.exchanges.iter_mut().find(|exchange| exchange.vector == vector)
    }

    /// Starts to receive a set in shards. Returns whether its exchange goes on. If it is over, the coordinator is about to send a whole set.
    pub(super) fn begin_set(&mut self, header: &SetHeader) -> bool {
        let stripe = header.stripe.unwrap_or(Stripe::ALL);
        let own_left = stripe.chunks(0, header.chunks).count();
        let exchange = self.exchanges.iter_mut().find(|exchange| exchange.iteration.next() == header.iteration);
        let vector = exchange.map(|exchange| {
            exchange.begin_set(header);
            exchange.vector
        });
        let awaits_others = vector.is_some();
        self.arriving = Some(ArrivingSet { vector: vector.unwrap_or(VectorId(0)), own_left, awaits_others });
        awaits_others
    }

    /// Handles a chunk from the coordinator, if it is this worker's own chunk of a set in shards. Returns whether it is.
    pub(super) fn own_chunk(&mut self, data: &Bytes) -> bool {
        let Some(arriving) = self.arriving.as_mut().filter(|arriving| arriving.own_left > 0) else { return false };
        arriving.own_left -= 1;
        let vector = arriving.vector;
        if let Some(exchange) = self.exchange(vector) {
            exchange.own_chunk(data.clone());
        }
        true
    }

    /// Drops the current set because another one begins. Returns the exchange from which parameters were awaited, if there was one.
    pub(super) fn replace_set(&mut self) -> Option<VectorId> {
        let replaced = self.arriving.take()?;
        replaced.awaits_others.then_some(replaced.vector)
    }

    pub(super) fn awaits(&self, vector: VectorId) -> bool {
        let mut arriving = self.arriving.iter();
        arriving.any(|arriving| arriving.vector == vector && arriving.awaits_others)
    }

    /// Stops awaiting chunks from an exchange. Returns whether any were awaited.
    pub(super) fn stop_awaiting(&mut self, vector: VectorId) -> bool {
        let awaited = self.awaits(vector);
        if let Some(arriving) = self.arriving.as_mut().filter(|_| awaited) {
            arriving.awaits_others = false;
        }
        awaited
    }

    /// Drops the connection to a member of an exchange that failed. Returns the member's address.
    pub(super) fn fail(&mut self, vector: VectorId, place: usize) -> Option<String> {
        let address = self.exchange(vector)?.address(place);
        self.connections.forget(&address);
        Some(address)
    }
}
