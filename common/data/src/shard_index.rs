//! The index of the shards of a split: the ranges of its images, and the digest of each.
//!
//! A shard is a number of consecutive images of a packed file. A machine that has the index reads only the shards that
//! it needs, from any source, and checks each of them. Numbers are little-endian.
//!
//! | bytes | content |
//! | --- | --- |
//! | 0–7 | `ATA-SHDS` |
//! | 8–11 | version of the layout: 1 |
//! | 12–15 | 0 |
//! | 16–23 | images of each shard, R; the last one may have fewer |
//! | from 24 | the header of the packed file, with the names of the classes |
//! | after that | for each shard the SHA-256 of its records, 32 bytes |

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use crate::file::begins_with;
use crate::header::Header;
use crate::{DataError, ImageInfo};

const MAGIC: [u8; 8] = *b"ATA-SHDS";
const VERSION: u32 = 1;
const PREFIX_BYTES: usize = 24;

/// The maximum number of shards in a split: 64 TiB in shards of 64 MiB. The coordinator keeps some 200 bytes for each.
const MAX_SHARDS: u64 = 1 << 20;

/// The index of a split's shards.
#[derive(Clone, Debug)]
pub struct ShardIndex {
    pub(crate) header: Arc<Header>,
    images: u64,
    digests: Arc<[[u8; 32]]>,
}

/// Consecutive images of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The number of the shard, from 0.
    pub number: u64,
    /// The offset at which the shard begins in the packed file.
    pub offset: u64,
    /// The size of the shard, in bytes.
    pub bytes: u64,
    /// The size of an image with its label, in bytes.
    pub image_bytes: usize,
    /// The SHA-256 of the shard's bytes.
    pub sha256: [u8; 32],
}

/// Encodes an index, from the encoded header of the packed file.
pub(crate) fn encode_index(header: &[u8], images: u64, digests: &[[u8; 32]]) -> Vec<u8> {
    let mut index = MAGIC.to_vec();
    index.extend(VERSION.to_le_bytes());
    index.extend([0; 4]);
    index.extend(images.to_le_bytes());
    index.extend(header);
    index.extend(digests.as_flattened());
    index
}

impl ShardIndex {
    /// Returns `true` if a file begins like an index.
    pub fn is_index(path: &Path) -> Result<bool, DataError> {
        begins_with(path, MAGIC)
    }

    /// Reads and checks an index.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let corrupt = |reason: String| DataError::corrupt(path, reason);
        let cut = |cause: io::Error| match cause.kind() {
            io::ErrorKind::UnexpectedEof => corrupt("it ends too early: is it cut short?".into()),
            _ => DataError::io(path)(cause),
        };
        let mut reader = BufReader::new(File::open(path).map_err(DataError::io(path))?);
        let mut prefix = [0; PREFIX_BYTES];
        reader.read_exact(&mut prefix).map_err(cut)?;
        let (first, rest) = prefix.split_at(MAGIC.len());
        if first != MAGIC || rest[..8] != [VERSION, 0].map(u32::to_le_bytes).as_flattened()[..] {
            return Err(corrupt(format!("no index of shards of version {VERSION}")));
        }
        let images = u64::from_le_bytes(rest[8..].try_into().expect("eight bytes are left"));
        let header = Header::read(&mut reader, path)?;
        let shards = if images == 0 { 0 } else { header.records.div_ceil(images) };
        let is_possible = header.records.checked_mul(header.record_bytes()).is_some_and(|bytes| bytes <= 1 << 60);
        if !(1..=MAX_SHARDS).contains(&shards) || !is_possible {
            let records = header.records;
            return Err(corrupt(format!("{records} images in shards of {images}: expected 1 to {MAX_SHARDS} shards")));
        }
        let mut digests = Vec::new();
        for _ in 0..shards {
            let mut digest = [0; 32];
            reader.read_exact(&mut digest).map_err(cut)?;
            digests.push(digest);
        }
        if reader.read(&mut [0]).map_err(DataError::io(path))? > 0 {
            return Err(corrupt(format!("it goes on after the digests of its {shards} shards")));
        }
        Ok(Self { header: Arc::new(header), images, digests: digests.into() })
    }

    /// Returns the description of the images.
    pub fn info(&self) -> &Arc<ImageInfo> {
        &self.header.info
    }

    /// Returns the number of images in all shards.
    pub fn count(&self) -> u64 {
        self.header.records
    }

    /// Returns the number of images per shard; the last one may have fewer.
    pub fn images_of_shard(&self) -> u64 {
        self.images
    }

    /// Returns all shards.
    pub fn shards(&self) -> impl ExactSizeIterator<Item = Shard> + '_ {
        (0..self.digests.len()).map(|number| self.shard(number as u64))
    }

    pub(crate) fn shard(&self, number: u64) -> Shard {
        let first = number * self.images;
        let images = self.images.min(self.header.records - first);
        Shard {
            number,
            offset: self.header.bytes + first * self.header.record_bytes(),
            bytes: images * self.header.record_bytes(),
            image_bytes: self.header.record_bytes() as usize,
            sha256: self.digests[number as usize],
        }
    }
}
