//! A tensor as the bytes of a gRPC call.

use std::sync::Arc;

use ata_types::Iteration;
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use super::checksum::crc32c;
use super::decoder::{CHUNK_HEAD_BYTES, CHUNK_TAG, CRC_TAG, DATA_TAG, PREFIX_BYTES};
use crate::limits::CHUNK_BYTES;
use crate::proto::{self, GradientPart, TransferPart, gradient_part, transfer_part};

/// Pieces at the end of a set that the connection may still hold when its call goes on to the next one: a chunk and what
/// precedes it, of those that HTTP/2 buffers together.
const LAST_PIECES: usize = 4;

/// Parameters as the bytes of a call: framed once, and shared by the calls of all workers.
#[derive(Clone, Debug)]
pub struct FramedTensor {
    iteration: Iteration,
    pieces: Arc<[Bytes]>,
}

impl FramedTensor {
    /// The parameters of an iteration, little-endian f32.
    pub fn new(iteration: Iteration, values: Bytes) -> Self {
        let header = proto::TransferHeader { bytes: values.len() as u64, iteration: iteration.number() };
        let header = TransferPart { kind: Some(transfer_part::Kind::Header(header)) };
        let mut pieces: Vec<Bytes> = framed(prefixed(&header), values).collect();
        // Copies, so that the end of a set that is not read keeps no more than itself in memory.
        let first = pieces.len().saturating_sub(LAST_PIECES);
        pieces[first..].iter_mut().for_each(|piece| *piece = Bytes::copy_from_slice(piece));
        Self { iteration, pieces: pieces.into() }
    }

    /// The iteration.
    pub(crate) fn iteration(&self) -> Iteration {
        self.iteration
    }

    /// The `at`-th piece of its bytes.
    pub(crate) fn piece(&self, at: usize) -> Option<&Bytes> {
        self.pieces.get(at)
    }
}

/// A gradient as the bytes of a call, little-endian f32. Checksums are computed as the pieces are asked for.
pub(crate) fn framed_gradient(header: proto::GradientHeader, values: Bytes) -> impl Iterator<Item = Bytes> + Send {
    let header = prefixed(&GradientPart { kind: Some(gradient_part::Kind::Header(header)) });
    framed(header, values)
}

/// A message with the prefix that gRPC wants.
pub(crate) fn prefixed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + length);
    put_prefix(&mut bytes, length);
    message.encode(&mut bytes).expect("there is room");
    bytes.freeze()
}

fn put_prefix(bytes: &mut BytesMut, length: usize) {
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).expect("messages are short"));
}

/// The header, then each chunk as two pieces: what precedes its data, and the data, which are not copied.
fn framed(header: Bytes, values: Bytes) -> impl Iterator<Item = Bytes> + Send {
    let chunks = (0..values.len()).step_by(CHUNK_BYTES).flat_map(move |start| {
        let data = values.slice(start..values.len().min(start + CHUNK_BYTES));
        [chunk_head(&data), data]
    });
    std::iter::once(header).chain(chunks)
}

/// What precedes the data of a chunk: the beginning of a part, as generated code would encode it. Gradients and parameters
/// have the same.
fn chunk_head(data: &[u8]) -> Bytes {
    let data_length = prost::length_delimiter_len(data.len());
    let chunk = 1 + 4 + 1 + data_length + data.len();
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + CHUNK_HEAD_BYTES);
    put_prefix(&mut bytes, 1 + prost::length_delimiter_len(chunk) + chunk);
    let room = "there is room";
    bytes.put_u8(CHUNK_TAG);
    prost::encode_length_delimiter(chunk, &mut bytes).expect(room);
    bytes.put_u8(CRC_TAG);
    bytes.put_u32_le(crc32c(data));
    bytes.put_u8(DATA_TAG);
    prost::encode_length_delimiter(data.len(), &mut bytes).expect(room);
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::super::{Pool, chunks};
    use super::*;

    /// The bytes that generated code sends; it leaves out a checksum of zero, which no reader can tell from one sent.
    #[test]
    fn framed_as_generated_code_would() {
        for count in [1, 100, CHUNK_BYTES / 4, CHUNK_BYTES / 4 + 1] {
            let values = Pool::default().lend((0..count).map(|at| at as f32).collect());
            let header = proto::GradientHeader { lease: 5, ..Default::default() };
            let own: Vec<u8> = framed_gradient(header.clone(), values.clone()).flatten().collect();
            let kinds = std::iter::once(gradient_part::Kind::Header(header))
                .chain(chunks(values).map(gradient_part::Kind::Chunk));
            let generated: Vec<u8> = kinds.flat_map(|kind| prefixed(&GradientPart { kind: Some(kind) })).collect();
            assert!(own == generated, "{count} values");
        }
    }
}
