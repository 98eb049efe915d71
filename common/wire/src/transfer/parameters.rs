//! Receives parameters from the body of a call.

use bytes::Bytes;
use tonic::Status;
use tonic::body::Body;

use super::ReceiveError;
use super::body::{BodyPart, CallBody, ChunkReceiver, decode};
use crate::message::{SetHeader, Stripe};
use crate::proto::{self, parameter_part::Kind};

/// A part of the parameters that a coordinator sends to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterPart {
    /// The header of a set, which begins it.
    Set(SetHeader),
    /// The next chunk of the current set.
    Chunk {
        /// The number of the chunk; numbers ascend.
        at: u64,
        /// The values of the chunk, in the run's encoding.
        data: Bytes,
    },
}

/// Receives the sets of parameters that a coordinator sends to a session, one after the other.
#[derive(Debug)]
pub struct ParameterStream {
    incoming: CallBody,
    /// The number of chunks of the current set.
    announced: u64,
    stripe: Stripe,
    chunks: ChunkReceiver,
}

impl ParameterStream {
    /// Creates the stream from the body of an answer.
    pub fn from_body(body: Body) -> Self {
        Self { incoming: CallBody::new(body), announced: 0, stripe: Stripe::ALL, chunks: ChunkReceiver::new() }
    }

    /// Returns the next header or chunk, after checking its order and checksum. This is cancel safe.
    pub async fn next(&mut self) -> Result<ParameterPart, ReceiveError> {
        loop {
            let item = self.incoming.next().await?;
            let item = item.ok_or_else(|| Status::unavailable("the coordinator sends no more parameters"))?;
            let part = BodyPart::of(item, parameter_part)?;
            let at = self.stripe.first + self.chunks.received * self.stripe.stride;
            match part {
                BodyPart::Header(header) if at >= self.announced => {
                    let header = SetHeader::try_from(header).map_err(Status::from)?;
                    (self.announced, self.chunks) = (header.chunks, ChunkReceiver::new());
                    self.stripe = header.stripe.unwrap_or(Stripe::ALL);
                    return Ok(ParameterPart::Set(header));
                }
                _ if at >= self.announced => return Err(ReceiveError::Order("expected a header")),
                part => {
                    if let Some(data) = part.add_to(&mut self.chunks)? {
                        return Ok(ParameterPart::Chunk { at, data });
                    }
                }
            }
        }
    }
}

fn parameter_part(message: Bytes) -> Result<BodyPart<proto::SetHeader>, ReceiveError> {
    match decode::<proto::ParameterPart>(message)?.kind {
        Some(Kind::Header(header)) => Ok(BodyPart::Header(header)),
        Some(Kind::Chunk(chunk)) => Ok(BodyPart::whole(chunk)),
        None => Err(ReceiveError::Order("an empty one")),
    }
}
