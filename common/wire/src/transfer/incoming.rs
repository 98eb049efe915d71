//! Parameters and gradients from the body of a call.

use ata_types::Iteration;
use bytes::Bytes;
use http_body_util::BodyExt;
use prost::Message;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};

use super::decoder::{Decoder, Item};
use super::tensor::TensorReceiver;
use super::{Pool, ReceiveError};
use crate::limits::{CHUNK_TIMEOUT, HEADER_TIMEOUT};
use crate::net::Peer;
use crate::proto::{self, Chunk, GradientPart, TransferHeader, TransferPart, gradient_part, transfer_part};

/// The items of a call's body.
#[derive(Debug)]
pub(crate) struct CallBody {
    body: Body,
    decoder: Decoder,
    /// Bytes that arrived and were not decoded yet.
    arrived: Bytes,
    /// When the last chunk or message began.
    since: Instant,
}

impl CallBody {
    pub(crate) fn new(body: Body) -> Self {
        Self { body, decoder: Decoder::default(), arrived: Bytes::new(), since: Instant::now() }
    }

    /// The next item; `None` at the end of a call that went well. May be dropped and called again.
    async fn next(&mut self) -> Result<Option<Item>, ReceiveError> {
        loop {
            if let Some(item) = self.decoder.next(&mut self.arrived)? {
                if !matches!(item, Item::Data(_)) {
                    self.since = Instant::now();
                }
                return Ok(Some(item));
            }
            match self.body.frame().await {
                None if self.decoder.is_between_messages() => return Ok(None),
                None => return Err(Status::unknown("the call ended within a message").into()),
                Some(frame) => match frame?.into_data() {
                    Ok(data) => self.arrived = data,
                    Err(frame) => check_trailers(&frame)?,
                },
            }
        }
    }

    /// The next item, which must come within [`CHUNK_TIMEOUT`] of the beginning of its chunk, however small its pieces are.
    async fn next_soon(&mut self) -> Result<Option<Item>, ReceiveError> {
        let deadline = self.since + CHUNK_TIMEOUT;
        tokio::time::timeout_at(deadline, self.next()).await.map_err(|_| ReceiveError::Stalled)?
    }

    /// The only message of a response.
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

/// Whether the call succeeded. Trailers without a status are an error.
fn check_trailers(frame: &http_body::Frame<Bytes>) -> Result<(), Status> {
    let trailers = frame.trailers_ref();
    match trailers.and_then(Status::from_header_map) {
        Some(status) if status.code() == Code::Ok => Ok(()),
        Some(status) => Err(status),
        None => Err(Status::unknown("the call ended without a status")),
    }
}

fn decode<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    M::decode(message).map_err(|error| Status::internal(format!("a message cannot be decoded: {error}")))
}

/// The parts of a call, as the contract names them.
enum Part<H> {
    Header(H),
    /// A chunk, whole or its beginning.
    Chunk {
        crc32c: u32,
        bytes: usize,
        data: Bytes,
    },
    /// More data of the chunk.
    Data(Bytes),
}

impl<H> Part<H> {
    fn whole(chunk: Chunk) -> Self {
        Self::Chunk { crc32c: chunk.crc32c, bytes: chunk.data.len(), data: chunk.data }
    }

    /// `message` tells what a message is that is not an ordinary chunk.
    fn of(item: Item, message: impl FnOnce(Bytes) -> Result<Self, ReceiveError>) -> Result<Self, ReceiveError> {
        match item {
            Item::Message(bytes) => message(bytes),
            Item::Chunk { crc32c, bytes } => Ok(Self::Chunk { crc32c, bytes, data: Bytes::new() }),
            Item::Data(data) => Ok(Self::Data(data)),
        }
    }

    /// Adds to the tensor; headers come before it.
    fn add_to(self, tensor: &mut TensorReceiver, pool: &Pool, must_be_finite: bool) -> Result<(), ReceiveError> {
        let data = match self {
            Self::Header(_) => return Err(ReceiveError::Order("expected a chunk")),
            Self::Chunk { crc32c, bytes, data } => {
                tensor.begin(crc32c, bytes, pool)?;
                data
            }
            Self::Data(data) => data,
        };
        Ok(tensor.push(&data, must_be_finite)?)
    }
}

/// The sets of parameters that a coordinator sends to a session, one after the other.
#[derive(Debug)]
pub struct ParameterStream {
    incoming: CallBody,
    expected: u64,
    pool: Pool,
    /// The set that is arriving, and its iteration.
    arriving: Option<(Iteration, TensorReceiver)>,
}

impl ParameterStream {
    /// ParameterBody of `expected` values each, in vectors from `pool`, from the body of an answer.
    pub fn from_body(body: Body, expected: u64, pool: Pool) -> Self {
        Self::new(CallBody::new(body), expected, pool)
    }

    pub(crate) fn new(incoming: CallBody, expected: u64, pool: Pool) -> Self {
        Self { incoming, expected, pool, arriving: None }
    }

    /// The next set, and the iteration whose tasks are computed at it. May be dropped and called again.
    pub async fn next(&mut self) -> Result<(Iteration, Vec<f32>), ReceiveError> {
        loop {
            if let Some((_, tensor)) = &self.arriving
                && tensor.is_complete()
                && let Some((iteration, tensor)) = self.arriving.take()
            {
                return Ok((iteration, tensor.finish()?));
            }
            let item =
                if self.arriving.is_some() { self.incoming.next_soon().await } else { self.incoming.next().await };
            let item = item?.ok_or_else(|| Status::unavailable("the coordinator sends no more parameters"))?;
            match (Part::of(item, transfer_part)?, &mut self.arriving) {
                (Part::Header(TransferHeader { bytes, iteration }), None) => {
                    let tensor = TensorReceiver::new(bytes, self.expected)?;
                    self.arriving = Some((Iteration(iteration), tensor));
                }
                (part, Some((_, tensor))) => part.add_to(tensor, &self.pool, false)?,
                (_, None) => return Err(ReceiveError::Order("expected a header")),
            }
        }
    }
}

fn transfer_part(message: Bytes) -> Result<Part<TransferHeader>, ReceiveError> {
    match decode::<TransferPart>(message)?.kind {
        Some(transfer_part::Kind::Header(header)) => Ok(Part::Header(header)),
        Some(transfer_part::Kind::Chunk(chunk)) => Ok(Part::whole(chunk)),
        None => Err(ReceiveError::Order("an empty one")),
    }
}

/// A gradient that a worker sends.
#[derive(Debug)]
pub struct GradientUpload {
    incoming: CallBody,
    peer: Peer,
}

impl GradientUpload {
    /// A gradient from the body of a call.
    pub fn from_body(body: Body, peer: Peer) -> Self {
        Self { incoming: CallBody::new(body), peer }
    }

    /// The other end of its connection.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Receives the header, within [`HEADER_TIMEOUT`] or, while other gradients arrive on the same connection, within
    /// [`CHUNK_TIMEOUT`].
    pub async fn header(&mut self) -> Result<proto::GradientHeader, ReceiveError> {
        let item = loop {
            match tokio::time::timeout(HEADER_TIMEOUT, self.incoming.next_soon()).await {
                Ok(item) => break item?,
                Err(_) if self.peer.is_busy() => {}
                Err(_) => return Err(ReceiveError::Stalled),
            }
        };
        match item.map(|item| Part::of(item, gradient_part)).transpose()? {
            Some(Part::Header(header)) => Ok(header),
            _ => Err(ReceiveError::Order("expected a header")),
        }
    }

    /// Receives `expected` finite values after the header, in a vector from `pool`. Calls `heard` with the number of
    /// bytes whenever some arrive. The time before this call does not count.
    pub async fn values(
        mut self,
        expected: u64,
        pool: &Pool,
        mut heard: impl FnMut(usize),
    ) -> Result<Vec<f32>, ReceiveError> {
        let _counted = self.peer.upload();
        self.incoming.since = Instant::now();
        let mut tensor = TensorReceiver::new(expected * 4, expected)?;
        while let Some(item) = self.incoming.next_soon().await? {
            heard(item.bytes());
            Part::of(item, gradient_part)?.add_to(&mut tensor, pool, true)?;
        }
        Ok(tensor.finish()?)
    }
}

fn gradient_part(message: Bytes) -> Result<Part<proto::GradientHeader>, ReceiveError> {
    match decode::<GradientPart>(message)?.kind {
        Some(gradient_part::Kind::Header(header)) => Ok(Part::Header(header)),
        Some(gradient_part::Kind::Chunk(chunk)) => Ok(Part::whole(chunk)),
        None => Err(ReceiveError::Order("an empty one")),
    }
}
