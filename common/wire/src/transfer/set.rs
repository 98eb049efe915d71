//! Encodes a set of parameters as the bytes of calls, which are sent while the set is produced.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use ata_types::Iteration;
use bytes::Bytes;
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;

use super::framed::{framed_chunk, prefixed};
use crate::message::{SetHeader, Stripe};
use crate::proto::{ParameterPart, parameter_part::Kind};

/// The pieces of a set's bytes, two for each chunk. Each is set once, in order.
type Pieces = Arc<[OnceLock<[Bytes; 2]>]>;

/// Produces the chunks of a set of parameters. If it is dropped before the last, the calls that send the set end with UNAVAILABLE.
#[derive(Debug)]
pub struct SetProducer {
    header: SetHeader,
    pieces: Pieces,
    produced: usize,
    changes: watch::Sender<()>,
}

impl SetProducer {
    /// Begins a set.
    pub fn new(header: SetHeader) -> Self {
        let stripe = header.stripe.unwrap_or(Stripe::ALL);
        let pieces = stripe.chunks(0, header.chunks).map(|_| OnceLock::new()).collect();
        Self { header, pieces, produced: 0, changes: watch::Sender::default() }
    }

    /// Returns the set, which can be sent from now on.
    pub fn set(&self) -> FramedSet {
        FramedSet {
            header: self.header.clone(),
            sent: Stripe::ALL,
            pieces: self.pieces.clone(),
            changes: self.changes.subscribe(),
        }
    }

    /// Adds the next chunk. Its data should have a buffer of its own, since the set keeps it in memory. This needs no async runtime.
    ///
    /// # Panics
    /// Panics if the set is complete, or the chunk is empty or longer than [`MAX_CHUNK_BYTES`](crate::limits::MAX_CHUNK_BYTES).
    pub fn push(&mut self, data: Bytes) {
        self.pieces[self.produced].set(framed_chunk(data)).expect("chunks are set in order");
        self.produced += 1;
        self.changes.send_replace(());
    }
}

/// A set of parameters as the bytes of calls: framed once, and shared by the calls of all workers. Clones share it.
#[derive(Clone, Debug)]
pub struct FramedSet {
    header: SetHeader,
    sent: Stripe,
    pieces: Pieces,
    changes: watch::Receiver<()>,
}

impl FramedSet {
    /// Returns the iteration whose tasks are computed at these parameters.
    pub fn iteration(&self) -> Iteration {
        self.header.iteration
    }

    /// Restricts the set to the chunks of `stripe`, if there is one.
    #[must_use]
    pub fn stripe(self, stripe: Option<Stripe>) -> Self {
        let Some(sent) = stripe else { return self };
        Self { header: SetHeader { stripe, ..self.header }, sent, ..self }
    }
}

pub(crate) struct SetReader {
    pieces: Pieces,
    sent: Stripe,
    chunk: u64,
    /// Pieces to read before the next chunk, the last of them first.
    before: Vec<Bytes>,
    changes: WatchStream<()>,
}

impl SetReader {
    pub(crate) fn new(set: FramedSet) -> Self {
        let FramedSet { header, sent, pieces, changes } = set;
        let header = prefixed(&ParameterPart { kind: Some(Kind::Header(header.into())) });
        Self { pieces, sent, chunk: sent.first, before: vec![header], changes: WatchStream::from_changes(changes) }
    }

    /// Returns the next piece as soon as it has been produced, and `None` after the last; an error if the producer is dropped before.
    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ()>>> {
        loop {
            if let Some(piece) = self.before.pop() {
                return Poll::Ready(Some(Ok(piece)));
            }
            let Some(chunk) = self.pieces.get(self.chunk as usize) else { return Poll::Ready(None) };
            if let Some([head, data]) = chunk.get() {
                self.chunk += self.sent.stride;
                self.before.extend([data.clone(), head.clone()]);
            } else if ready!(Pin::new(&mut self.changes).poll_next(cx)).is_none() {
                return Poll::Ready(Some(Err(())));
            }
        }
    }
}
