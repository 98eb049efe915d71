//! Splits the body of a call into the parts of the protocol.

use bytes::Bytes;
use http_body_util::BodyExt;
use prost::Message;
use tonic::body::Body;
use tonic::{Code, Status};

use super::ReceiveError;
use super::chunk::ChunkReceiver;
use super::decoder::{Decoder, Item};
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
