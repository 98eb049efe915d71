//! Decodes the messages of a bulk call as their bytes arrive.

use bytes::{Buf, Bytes};
use tonic::Status;

use crate::limits::MESSAGE_BYTES;

/// The number of bytes before each message of a gRPC call: a flag for compression, and the length.
pub(super) const PREFIX_BYTES: usize = 5;

/// The maximum length of a part up to its chunk's data: two lengths of at most five bytes, three tags, and the checksum.
pub(super) const CHUNK_HEAD_BYTES: usize = 3 + 2 * 5 + 4;

/// The tag of a part's chunk: field 2 of wire type 2, which has a length.
pub(super) const CHUNK_TAG: u8 = 2 << 3 | 2;

/// The tag of a chunk's checksum: field 1 of wire type 5, which has four bytes.
pub(super) const CRC_TAG: u8 = 1 << 3 | 5;

/// The tag of a chunk's data: field 2 of wire type 2.
pub(super) const DATA_TAG: u8 = 2 << 3 | 2;

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
