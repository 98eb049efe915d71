//! Encodes messages, chunks and gradients as the bytes of a gRPC call.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use tokio_stream::{Stream, StreamExt};

use super::chunk;
use super::decoder::{CHUNK_HEAD_BYTES, CHUNK_TAG, CRC_TAG, DATA_TAG, PREFIX_BYTES};
use crate::limits::MAX_CHUNK_BYTES;
use crate::proto::{self, GradientPart, gradient_part::Kind};

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
