//! The bytes of a gRPC call: encodes messages, chunks and gradients, and decodes messages and chunks as their bytes arrive.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use super::chunk;
use crate::limits::{MAX_CHUNK_BYTES, MESSAGE_BYTES};
use crate::proto::{self, GradientPart, gradient_part::Kind};

/// The number of bytes before each message of a gRPC call: a flag for compression, and the length.
const PREFIX_BYTES: usize = 5;

/// The maximum length of a part up to its chunk's data: two lengths of at most five bytes, three tags, and the checksum.
const CHUNK_HEAD_BYTES: usize = 3 + 2 * 5 + 4;

/// The tag of a part's chunk: field 2 of wire type 2, which has a length.
const CHUNK_TAG: u8 = 2 << 3 | 2;

/// The tag of a chunk's checksum: field 1 of wire type 5, which has four bytes.
const CRC_TAG: u8 = 1 << 3 | 5;

/// The tag of a chunk's data: field 2 of wire type 2.
const DATA_TAG: u8 = 2 << 3 | 2;

/// Encodes a gradient as the bytes of a call. Each chunk is taken from `chunks` only when it can be sent.
pub(crate) fn framed_gradient(
    header: proto::GradientHeader,
    chunks: impl Stream<Item = Bytes> + Send,
) -> impl Stream<Item = Bytes> + Send {
    let header = prefixed(&GradientPart { kind: Some(Kind::Header(header)) });
    tokio_stream::once(header).chain(FramedChunks { chunks: Box::pin(chunks), data: None })
}

struct FramedChunks<S> {
    chunks: Pin<Box<S>>,
    /// The data of the chunk whose head was taken last.
    data: Option<Bytes>,
}

impl<S: Stream<Item = Bytes>> Stream for FramedChunks<S> {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(data) = self.data.take() {
            return Poll::Ready(Some(data));
        }
        let chunk = ready!(self.chunks.as_mut().poll_next(cx));
        Poll::Ready(chunk.map(|data| {
            let [head, data] = framed_chunk(data);
            self.data = Some(data);
            head
        }))
    }
}

/// Converts a gradient to the parts that generated code sends.
pub fn gradient_parts(
    header: proto::GradientHeader,
    chunks: impl Iterator<Item = Bytes> + Send,
) -> impl Stream<Item = GradientPart> + Send {
    let chunks = chunks.map(|data| Kind::Chunk(chunk(data)));
    let parts = std::iter::once(Kind::Header(header)).chain(chunks);
    tokio_stream::iter(parts.map(|kind| GradientPart { kind: Some(kind) }))
}

/// Encodes a message with the prefix that gRPC requires.
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

/// Encodes a chunk as two pieces: the bytes before its data, and the data, which are not copied.
///
/// # Panics
/// Panics if the chunk is empty or longer than [`MAX_CHUNK_BYTES`].
pub(super) fn framed_chunk(data: Bytes) -> [Bytes; 2] {
    assert!((1..=MAX_CHUNK_BYTES).contains(&data.len()), "a chunk has 1 to {MAX_CHUNK_BYTES} bytes");
    // The head is the beginning of a part in the encoding of generated code, which is the same for gradients and parameters.
    let data_length = prost::length_delimiter_len(data.len());
    let chunk = 1 + 4 + 1 + data_length + data.len();
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + CHUNK_HEAD_BYTES);
    put_prefix(&mut bytes, 1 + prost::length_delimiter_len(chunk) + chunk);
    let room = "there is room";
    bytes.put_u8(CHUNK_TAG);
    prost::encode_length_delimiter(chunk, &mut bytes).expect(room);
    bytes.put_u8(CRC_TAG);
    bytes.put_u32_le(crc_fast::crc32_iscsi(&data));
    bytes.put_u8(DATA_TAG);
    prost::encode_length_delimiter(data.len(), &mut bytes).expect(room);
    [bytes.freeze(), data]
}

/// A piece of a bulk call.
#[derive(Debug)]
pub(super) enum Item {
    /// A whole message that is not a chunk in the usual encoding, whose fields ascend.
    Message(Bytes),
    /// The beginning of a chunk with this checksum and size; its data follows.
    Chunk { crc32c: u32, bytes: usize },
    /// Data of the current chunk; never empty.
    Data(Bytes),
}

impl Item {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Message(bytes) | Self::Data(bytes) => bytes.len(),
            Self::Chunk { .. } => 0,
        }
    }
}

/// Decodes the bytes of a call. The data of chunks is not gathered, so that memory is needed only for bytes that have arrived.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The beginning of a message.
    gathered: Vec<u8>,
    /// The number of bytes of the current chunk still to come.
    data_left: usize,
    /// Whether the current message is not an ordinary chunk.
    is_other: bool,
}

impl Decoder {
    /// Removes the next item from `bytes` and returns it; `None` if more bytes are needed.
    pub(super) fn next(&mut self, bytes: &mut Bytes) -> Result<Option<Item>, Status> {
        if self.data_left > 0 {
            let data = bytes.split_to(bytes.len().min(self.data_left));
            self.data_left -= data.len();
            return Ok((!data.is_empty()).then_some(Item::Data(data)));
        }
        if !self.gather(PREFIX_BYTES, bytes) {
            return Ok(None);
        }
        if self.gathered[0] != 0 {
            return Err(Status::unimplemented("compressed messages are not supported"));
        }
        let length = u32::from_be_bytes(self.gathered[1..PREFIX_BYTES].try_into().expect("four bytes")) as usize;
        if length > MESSAGE_BYTES {
            let text = format!("message of {length} bytes: expected at most {MESSAGE_BYTES}");
            return Err(Status::resource_exhausted(text));
        }
        while !self.is_other {
            if let Some((crc32c, bytes)) = chunk_head(&self.gathered[PREFIX_BYTES..], length) {
                self.gathered.clear();
                self.data_left = bytes;
                return Ok(Some(Item::Chunk { crc32c, bytes }));
            }
            self.is_other = self.gathered.len() == PREFIX_BYTES + length.min(CHUNK_HEAD_BYTES);
            // Gathered byte by byte, so that the data of a chunk is not gathered.
            if !self.is_other && !self.gather(self.gathered.len() + 1, bytes) {
                return Ok(None);
            }
        }
        if !self.gather(PREFIX_BYTES + length, bytes) {
            return Ok(None);
        }
        self.is_other = false;
        let message = Bytes::copy_from_slice(&self.gathered[PREFIX_BYTES..]);
        self.gathered.clear();
        Ok(Some(Item::Message(message)))
    }

    /// Returns `true` if only whole messages have arrived.
    pub(super) fn is_between_messages(&self) -> bool {
        self.data_left == 0 && self.gathered.is_empty()
    }

    /// Gathers bytes until there are `length` of them. Returns `false` if there are fewer.
    fn gather(&mut self, length: usize, bytes: &mut Bytes) -> bool {
        let more = length.saturating_sub(self.gathered.len()).min(bytes.len());
        self.gathered.extend_from_slice(&bytes[..more]);
        bytes.advance(more);
        self.gathered.len() >= length
    }
}

/// Reads the first bytes of a message of `length` bytes. Returns the checksum of a chunk in the usual encoding, and the size of its data;
/// `None` if the bytes are incomplete, or not the beginning of a chunk.
fn chunk_head(first: &[u8], length: usize) -> Option<(u32, usize)> {
    let mut rest = first;
    let take = |rest: &mut &[u8], tag: u8| {
        let found = rest.first() == Some(&tag);
        rest.advance(found.into());
        found
    };
    let whole = |rest: &mut &[u8]| {
        let announced = prost::decode_length_delimiter(&mut *rest).ok()?;
        (announced > 0 && announced == length - (first.len() - rest.len())).then_some(announced)
    };
    if !take(&mut rest, CHUNK_TAG) {
        return None;
    }
    whole(&mut rest)?;
    // The encoding leaves out a field that is zero.
    let crc32c = if take(&mut rest, CRC_TAG) { rest.try_get_u32_le().ok()? } else { 0 };
    if !take(&mut rest, DATA_TAG) {
        return None;
    }
    Some((crc32c, whole(&mut rest)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes equal those of generated code, which leaves out a checksum of zero. A reader cannot tell the difference.
    #[tokio::test]
    async fn framed_as_generated_code_would() {
        for size in [1, 100, 127, 128, 16_384, MAX_CHUNK_BYTES] {
            let header = proto::GradientHeader { vector: 5, ..Default::default() };
            let chunks = [size, 7].map(|size| Bytes::from((0..size).map(|at| at as u8).collect::<Vec<u8>>()));
            let own: Vec<u8> =
                framed_gradient(header.clone(), tokio_stream::iter(chunks.clone())).collect::<Vec<_>>().await.concat();
            let parts: Vec<Bytes> =
                gradient_parts(header, chunks.into_iter()).map(|part| prefixed(&part)).collect().await;
            assert!(own == parts.concat(), "{size} bytes");
        }
    }
}
