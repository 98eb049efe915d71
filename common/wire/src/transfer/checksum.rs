//! CRC-32C (RFC 3720, appendix B.4), the checksum of chunks.

use crc_fast::{CrcAlgorithm, Digest};

/// Computes the checksum of bytes that arrive in pieces.
#[derive(Debug)]
pub(super) struct Crc32c(Digest);

impl Crc32c {
    /// Starts with the checksum of no bytes.
    pub(super) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the checksum of the bytes added so far.
    pub(super) fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// Returns the checksum of `bytes`.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the vectors of RFC 3720, in one piece and in two.
    #[test]
    fn vectors_of_the_standard() {
        let ascending: Vec<u8> = (0..32).collect();
        for (bytes, expected) in [(&[0; 32][..], 0x8a91_36aa), (&[0xff; 32], 0x62a8_ab43), (&ascending, 0x46dd_794e)] {
            assert_eq!(crc32c(bytes), expected);
            let mut pieces = Crc32c::new();
            pieces.add(&bytes[..5]);
            pieces.add(&bytes[5..]);
            assert_eq!(pieces.value(), expected);
        }
    }
}
