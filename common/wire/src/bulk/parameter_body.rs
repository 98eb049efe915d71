//! The body of the answer to a call for parameters, and how far the peer has read it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use ata_net::Peer;
use ata_types::Iteration;
use bytes::Bytes;
use http_body::Frame;
use tokio_stream::Stream;
use tonic::Status;

use super::trailers;
use crate::transfer::{FramedSet, SetReader};

/// Tracks a download's progress. Clones track the same download; the default one never advances.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    peer: Peer,
    /// The iteration whose parameters are being sent; 0 if there is none.
    iteration: Arc<AtomicU64>,
    /// Whether their next piece has not been produced yet.
    waits: Arc<AtomicBool>,
    taken: Arc<AtomicU64>,
}

impl Reader {
    pub(super) fn new(peer: Peer) -> Self {
        Self { peer, ..Self::default() }
    }

    /// Returns the other end of the connection.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the iteration whose parameters are being sent, and which the call holds in memory.
    pub fn sending(&self) -> Option<Iteration> {
        Some(self.iteration.load(Ordering::Relaxed)).filter(|iteration| *iteration > 0).map(Iteration)
    }

    /// Returns the iteration whose parameters are being sent, or `None` if the call waits for their next piece to be produced. If
    /// [`Self::taken`] does not grow while this returns an iteration, the peer is not reading.
    pub fn reading(&self) -> Option<Iteration> {
        self.sending().filter(|_| !self.waits.load(Ordering::Relaxed))
    }

    /// Returns how many pieces the peer has taken, of all sets together.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Records which set is being sent, if any.
    fn sends(&self, iteration: Option<Iteration>) {
        self.iteration.store(iteration.map_or(0, Iteration::number), Ordering::Relaxed);
    }
}

/// Sends sets of parameters as they come, then the trailers.
pub(super) struct ParameterBody<S> {
    /// The sets to send next; `None` once the trailers have been sent.
    coming: Option<Pin<Box<S>>>,
    current: Option<SetReader>,
    reader: Reader,
}

impl<S> ParameterBody<S> {
    pub(super) fn new(sets: S, reader: Reader) -> Self {
        Self { coming: Some(Box::pin(sets)), current: None, reader }
    }

    /// Ends the call with UNAVAILABLE, and returns its trailers.
    fn end(&mut self, reason: &str) -> Frame<Bytes> {
        (self.coming, self.current) = (None, None);
        self.reader.sends(None);
        trailers(&Status::unavailable(reason))
    }
}

impl<S> Drop for ParameterBody<S> {
    fn drop(&mut self) {
        self.reader.sends(None);
    }
}

impl<S: Stream<Item = FramedSet>> http_body::Body for ParameterBody<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.reader.taken.fetch_add(1, Ordering::Relaxed);
        loop {
            let Self { coming, current, reader } = &mut *self;
            if let Some(set) = current {
                reader.waits.store(true, Ordering::Relaxed);
                match ready!(set.poll_piece(cx)) {
                    Some(Ok(piece)) => {
                        reader.waits.store(false, Ordering::Relaxed);
                        return Poll::Ready(Some(Ok(Frame::data(piece))));
                    }
                    Some(Err(())) => return Poll::Ready(Some(Ok(self.end("the parameters will not be complete")))),
                    None => {}
                }
            }
            *current = None;
            reader.sends(None);
            let Some(sets) = coming else { return Poll::Ready(None) };
            let Some(set) = ready!(sets.as_mut().poll_next(cx)) else {
                return Poll::Ready(Some(Ok(self.end("the session is over"))));
            };
            reader.sends(Some(set.iteration()));
            *current = Some(SetReader::new(set));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.coming.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::SetHeader;
    use crate::transfer::SetProducer;
    use http_body::Body;
    use std::task::Waker;
    use tokio_stream::StreamExt;

    /// Takes all pieces that are available, and returns how many.
    fn take(body: &mut ParameterBody<impl Stream<Item = FramedSet>>) -> usize {
        let mut next = || Pin::new(&mut *body).poll_frame(&mut Context::from_waker(Waker::noop()));
        std::iter::from_fn(|| match next() {
            Poll::Ready(Some(Ok(frame))) if frame.is_data() => Some(()),
            Poll::Ready(_) | Poll::Pending => None,
        })
        .count()
    }

    #[test]
    fn a_peer_that_waits_for_the_next_chunk_is_not_one_that_does_not_read() {
        let iteration = Iteration(3);
        let mut producer = SetProducer::new(SetHeader { iteration, chunks: 2, ..SetHeader::default() });
        let (reader, sets) = (Reader::new(Peer::default()), tokio_stream::iter([producer.set()]));
        let mut body = ParameterBody::new(sets.chain(tokio_stream::pending()), reader.clone());
        let status = || (reader.sending(), reader.reading());
        assert_eq!(status(), (None, None));
        assert_eq!((take(&mut body), status()), (1, (Some(iteration), None)), "there is no chunk yet");
        producer.push("chunk".into());
        let mut piece = || Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())).is_ready();
        assert_eq!((piece(), status()), (true, (Some(iteration), Some(iteration))), "the peer has to read it");
        let taken = reader.taken();
        assert_eq!((take(&mut body), status()), (1, (Some(iteration), None)));
        assert!(reader.taken() > taken);
        producer.push("chunk".into());
        assert_eq!((take(&mut body), status()), (2, (None, None)), "the set is sent");
        assert!(!body.is_end_stream(), "another set may come");
    }
}
