//! Decodes the messages of a bulk call as their bytes arrive.

use bytes::{Buf, Bytes};
use tonic::Status;

use crate::limits::MESSAGE_BYTES;

/// The number of bytes before each message of a gRPC call: a flag for compression, and the length.
pub(super) const PREFIX_BYTES: usize = 5;

/// The maximum length of the beginning of a part that holds a chunk, up to the chunk's data: two lengths of at most five bytes, three
/// tags, and the checksum.
pub(super) const CHUNK_HEAD_BYTES: usize = 3 + 2 * 5 + 4;

/// The tag of a part's chunk: field 2 of wire type 2, which has a length.
pub(super) const CHUNK_TAG: u8 = 2 << 3 | 2;

/// The tag of a chunk's checksum: field 1 of wire type 5, which has four bytes.
pub(super) const CRC_TAG: u8 = 1 << 3 | 5;

/// The tag of a chunk's data: field 2 of wire type 2.
pub(super) const DATA_TAG: u8 = 2 << 3 | 2;

/// A piece of a bulk call.
#[derive(Debug, PartialEq)]
pub(super) enum Item {
    /// A whole message that is not a chunk in the usual encoding, whose fields ascend.
    Message(Bytes),
    /// The beginning of a chunk with this checksum and size; its data follows.
    Chunk { crc32c: u32, bytes: usize },
    /// Data of the current chunk; never empty.
    Data(Bytes),
}

impl Item {
    /// Returns the number of bytes that the item holds.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Message(bytes) | Self::Data(bytes) => bytes.len(),
            Self::Chunk { .. } => 0,
        }
    }
}

/// Decodes the bytes of a call. The data of chunks passes through without being gathered, so that memory is needed only for bytes that
/// have arrived.
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
            return Ok(self.data(bytes));
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
            if let Some(head) = ChunkHead::read(&self.gathered[PREFIX_BYTES..], length) {
                return Ok(Some(self.chunk(&head)));
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

    /// Begins a chunk, whose head has just been gathered.
    fn chunk(&mut self, head: &ChunkHead) -> Item {
        self.gathered.clear();
        self.data_left = head.data_bytes;
        Item::Chunk { crc32c: head.crc32c, bytes: head.data_bytes }
    }

    fn data(&mut self, bytes: &mut Bytes) -> Option<Item> {
        if bytes.is_empty() {
            return None;
        }
        let data = bytes.split_to(bytes.len().min(self.data_left));
        self.data_left -= data.len();
        Some(Item::Data(data))
    }

    /// Gathers bytes until there are `length` of them. Returns `false` if there are fewer.
    fn gather(&mut self, length: usize, bytes: &mut Bytes) -> bool {
        let more = length.saturating_sub(self.gathered.len()).min(bytes.len());
        self.gathered.extend_from_slice(&bytes[..more]);
        bytes.advance(more);
        self.gathered.len() >= length
    }
}

/// The beginning of a part that holds a chunk in the usual encoding.
struct ChunkHead {
    crc32c: u32,
    data_bytes: usize,
}

impl ChunkHead {
    /// Reads the first bytes of a message of `length` bytes. Returns `None` if they are incomplete, or not the beginning of a chunk.
    fn read(first: &[u8], length: usize) -> Option<Self> {
        let mut rest = first;
        let take = |rest: &mut &[u8], tag: u8| {
            let found = rest.first() == Some(&tag);
            if found {
                rest.advance(1);
            }
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
        let data_bytes = whole(&mut rest)?;
        Some(Self { crc32c, data_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{Chunk, GradientHeader, GradientPart, gradient_part::Kind};
    use proptest::prelude::*;
    use prost::Message;

    /// Returns all items that a decoder finds in `bytes` that arrive in pieces, with the data of each chunk joined.
    fn decode(bytes: &[u8], pieces: &[usize]) -> Result<Vec<Item>, Status> {
        let mut decoder = Decoder::default();
        let (mut items, mut rest) = (Vec::new(), bytes);
        let mut pieces = pieces.iter().cycle();
        while !rest.is_empty() {
            let (piece, later) = rest.split_at((*pieces.next().unwrap()).clamp(1, rest.len()));
            rest = later;
            let mut piece = Bytes::copy_from_slice(piece);
            while let Some(item) = decoder.next(&mut piece)? {
                match (items.last_mut(), item) {
                    (Some(Item::Data(before)), Item::Data(more)) => *before = [&before[..], &more].concat().into(),
                    (_, item) => items.push(item),
                }
            }
            assert!(piece.is_empty());
        }
        assert!(decoder.is_between_messages());
        Ok(items)
    }

    fn prefixed(message: &[u8]) -> Vec<u8> {
        [&[0], &(message.len() as u32).to_be_bytes()[..], message].concat()
    }

    proptest! {
        /// Parts in the encoding of generated code are decoded from pieces of any size.
        #[test]
        fn pieces_do_not_matter(
            sizes in prop::collection::vec(1usize..300, 0..5),
            pieces in prop::collection::vec(1usize..100, 1..5),
            crc32c in prop_oneof![Just(0), any::<u32>()],
        ) {
            let header = GradientPart { kind: Some(Kind::Header(GradientHeader { vector: 7, ..Default::default() })) };
            let mut bytes = prefixed(&header.encode_to_vec());
            let mut expected = vec![Item::Message(header.encode_to_vec().into())];
            for size in sizes {
                let data = Bytes::from(vec![size as u8; size]);
                let part = GradientPart { kind: Some(Kind::Chunk(Chunk { crc32c, data: data.clone() })) };
                bytes.extend(prefixed(&part.encode_to_vec()));
                expected.extend([Item::Chunk { crc32c, bytes: size }, Item::Data(data)]);
            }
            prop_assert_eq!(decode(&bytes, &pieces).unwrap(), expected);
        }

        /// Any input is either decoded or refused, and no more is gathered than a message may hold.
        #[test]
        fn any_bytes_are_accepted_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::default();
            let mut bytes = Bytes::from(bytes);
            while let Ok(Some(_)) = decoder.next(&mut bytes) {}
        }
    }

    /// A conforming encoder may write fields in any order.
    #[test]
    fn an_unusual_encoding_is_a_message() {
        let chunk = [&[DATA_TAG, 3, 1, 2, 3, CRC_TAG][..], &9_u32.to_le_bytes()].concat();
        let part = [&[CHUNK_TAG, chunk.len() as u8][..], &chunk].concat();
        let expected = GradientPart { kind: Some(Kind::Chunk(Chunk { crc32c: 9, data: vec![1, 2, 3].into() })) };
        assert_eq!(GradientPart::decode(&part[..]).unwrap(), expected);
        assert_eq!(decode(&prefixed(&part), &[4]).unwrap(), [Item::Message(part.into())]);
    }

    #[test]
    fn what_is_too_long_or_compressed_is_refused() {
        let long = [&[0], &(MESSAGE_BYTES as u32 + 1).to_be_bytes()[..]].concat();
        assert_eq!(decode(&long, &[9]).unwrap_err().code(), tonic::Code::ResourceExhausted);
        assert_eq!(decode(&[1, 0, 0, 0, 1, 0], &[9]).unwrap_err().code(), tonic::Code::Unimplemented);
    }
}
