//! Splits the body of a call into the parts of the protocol, and receives their chunks.

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use http_body_util::BodyExt;
use prost::Message;
use tonic::body::Body;
use tonic::{Code, Status};

use super::framed::{Decoder, Item};
use super::{ReceiveError, TransferError};
use crate::limits::MAX_CHUNK_BYTES;
use crate::proto::Chunk;

#[derive(Debug)]
pub(crate) struct CallBody {
    body: Body,
    decoder: Decoder,
    /// Bytes that have arrived and are not decoded yet.
    arrived: Bytes,
}

impl CallBody {
    pub(crate) fn new(body: Body) -> Self {
        Self { body, decoder: Decoder::default(), arrived: Bytes::new() }
    }

    /// Returns the next item, or `None` at the end of a successful call. This is cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<Item>, ReceiveError> {
        loop {
            if let Some(item) = self.decoder.next(&mut self.arrived)? {
                return Ok(Some(item));
            }
            match self.body.frame().await {
                None if self.decoder.is_between_messages() => return Ok(None),
                None => return Err(Status::unknown("the call ended within a message").into()),
                Some(frame) => match frame?.into_data() {
                    Ok(data) => self.arrived = data,
                    // Trailers without a status are an error.
                    Err(frame) => match frame.trailers_ref().and_then(Status::from_header_map) {
                        Some(status) if status.code() == Code::Ok => {}
                        Some(status) => return Err(status.into()),
                        None => return Err(Status::unknown("the call ended without a status").into()),
                    },
                },
            }
        }
    }

    /// Reads the only message of a response.
    pub(crate) async fn message<M: Message + Default>(&mut self) -> Result<M, ReceiveError> {
        let Some(Item::Message(message)) = self.next().await? else {
            return Err(ReceiveError::Order("expected a message"));
        };
        let decoded = decode(message)?;
        match self.next().await? {
            None => Ok(decoded),
            Some(_) => Err(ReceiveError::Order("expected the end")),
        }
    }
}

pub(super) fn decode<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    M::decode(message).map_err(|error| Status::internal(format!("a message cannot be decoded: {error}")))
}

/// A part of a call that carries vectors.
pub(super) enum BodyPart<H> {
    Header(H),
    /// A chunk, whole or only its beginning.
    Chunk {
        crc32c: u32,
        bytes: usize,
        data: Bytes,
    },
    Data(Bytes),
}

impl<H> BodyPart<H> {
    /// Returns the part for a chunk that generated code decoded.
    pub(super) fn whole(chunk: Chunk) -> Self {
        Self::Chunk { crc32c: chunk.crc32c, bytes: chunk.data.len(), data: chunk.data }
    }

    /// Converts an item to a part; `message` decodes a message that is not an ordinary chunk.
    pub(super) fn of(
        item: Item,
        message: impl FnOnce(Bytes) -> Result<Self, ReceiveError>,
    ) -> Result<Self, ReceiveError> {
        match item {
            Item::Message(bytes) => message(bytes),
            Item::Chunk { crc32c, bytes } => Ok(Self::Chunk { crc32c, bytes, data: Bytes::new() }),
            Item::Data(data) => Ok(Self::Data(data)),
        }
    }

    /// Passes a part that is not a header to `chunks`. Returns the chunk's data once it is complete.
    pub(super) fn add_to(self, chunks: &mut ChunkReceiver) -> Result<Option<Bytes>, ReceiveError> {
        let data = match self {
            Self::Header(_) => return Err(ReceiveError::Order("expected a chunk")),
            Self::Chunk { crc32c, bytes, data } => {
                chunks.begin(crc32c, bytes)?;
                data
            }
            Self::Data(data) => data,
        };
        Ok(chunks.push(data)?)
    }
}

/// Receives the chunks of a vector one after the other. Their data arrives in pieces of any size.
#[derive(Debug)]
pub(super) struct ChunkReceiver {
    pub(super) received: u64,
    /// The size of the current chunk, in bytes.
    bytes: usize,
    announced: u32,
    /// The checksum of the part of the chunk that has arrived.
    crc32c: Digest,
    /// The part of the chunk that has arrived, if it came in more than one piece.
    gathered: Vec<u8>,
}

impl ChunkReceiver {
    pub(super) fn new() -> Self {
        let crc32c = Digest::new(CrcAlgorithm::Crc32Iscsi);
        Self { received: 0, bytes: 0, announced: 0, crc32c, gathered: Vec::new() }
    }

    pub(super) fn begin(&mut self, crc32c: u32, bytes: usize) -> Result<(), TransferError> {
        if !(1..=MAX_CHUNK_BYTES).contains(&bytes) {
            return Err(TransferError::Chunk(bytes));
        }
        (self.bytes, self.announced) = (bytes, crc32c);
        self.crc32c.reset();
        Ok(())
    }

    /// Takes a piece of the chunk's data. Returns the whole data with the last piece.
    pub(super) fn push(&mut self, piece: Bytes) -> Result<Option<Bytes>, TransferError> {
        self.crc32c.update(&piece);
        let data = if piece.len() == self.bytes { piece } else { self.gather(&piece) };
        if data.len() < self.bytes {
            return Ok(None);
        }
        if self.crc32c.finalize() != u64::from(self.announced) {
            return Err(TransferError::Checksum(self.received));
        }
        self.received += 1;
        Ok(Some(data))
    }

    /// Adds a piece to the gathered ones. Returns all of them once the chunk is complete.
    fn gather(&mut self, piece: &[u8]) -> Bytes {
        let length = self.gathered.len() + piece.len();
        if length > self.gathered.capacity() {
            // An announcement alone must not reserve memory, and a chunk takes no more than its size.
            let capacity = (2 * length).min(self.bytes);
            self.gathered.reserve_exact(capacity - self.gathered.len());
        }
        self.gathered.extend_from_slice(piece);
        if length == self.bytes { std::mem::take(&mut self.gathered).into() } else { Bytes::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_takes_no_more_memory_than_it_has_bytes() {
        let data = Bytes::from(vec![7; MAX_CHUNK_BYTES]);
        let mut receiver = ChunkReceiver::new();
        receiver.begin(crc_fast::crc32_iscsi(&data), data.len()).unwrap();
        for piece in data.chunks(1000) {
            receiver.push(data.slice_ref(piece)).unwrap();
            assert!(receiver.gathered.capacity() <= data.len());
        }
        receiver.begin(crc_fast::crc32_iscsi(&data), data.len()).unwrap();
        assert_eq!(receiver.push(data.clone()).unwrap().unwrap().as_ptr(), data.as_ptr(), "one piece is not copied");
    }
}
