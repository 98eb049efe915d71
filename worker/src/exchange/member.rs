//! The part that this worker has in one exchange.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use ata_learn::{GradientSum, encode_sums};
use ata_types::{CHUNK_VALUES, Iteration, VectorId, WireFormat};
use ata_wire::{
    Collection, Connection, FramedSet, GradientHeader, ParameterPart, SetHeader, SetProducer, Shards, connect,
};
use bytes::Bytes;
use tokio::sync::{OnceCell, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};

use super::owner::{Failure, Owner};
use super::peers::{OpenExchange, PeerUpload, Peers};
use crate::transfer::total;

/// Chunks that may wait between two tasks: enough that none of them has to wait for another.
const QUEUED_CHUNKS: usize = 8;

/// A connection that is made when it is needed first.
type LazyConnection = Arc<OnceCell<Connection>>;

/// The connections to other workers, by address.
#[derive(Debug, Default)]
pub(crate) struct Connections(HashMap<String, LazyConnection>);

impl Connections {
    /// Those to the members of an exchange.
    fn of(&mut self, shards: &Shards) -> Vec<LazyConnection> {
        let addresses: Vec<String> = shards.members.iter().map(ToString::to_string).collect();
        self.0.retain(|_, connection| connection.initialized());
        addresses.into_iter().map(|address| self.0.entry(address).or_default().clone()).collect()
    }

    /// Closes the one to a worker that could not be worked with.
    pub(crate) fn forget(&mut self, address: &str) {
        self.0.remove(address);
    }
}

/// What happens in an exchange.
#[derive(Debug)]
pub(crate) struct ExchangeEvent {
    /// The vector that was asked for.
    pub(crate) collection: VectorId,
    pub(crate) outcome: Outcome,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    /// The next chunk of the parameters.
    Chunk { at: u64, data: Bytes },
    /// Another member could not be worked with.
    Failed { place: usize, reason: String },
}

/// An exchange, until it is dropped.
pub(crate) struct Exchange {
    pub(crate) collection: VectorId,
    /// The iteration of the gradients.
    pub(crate) iteration: Iteration,
    /// Whether a member could not be worked with, which the coordinator was told.
    pub(crate) has_failed: bool,
    shards: Shards,
    connections: Vec<LazyConnection>,
    format: WireFormat,
    /// The others' sums, until they are added up.
    uploads: Option<mpsc::Receiver<PeerUpload>>,
    /// The chunks of the next parameters that belong to this worker, for the others.
    set: watch::Sender<Option<FramedSet>>,
    /// While the next parameters arrive.
    arriving: Option<Arriving>,
    events: mpsc::Sender<ExchangeEvent>,
    peers: Peers,
    /// Ends what is sent to the coordinator when it is dropped.
    alive: Option<oneshot::Sender<()>>,
    tasks: JoinSet<()>,
}

/// This worker's chunks of a set that arrives.
struct Arriving {
    for_others: SetProducer,
    own: mpsc::UnboundedSender<Bytes>,
}

impl Exchange {
    /// Takes part in the exchange that a collection asks for; `None` if it asks for none.
    pub(crate) fn open(
        collection: &Collection,
        format: WireFormat,
        peers: &Peers,
        connections: &mut Connections,
        events: &mpsc::Sender<ExchangeEvent>,
    ) -> Option<Self> {
        let shards = collection.shards.clone()?;
        let (sender, uploads) = mpsc::channel(shards.members.len());
        let (set, of_set) = watch::channel(None);
        peers.open(shards.key, OpenExchange { uploads: sender, set: of_set });
        let connections = connections.of(&shards);
        let mut exchange = Self {
            collection: collection.id,
            iteration: collection.iteration,
            has_failed: false,
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
        // Connections are made while the tasks are computed.
        for place in exchange.others() {
            let connection = exchange.connection(place);
            exchange.attempt(place, async move { connection.await.map(drop) });
        }
        Some(exchange)
    }

    /// Sends the sum to the other members, and adds theirs to it. Returns the totals of this worker's chunks, for the
    /// coordinator, and what resolves if they will not be complete.
    pub(crate) fn send(
        &mut self,
        header: &GradientHeader,
        sums: &[Arc<GradientSum>],
    ) -> (impl Stream<Item = Bytes> + Send + use<>, oneshot::Receiver<()>) {
        let values = sums.first().map_or(0, |sum| sum.values.len());
        let chunks = values.div_ceil(CHUNK_VALUES) as u64;
        let from = VectorId(self.shards.place as u64 + 1);
        for place in self.others() {
            let header = GradientHeader { session: self.shards.key, vector: Some(from), ..header.clone() };
            let (connection, sums, format) = (self.connection(place), sums.to_vec(), self.format);
            let of_it = self.shards.of(place).chunks(0, chunks);
            let of_it = of_it.map(move |at| Bytes::from(encode_sums(format, &total(&sums, at))));
            self.attempt(place, async move {
                let sent = connection.await?.submit_gradient(header, tokio_stream::iter(of_it)).await;
                sent.map(drop).map_err(|error| error.to_string())
            });
        }
        let (totals, of_coordinator) = mpsc::channel(QUEUED_CHUNKS);
        let shard = self.shards.of(self.shards.place);
        let owner = Owner { own: sums.to_vec(), shard, format: self.format, totals };
        let (reports, collection) = (self.events.clone(), self.collection);
        let uploads = self.uploads.take();
        self.tasks.spawn(async move {
            let Some(mut uploads) = uploads else { return };
            if let Err(failure) = owner.run(&mut uploads).await {
                report(&reports, collection, failure).await;
            }
        });
        let (alive, over) = oneshot::channel();
        self.alive = Some(alive);
        // A call that ended early would be a fault of this worker's.
        let own = shard.chunks(0, chunks).count();
        (ReceiverStream::new(of_coordinator).chain(tokio_stream::pending()).take(own), over)
    }

    /// The next parameters begin to arrive, of which the coordinator sends this worker's chunks.
    pub(crate) fn begin_set(&mut self, header: &SetHeader) {
        let (own, from_coordinator) = mpsc::unbounded_channel();
        let mut sources: Vec<Source> = Vec::new();
        let mut from_coordinator = Some(from_coordinator);
        for place in 0..self.shards.members.len() {
            if place == self.shards.place {
                sources.extend(from_coordinator.take().map(Source::Coordinator));
                continue;
            }
            let (chunks, source) = mpsc::channel(QUEUED_CHUNKS);
            sources.push(Source::Member(source));
            let (connection, key, shard) = (self.connection(place), self.shards.key, self.shards.of(place));
            let expected = SetHeader { shard: Some(shard), ..header.clone() };
            self.attempt(place, async move {
                let mut stream = connection.await?.parameters(key).await.map_err(|status| status.to_string())?;
                let mut left = shard.chunks(0, expected.chunks).count();
                loop {
                    match stream.next().await.map_err(|error| error.to_string())? {
                        ParameterPart::Set(found) if found == expected => {}
                        ParameterPart::Set(_) => return Err("it has other parameters".into()),
                        ParameterPart::Chunk { data, .. } => {
                            left -= 1;
                            if chunks.send(data).await.is_err() || left == 0 {
                                return Ok(());
                            }
                        }
                    }
                }
            });
        }
        let (events, collection, chunks) = (self.events.clone(), self.collection, header.chunks);
        self.tasks.spawn(async move {
            for at in 0..chunks {
                let source = at as usize % sources.len();
                // If it ends early, the failure is reported.
                let Some(data) = sources[source].next().await else { return };
                if events.send(ExchangeEvent { collection, outcome: Outcome::Chunk { at, data } }).await.is_err() {
                    return;
                }
            }
        });
        let for_others = SetProducer::new(header.clone());
        self.set.send_replace(Some(for_others.set()));
        self.arriving = Some(Arriving { for_others, own });
    }

    /// The next of this worker's chunks has come from the coordinator.
    pub(crate) fn own_chunk(&mut self, data: Bytes) {
        let Some(Arriving { for_others, own }) = &mut self.arriving else { return };
        for_others.push(data.clone());
        // Without a receiver the set failed.
        own.send(data).unwrap_or(());
    }

    /// The address of the member at some place.
    pub(crate) fn address(&self, place: usize) -> String {
        self.shards.members.get(place).map(ToString::to_string).unwrap_or_default()
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.shards.place;
        (0..self.shards.members.len()).filter(move |place| *place != own)
    }

    fn connection(&self, place: usize) -> impl Future<Output = Result<Connection, String>> + Send + use<> {
        let (connection, endpoint) = (self.connections[place].clone(), self.shards.members[place].endpoint());
        async move {
            let made = connection.get_or_try_init(|| connect(&endpoint)).await;
            made.cloned().map_err(|error| error.to_string())
        }
    }

    /// Does something with another member. A failure is reported.
    fn attempt(&mut self, place: usize, work: impl Future<Output = Result<(), String>> + Send + 'static) {
        let (events, collection) = (self.events.clone(), self.collection);
        self.tasks.spawn(async move {
            if let Err(reason) = work.await {
                report(&events, collection, Failure { place, reason }).await;
            }
        });
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.peers.close(self.shards.key);
    }
}

/// Where chunks of the next parameters come from.
enum Source {
    Coordinator(mpsc::UnboundedReceiver<Bytes>),
    Member(mpsc::Receiver<Bytes>),
}

impl Source {
    async fn next(&mut self) -> Option<Bytes> {
        match self {
            Self::Coordinator(chunks) => chunks.recv().await,
            Self::Member(chunks) => chunks.recv().await,
        }
    }
}

async fn report(events: &mpsc::Sender<ExchangeEvent>, collection: VectorId, failure: Failure) {
    let Failure { place, reason } = failure;
    // Without a receiver the session is over.
    drop(events.send(ExchangeEvent { collection, outcome: Outcome::Failed { place, reason } }).await);
}
