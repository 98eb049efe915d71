//! The file of an obtained shard. Its images are checked whenever they are read: it may be damaged after its digest was checked.

use std::fs::File;
use std::io;
use std::sync::Arc;

use flate2::Crc;

use crate::Shard;
use crate::file::read_exact_at;

/// The CRC-32 of each image of a shard, from the bytes whose digest was checked.
#[derive(Clone, Debug)]
pub struct ImageChecksums(Arc<[u32]>);

/// Computes the checksums of a shard's images from consecutive pieces of the shard.
#[derive(Debug)]
pub struct ImageChecksummer {
    image_bytes: usize,
    image: Crc,
    checksums: Vec<u32>,
}

impl ImageChecksummer {
    /// Starts before the first piece.
    pub fn new(shard: &Shard) -> Self {
        Self { image_bytes: shard.image_bytes, image: Crc::new(), checksums: Vec::new() }
    }

    /// Takes the next piece, which may end within an image.
    pub fn add(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let missing = self.image_bytes - self.image.amount() as usize;
            let (of_image, rest) = piece.split_at(missing.min(piece.len()));
            self.image.update(of_image);
            if of_image.len() == missing {
                self.checksums.push(self.image.sum());
                self.image.reset();
            }
            piece = rest;
        }
    }

    /// Returns the checksums, after the last piece.
    pub fn finish(self) -> ImageChecksums {
        ImageChecksums(self.checksums.into())
    }
}

/// A file with the bytes of a shard and nothing else.
#[derive(Debug)]
pub struct ShardFile {
    file: File,
    checksums: ImageChecksums,
}

impl ShardFile {
    /// Creates a shard file from a file and the checksums of its expected content.
    pub fn new(file: File, checksums: ImageChecksums) -> Self {
        Self { file, checksums }
    }

    /// Reads an image by its position in the shard. Returns `false` if its checksum is wrong.
    pub(crate) fn read(&self, image: &mut [u8], position: u64) -> io::Result<bool> {
        match read_exact_at(&self.file, image, position * image.len() as u64) {
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        let mut found = Crc::new();
        found.update(image);
        Ok(self.checksums.0.get(position as usize) == Some(&found.sum()))
    }
}
