//! Transfers of files, which go through generated code.

use bytes::Bytes;
use crc_fast::crc32_iscsi;
use tonic::Streaming;

use super::{ReceiveError, TransferError};
use crate::limits::{CHUNK_TIMEOUT, FILE_CHUNK_BYTES};
use crate::proto::{Chunk, TransferPart, transfer_part::Kind};

/// Makes one chunk with its checksum.
pub fn chunk(data: Bytes) -> Chunk {
    Chunk { crc32c: crc32_iscsi(&data), data }
}

/// Receives a file of known size, and checks its chunks.
#[derive(Debug)]
pub struct FileReceiver {
    parts: Streaming<TransferPart>,
    received: u64,
    expected: u64,
}

impl FileReceiver {
    /// Receives the header of a file that should have `expected` bytes. This may take long, as only a few files are sent at a time.
    pub async fn begin(mut parts: Streaming<TransferPart>, expected: u64) -> Result<Self, ReceiveError> {
        let Some(Some(Kind::Header(header))) = parts.message().await?.map(|part| part.kind) else {
            return Err(ReceiveError::Order("expected a header"));
        };
        let this = Self { parts, received: header.bytes, expected };
        this.check_size()?;
        Ok(Self { received: 0, ..this })
    }

    /// Receives the data of the next chunk; `None` after the last.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ReceiveError> {
        let message = tokio::time::timeout(CHUNK_TIMEOUT, self.parts.message());
        match message.await.map_err(|_| ReceiveError::Stalled)??.map(|part| part.kind) {
            None => Ok(self.check_size().map(|()| None)?),
            Some(Some(Kind::Chunk(chunk))) => Ok(self.check(chunk).map(Some)?),
            Some(_) => Err(ReceiveError::Order("expected a chunk")),
        }
    }

    fn check(&mut self, Chunk { crc32c, data }: Chunk) -> Result<Bytes, TransferError> {
        let (bytes, left) = (data.len() as u64, self.expected - self.received);
        if bytes > left {
            return Err(TransferError::Size { found: self.received + bytes, expected: self.expected });
        }
        if bytes == 0 || bytes != left.min(FILE_CHUNK_BYTES as u64) {
            return Err(TransferError::FileChunk(data.len()));
        }
        if crc32_iscsi(&data) != crc32c {
            return Err(TransferError::Checksum(self.received / FILE_CHUNK_BYTES as u64));
        }
        self.received += bytes;
        Ok(data)
    }

    fn check_size(&self) -> Result<(), TransferError> {
        let Self { received: found, expected, .. } = *self;
        if found == expected { Ok(()) } else { Err(TransferError::Size { found, expected }) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::prefixed;
    use super::*;
    use crate::proto::TransferHeader;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use tonic::Status;
    use tonic_prost::ProstDecoder;

    async fn receive(kinds: Vec<Kind>, expected: u64) -> Result<(), ReceiveError> {
        let frame = |kind| Ok::<_, Status>(Frame::data(prefixed(&TransferPart { kind: Some(kind) })));
        let body = StreamBody::new(tokio_stream::iter(kinds.into_iter().map(frame)));
        let parts = Streaming::new_request(ProstDecoder::default(), body, None, None);
        let mut receiver = FileReceiver::begin(parts, expected).await?;
        while receiver.chunk().await?.is_some() {}
        Ok(())
    }

    #[tokio::test]
    async fn damage_is_found() {
        let bytes = FILE_CHUNK_BYTES as u64 + 5;
        let header = |bytes| Kind::Header(TransferHeader { bytes });
        let whole = || Kind::Chunk(chunk(vec![1; FILE_CHUNK_BYTES].into()));
        let last = || Kind::Chunk(chunk(vec![2; 5].into()));
        let flipped = |data: Vec<u8>| Kind::Chunk(Chunk { crc32c: 7, data: data.into() });
        receive(vec![header(bytes), whole(), last()], bytes).await.unwrap();
        for (kinds, said) in [
            (vec![], "expected a header"),
            (vec![last()], "expected a header"),
            (vec![header(bytes), whole(), header(bytes)], "expected a chunk"),
            (vec![header(bytes - 4)], "transfer of 1048577 bytes: expected 1048581"),
            (vec![header(bytes), whole()], "transfer of 1048576 bytes: expected 1048581"),
            (vec![header(bytes), last()], "chunk of 5 bytes"),
            (vec![header(bytes), whole(), whole()], "transfer of 2097152 bytes"),
            (vec![header(bytes), whole(), last(), Kind::Chunk(Chunk::default())], "chunk of 0 bytes"),
            (vec![header(bytes), flipped(vec![1; FILE_CHUNK_BYTES])], "wrong checksum in chunk 0"),
            (vec![header(bytes), whole(), flipped(vec![2; 5])], "wrong checksum in chunk 1"),
        ] {
            let error = receive(kinds, bytes).await.unwrap_err().to_string();
            assert!(error.contains(said), "{said}: {error}");
        }
    }
}
