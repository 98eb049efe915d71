//! The exchanges in shards in which a session takes part.
#![allow(clippy::wildcard_imports, reason = "it is a part of the module above, in a file of its own")]

use super::*;
use ata_types::VectorId;
use ata_wire::{ExchangeReport, PeerAddress, SetHeader, Stripe};
use bytes::Bytes;

/// The exchanges of a session: the one whose parameters arrive, and the next one.
pub(super) struct Sharing<'a> {
    peers: Option<&'a PeerServer>,
    connections: Connections,
    events: mpsc::Sender<ExchangeEvent>,
    exchanges: Vec<MemberExchange>,
    /// The set that arrives in this way.
    arriving: Option<ArrivingSet>,
    /// Connections that are tried for the coordinator.
    probes: JoinSet<FromWorker>,
}

/// A set of which the coordinator sends this worker's chunks.
struct ArrivingSet {
    vector: VectorId,
    /// Chunks that the coordinator has not sent.
    own_left: usize,
    /// Whether chunks of other members are awaited.
    awaits_others: bool,
}

impl<'a> Sharing<'a> {
    pub(super) fn new(peers: Option<&'a PeerServer>, events: mpsc::Sender<ExchangeEvent>) -> Self {
        let (connections, probes) = (Connections::default(), JoinSet::new());
        Self { peers, connections, events, exchanges: Vec::new(), arriving: None, probes }
    }

    /// How other workers reach this one.
    pub(super) fn address(&self) -> Option<PeerAddress> {
        self.peers.map(|server| server.address.clone())
    }

    /// Takes part in the exchange that a request names, if it names one.
    pub(super) fn open(&mut self, request: &VectorRequest, format: WireFormat) {
        let Some(PeerServer { peers, .. }) = self.peers else { return };
        let opened = MemberExchange::open(request, format, peers, &mut self.connections, &self.events);
        let Some(exchange) = opened else { return };
        // Others may still read the parameters that result from the one before.
        self.exchanges.retain(|earlier| earlier.iteration.next() >= exchange.iteration);
        self.exchanges.push(exchange);
    }

    /// Connects to another worker, for the coordinator.
    pub(super) fn reach(&mut self, probe: u64, address: &PeerAddress) {
        let reached = self.connections.reach(address);
        self.probes.spawn(async move { FromWorker::Reached { probe, outcome: reached.await } });
    }

    /// The result of a connection that was tried.
    pub(super) async fn reached(&mut self) -> Option<FromWorker> {
        self.probes.join_next().await?.ok()
    }

    /// Leaves an exchange that is over. Returns what to tell the coordinator of it, and whether parameters were awaited from it.
    pub(super) fn leave(&mut self, vector: VectorId) -> (Option<ExchangeReport>, bool) {
        let report = self.report(vector, true);
        self.exchanges.retain(|exchange| exchange.vector != vector);
        (report, self.stop_awaiting(vector))
    }

    /// What to tell the coordinator of how an exchange went, if it was not told.
    pub(super) fn report(&mut self, vector: VectorId, has_failed: bool) -> Option<ExchangeReport> {
        self.exchange(vector)?.report(has_failed)
    }

    /// The exchange that a request asked for.
    pub(super) fn exchange(&mut self, vector: VectorId) -> Option<&mut MemberExchange> {
        self.exchanges.iter_mut().find(|exchange| exchange.vector == vector)
    }

    /// Begins a set in shards. Without its exchange, the coordinator is about to send all of it.
    pub(super) fn begin_set(&mut self, header: &SetHeader) {
        let stripe = header.stripe.unwrap_or(Stripe::ALL);
        let own_left = stripe.chunks(0, header.chunks).count();
        let exchange = self.exchanges.iter_mut().find(|exchange| exchange.iteration.next() == header.iteration);
        let vector = exchange.map(|exchange| {
            exchange.begin_set(header);
            exchange.vector
        });
        let awaits_others = vector.is_some();
        self.arriving = Some(ArrivingSet { vector: vector.unwrap_or(VectorId(0)), own_left, awaits_others });
    }

    /// Takes a chunk from the coordinator, if it is one of this worker's own of a set in shards.
    pub(super) fn own_chunk(&mut self, data: &Bytes) -> bool {
        let Some(arriving) = self.arriving.as_mut().filter(|arriving| arriving.own_left > 0) else { return false };
        arriving.own_left -= 1;
        let vector = arriving.vector;
        if let Some(exchange) = self.exchange(vector) {
            exchange.own_chunk(data.clone());
        }
        true
    }

    /// Another set begins. Returns the exchange from which parameters were awaited until now.
    pub(super) fn replace_set(&mut self) -> Option<VectorId> {
        let replaced = self.arriving.take()?;
        replaced.awaits_others.then_some(replaced.vector)
    }

    /// Whether chunks of parameters are awaited from an exchange.
    pub(super) fn awaits(&self, vector: VectorId) -> bool {
        let mut arriving = self.arriving.iter();
        arriving.any(|arriving| arriving.vector == vector && arriving.awaits_others)
    }

    /// Awaits no more chunks from an exchange. Returns whether any were awaited.
    pub(super) fn stop_awaiting(&mut self, vector: VectorId) -> bool {
        let awaited = self.awaits(vector);
        if let Some(arriving) = self.arriving.as_mut().filter(|_| awaited) {
            arriving.awaits_others = false;
        }
        awaited
    }

    /// Forgets the connection to a member of an exchange that could not be worked with. Returns its address.
    pub(super) fn fail(&mut self, vector: VectorId, place: usize) -> Option<String> {
        let address = self.exchange(vector)?.address(place);
        self.connections.forget(&address);
        Some(address)
    }
}
