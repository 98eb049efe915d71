//! Receives gradients from the body of a call.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::body::Body;

use super::ReceiveError;
use super::body::{BodyPart, CallBody, ChunkReceiver, decode};
use super::framed::Item;
use crate::limits::{CHUNK_TIMEOUT, HEADER_TIMEOUT};
use crate::proto::{self, GradientPart, gradient_part::Kind};
use ata_net::{CountedUpload, Peer};

/// The number of waits that [`HEADER_TIMEOUT`] is divided into.
const HEADER_WAITS: u32 = 5;

/// Receives a sum of gradients from a worker.
#[derive(Debug)]
pub struct GradientUpload {
    incoming: CallBody,
    peer: Peer,
    chunks: ChunkReceiver,
    /// The time at which the wait for the next part began, if it has.
    since: Option<Instant>,
    /// Counts the upload, from the wait for its first chunk on.
    counted: Option<CountedUpload>,
}

impl GradientUpload {
    /// Creates the upload from the body of a call. The time limit of its header starts now.
    pub fn from_body(body: Body, peer: Peer) -> Self {
        let (incoming, chunks) = (CallBody::new(body), ChunkReceiver::new());
        Self { incoming, peer, chunks, since: Some(Instant::now()), counted: None }
    }

    /// Returns the other end of the connection.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Receives the header, within [`HEADER_TIMEOUT`] or, while other gradients arrive on the same connection, within
    /// [`CHUNK_TIMEOUT`]. If this process stands still meanwhile, that is one of its waits, since nothing can arrive then.
    pub async fn header(&mut self) -> Result<proto::GradientHeader, ReceiveError> {
        self.header_in(HEADER_TIMEOUT / HEADER_WAITS).await
    }

    async fn header_in(&mut self, wait: Duration) -> Result<proto::GradientHeader, ReceiveError> {
        let mut waits = 0;
        let item = loop {
            match timeout(wait, self.next_soon()).await {
                Ok(item) => break item?,
                Err(_) if self.peer.is_busy() => waits = 0,
                Err(_) if waits + 1 == HEADER_WAITS => return Err(ReceiveError::Stalled),
                Err(_) => waits += 1,
            }
        };
        self.since = None;
        match item.map(|item| BodyPart::of(item, gradient_part)).transpose()? {
            Some(BodyPart::Header(header)) => Ok(header),
            _ => Err(ReceiveError::Order("expected a header")),
        }
    }

    /// Receives the data of the next chunk, and checks its checksum; `None` after the last. It must arrive within [`CHUNK_TIMEOUT`] of
    /// the first call for this chunk, so a receiver may hold the sender back by calling later. Calls `heard` with the number of
    /// bytes whenever some arrive. This is cancel safe.
    pub async fn chunk(&mut self, mut heard: impl FnMut(usize)) -> Result<Option<Bytes>, ReceiveError> {
        self.counted.get_or_insert_with(|| self.peer.upload());
        while let Some(item) = self.next_soon().await? {
            heard(item.bytes());
            if let Some(data) = BodyPart::of(item, gradient_part)?.add_to(&mut self.chunks)? {
                self.since = None;
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Returns the next item, which must arrive within [`CHUNK_TIMEOUT`] of the time at which the wait for its part began.
    async fn next_soon(&mut self) -> Result<Option<Item>, ReceiveError> {
        let deadline = *self.since.get_or_insert_with(Instant::now) + CHUNK_TIMEOUT;
        timeout_at(deadline, self.incoming.next()).await.map_err(|_| ReceiveError::Stalled)?
    }
}

fn gradient_part(message: Bytes) -> Result<BodyPart<proto::GradientHeader>, ReceiveError> {
    match decode::<GradientPart>(message)?.kind {
        Some(Kind::Header(header)) => Ok(BodyPart::Header(header)),
        Some(Kind::Chunk(chunk)) => Ok(BodyPart::whole(chunk)),
        None => Err(ReceiveError::Order("an empty one")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::framed_gradient;
    use super::*;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use std::pin::pin;
    use tokio::sync::mpsc;
    use tokio_stream::StreamExt;
    use tokio_stream::wrappers::ReceiverStream;
    use tonic::Status;

    /// Returns a gradient of two chunks, of which all but the last bytes have arrived.
    async fn unfinished() -> GradientUpload {
        let chunks = tokio_stream::iter(["first", "second"]).map(Bytes::from);
        let mut pieces: Vec<Bytes> = framed_gradient(proto::GradientHeader::default(), chunks).collect().await;
        pieces.last_mut().unwrap().truncate(3);
        let arrived = tokio_stream::iter(pieces).map(|piece| Ok::<_, Status>(Frame::data(piece)));
        let body = Body::new(StreamBody::new(arrived.chain(tokio_stream::pending())));
        GradientUpload::from_body(body, Peer::default())
    }

    #[tokio::test]
    async fn a_chunk_has_its_time_from_when_it_is_first_waited_for() {
        let mut upload = unfinished().await;
        upload.header().await.unwrap();
        assert_eq!((upload.since, upload.peer.is_busy()), (None, false));
        let mut heard = 0;
        assert_eq!(upload.chunk(|bytes| heard += bytes).await.unwrap().unwrap(), "first");
        assert_eq!((upload.since, heard), (None, 5), "the sender is held back");
        let briefly = Duration::from_millis(1);
        timeout(briefly, upload.chunk(|bytes| heard += bytes)).await.unwrap_err();
        let since = upload.since.expect("the chunk is waited for");
        timeout(briefly, upload.chunk(|bytes| heard += bytes)).await.unwrap_err();
        assert_eq!((upload.since, upload.peer.is_busy(), heard), (Some(since), true, 8));
        upload.since = Some(since - CHUNK_TIMEOUT);
        assert!(matches!(upload.chunk(|_| ()).await, Err(ReceiveError::Stalled)));
    }

    /// Whatever has happened to a clock, nobody has stalled whom this process did not listen to.
    #[tokio::test]
    async fn a_header_has_its_time_even_if_this_process_stands_still() {
        let wait = Duration::from_millis(50);
        let (sender, arrived) = mpsc::channel(1);
        let body = StreamBody::new(ReceiverStream::new(arrived).map(|piece| Ok::<_, Status>(Frame::data(piece))));
        let mut upload = GradientUpload::from_body(Body::new(body), Peer::default());
        let began = Instant::now();
        assert!(matches!(upload.header_in(wait).await, Err(ReceiveError::Stalled)));
        assert!(began.elapsed() >= HEADER_WAITS * wait);
        let mut header = pin!(upload.header_in(wait));
        for _ in 0..2 {
            let stands_still = async {
                std::thread::sleep(2 * HEADER_WAITS * wait);
                // Expired timers are seen before this resumes.
                tokio::task::yield_now().await;
            };
            tokio::select! {
                biased;
                early = header.as_mut() => panic!("{early:?}"),
                () = stands_still => {}
            }
        }
        let mut pieces = Box::pin(framed_gradient(proto::GradientHeader::default(), tokio_stream::empty()));
        sender.send(pieces.next().await.unwrap()).await.unwrap();
        header.await.unwrap();
    }
}
