//! This worker's part in one exchange.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use ata_sums::{GradientSum, encode_sums};
use ata_types::{CHUNK_VALUES, Iteration, VectorId, WireFormat};
use ata_wire::{
    Connection, ExchangeReport, FramedSet, GradientHeader, PairFault, PeerAddress, SetHeader, SetProducer, Shards,
    VectorRequest, connect,
};
use bytes::Bytes;
use tokio::sync::{OnceCell, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tokio_stream::{Stream, StreamExt};

use super::owner::{Owner, OwnerFailure};
use super::passing::Passing;
use super::peers::{OpenExchange, PeerUpload, Peers};
use super::tally::WayTally;
use crate::transfer::total;

/// The number of chunks that may be queued between two tasks, which is enough that they do not wait for each other.
const QUEUED_CHUNKS: usize = 8;

type LazyConnection = Arc<OnceCell<Connection>>;

#[derive(Debug, Default)]
pub(crate) struct Connections(HashMap<String, LazyConnection>);

impl Connections {
    fn of(&mut self, shards: &Shards) -> Vec<LazyConnection> {
        self.0.retain(|_, connection| connection.initialized());
        shards.members.iter().map(|member| self.to(&member.address)).collect()
    }

    fn to(&mut self, address: &PeerAddress) -> LazyConnection {
        self.0.entry(address.to_string()).or_default().clone()
    }

    /// Opens a new connection to a worker. Later exchanges with it use this connection.
    pub(crate) fn reach(&mut self, address: &PeerAddress) -> impl Future<Output = Result<(), String>> + Send + use<> {
        self.forget(&address.to_string());
        let (connection, endpoint) = (self.to(address), address.endpoint());
        async move {
            let made = connection.get_or_try_init(|| connect(&endpoint)).await;
            made.map(drop).map_err(|error| error.to_string())
        }
    }

    pub(crate) fn forget(&mut self, address: &str) {
        self.0.remove(address);
    }
}

#[derive(Debug)]
pub(crate) enum ExchangeEvent {
    Chunk { vector: VectorId, at: u64, data: Bytes },
    Failed { vector: VectorId, place: usize },
}

/// This worker's membership in an exchange, which ends when it is dropped.
pub(crate) struct MemberExchange {
    pub(crate) vector: VectorId,
    pub(crate) iteration: Iteration,
    has_reported: bool,
    shards: Shards,
    tally: WayTally,
    connections: Vec<LazyConnection>,
    format: WireFormat,
    /// The other members' sums, until they are added up.
    uploads: Option<mpsc::Receiver<PeerUpload>>,
    /// This worker's chunks of the next parameters, for the other members.
    set: watch::Sender<Option<FramedSet>>,
    arriving: Option<Arriving>,
    events: mpsc::Sender<ExchangeEvent>,
    peers: Peers,
    /// Ends the upload to the coordinator when it is dropped.
    alive: Option<oneshot::Sender<()>>,
    tasks: JoinSet<()>,
}

struct Arriving {
    for_others: SetProducer,
    own: mpsc::UnboundedSender<Bytes>,
    own_count: watch::Sender<usize>,
}

impl MemberExchange {
    /// Joins the exchange that a request names. Returns `None` if it names none.
    pub(crate) fn open(
        request: &VectorRequest,
        format: WireFormat,
        peers: &Peers,
        connections: &mut Connections,
        events: &mpsc::Sender<ExchangeEvent>,
    ) -> Option<Self> {
        let shards = request.shards.clone()?;
        let (sender, uploads) = mpsc::channel(shards.members.len());
        let (set, of_set) = watch::channel(None);
        for (place, member) in shards.members.iter().enumerate().filter(|(place, _)| *place != shards.place) {
            peers.open(member.key, OpenExchange { place, uploads: sender.clone(), set: of_set.clone() });
        }
        let connections = connections.of(&shards);
        let mut exchange = Self {
            vector: request.id,
            iteration: request.iteration,
            has_reported: false,
            tally: WayTally::new(shards.members.len()),
            shards,
            connections,
            format,
            uploads: Some(uploads),
            set,
            arriving: None,
            events: events.clone(),
            peers: peers.clone(),
            alive: None,
            tasks: JoinSet::new(),
        };
        // Connect now, so that connections are ready when the tasks are computed.
        for place in exchange.others() {
            let connection = exchange.connection(place);
            exchange.attempt(async move { connection.await.map(drop) });
        }
        Some(exchange)
    }

    /// Exchanges the sums. Returns the totals of this worker's chunks, and a receiver that resolves if they will not be complete.
    pub(crate) fn send(
        &mut self,
        header: &GradientHeader,
        sums: &[Arc<GradientSum>],
    ) -> (impl Stream<Item = Bytes> + Send + use<>, oneshot::Receiver<()>) {
        let values = sums.first().map_or(0, |sum| sum.values.len());
        let chunks = values.div_ceil(CHUNK_VALUES) as u64;
        let from = VectorId(self.shards.place as u64 + 1);
        for place in self.others() {
            let session = self.shards.members[place].key;
            let header = GradientHeader { session, vector: from, ..header.clone() };
            let (connection, sums, format) = (self.connection(place), sums.to_vec(), self.format);
            let of_it = self.shards.of(place).chunks(0, chunks);
            let of_it = of_it.map(move |at| Bytes::from(encode_sums(format, &total(&sums, at))));
            self.attempt(async move {
                let sent = connection.await?.submit_gradient(header, tokio_stream::iter(of_it)).await;
                sent.map(drop).map_err(|error| OwnerFailure::new(place, PairFault::Broken, &error))
            });
        }
        let (totals, of_coordinator) = mpsc::channel(QUEUED_CHUNKS);
        let stripe = self.shards.of(self.shards.place);
        let (own, timeout, tally) = (sums.to_vec(), self.shards.chunk_timeout, self.tally.clone());
        let owner = Owner { own, stripe, format: self.format, totals, tally, timeout };
        if let Some(mut uploads) = self.uploads.take() {
            self.attempt(async move { owner.run(&mut uploads).await });
        }
        let (alive, over) = oneshot::channel();
        self.alive = Some(alive);
        // The stream stays pending after an early end: a call that ended early would count as this worker's fault.
        let own = stripe.chunks(0, chunks).count();
        (ReceiverStream::new(of_coordinator).chain(tokio_stream::pending()).take(own), over)
    }

    /// Starts to receive the next parameters. The coordinator sends this worker's chunks, and the other members pass on the rest.
    pub(crate) fn begin_set(&mut self, header: &SetHeader) {
        let (own, from_coordinator) = mpsc::unbounded_channel();
        let (own_count, own_counted) = watch::channel(0);
        let mut sources: Vec<Pin<Box<dyn Stream<Item = Bytes> + Send>>> = Vec::new();
        for place in self.others() {
            let (chunks, source) = mpsc::channel(QUEUED_CHUNKS);
            sources.push(Box::pin(ReceiverStream::new(source)));
            let passing = Passing {
                place,
                own: self.shards.of(self.shards.place),
                own_counted: own_counted.clone(),
                expected: SetHeader { stripe: Some(self.shards.of(place)), ..header.clone() },
                timeout: self.shards.chunk_timeout,
                tally: self.tally.clone(),
                chunks,
            };
            let (connection, key) = (self.connection(place), self.shards.members[place].key);
            self.attempt(async move { passing.receive(connection.await?, key).await });
        }
        sources.insert(self.shards.place, Box::pin(UnboundedReceiverStream::new(from_coordinator)));
        let (events, vector, chunks) = (self.events.clone(), self.vector, header.chunks);
        self.tasks.spawn(async move {
            for at in 0..chunks {
                let source = at as usize % sources.len();
                // If the source ends early, its failure is reported.
                let Some(data) = sources[source].next().await else { return };
                if events.send(ExchangeEvent::Chunk { vector, at, data }).await.is_err() {
                    return;
                }
            }
        });
        let for_others = SetProducer::new(header.clone());
        self.set.send_replace(Some(for_others.set()));
        self.arriving = Some(Arriving { for_others, own, own_count });
    }

    /// Handles the next of this worker's chunks, which has arrived from the coordinator.
    pub(crate) fn own_chunk(&mut self, data: Bytes) {
        let Some(Arriving { for_others, own, own_count }) = &mut self.arriving else { return };
        for_others.push(data.clone());
        // If the receiver is closed, the set has failed.
        own.send(data).unwrap_or(());
        own_count.send_modify(|count| *count += 1);
    }

    /// Records that a chunk of the parameters cannot be decoded. Returns the place of the member that passed it on.
    pub(crate) fn undecodable(&self, at: u64) -> usize {
        let place = at as usize % self.shards.members.len();
        self.tally.fault(place, PairFault::Undecodable, "the parameters that it passes on cannot be decoded".into());
        place
    }

    /// Returns the report to the coordinator, the first time that this is called.
    pub(crate) fn report(&mut self, has_failed: bool) -> Option<ExchangeReport> {
        if std::mem::replace(&mut self.has_reported, true) {
            return None;
        }
        let members = self.tally.report(self.shards.place, Instant::now());
        Some(ExchangeReport { vector: self.vector, has_failed, members })
    }

    pub(crate) fn address(&self, place: usize) -> String {
        self.shards.members.get(place).map(|member| member.address.to_string()).unwrap_or_default()
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.shards.place;
        (0..self.shards.members.len()).filter(move |place| *place != own)
    }

    fn connection(&self, place: usize) -> impl Future<Output = Result<Connection, OwnerFailure>> + Send + use<> {
        let (connection, endpoint) = (self.connections[place].clone(), self.shards.members[place].address.endpoint());
        async move {
            let made = connection.get_or_try_init(|| connect(&endpoint)).await;
            made.cloned().map_err(|error| OwnerFailure::new(place, PairFault::Unreachable, &error))
        }
    }

    /// Runs work with another member in the background. A failure is counted and reported.
    fn attempt(&mut self, work: impl Future<Output = Result<(), OwnerFailure>> + Send + 'static) {
        let (events, vector, tally) = (self.events.clone(), self.vector, self.tally.clone());
        self.tasks.spawn(async move {
            if let Err(OwnerFailure { place, fault, reason }) = work.await {
                tally.fault(place, fault, reason);
                // If the receiver is closed, the session is over.
                drop(events.send(ExchangeEvent::Failed { vector, place }).await);
            }
        });
    }
}

impl Drop for MemberExchange {
    fn drop(&mut self) {
        self.shards.members.iter().for_each(|member| self.peers.close(member.key));
    }
}
