//! Writes packed images, and the index of their shards.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::header::{HEADER_BYTES, Header, LABEL_BYTES};
use crate::shard_index::encode_index;
use crate::{Channels, DataError, LabelledImage, Split};

/// Writes a split in ata's own layout to a temporary file, which is removed unless it is finished and kept.
pub struct PackedWriter {
    file: BufWriter<NamedTempFile>,
    size: usize,
    /// The names of the classes, as in the header.
    names: String,
    classes: usize,
    records: u64,
    /// For each channel, the sum of its values and the sum of their squares.
    sums: [(u64, u64); 3],
    shards: Option<Digests>,
}

struct Digests {
    /// The number of images per shard; the last one may have fewer.
    images: u64,
    finished: Vec<[u8; 32]>,
    current: Sha256,
}

impl PackedWriter {
    /// Begins a file in a folder, and an index of shards if `shard_bytes` gives their size.
    pub fn new(folder: &Path, size: usize, classes: &[String], shard_bytes: Option<u64>) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(1 << 20, new_file(folder)?);
        let names: String = classes.iter().flat_map(|class| [class, "\n"]).collect();
        // The number of records and their mean are only known at the end.
        file.write_all(&[0; HEADER_BYTES])?;
        file.write_all(names.as_bytes())?;
        let record_bytes = (LABEL_BYTES + 3 * size * size) as u64;
        let shards = shard_bytes.map(|bytes| Digests {
            images: (bytes / record_bytes).max(1),
            finished: Vec::new(),
            current: Sha256::new(),
        });
        Ok(Self { file, size, names, classes: classes.len(), records: 0, sums: [(0, 0); 3], shards })
    }

    /// Adds an image.
    pub fn push(&mut self, image: &LabelledImage) -> io::Result<()> {
        for (plane, (sum, squares)) in image.pixels.chunks_exact(self.size * self.size).zip(&mut self.sums) {
            *sum += plane.iter().map(|value| u64::from(*value)).sum::<u64>();
            *squares += plane.iter().map(|value| u64::from(*value).pow(2)).sum::<u64>();
        }
        self.records += 1;
        let label = image.label.to_le_bytes();
        if let Some(Digests { images, finished, current }) = &mut self.shards {
            current.update(label);
            current.update(&image.pixels);
            if self.records.is_multiple_of(*images) {
                finished.push(current.finalize_reset().into());
            }
        }
        self.file.write_all(&label)?;
        self.file.write_all(&image.pixels)
    }

    /// Returns the mean and the standard deviation of each channel. A channel with a single value gets the deviation 1,
    /// so that it can be a divisor.
    pub fn channels(&self) -> Channels {
        let count = (self.records * (self.size * self.size) as u64) as f64;
        self.sums.map(|(sum, squares)| {
            let mean = sum as f64 / count;
            let deviation = (squares as f64 / count - mean * mean).max(0.0).sqrt();
            ((mean / 255.0) as f32, if deviation > 1e-3 { (deviation / 255.0) as f32 } else { 1.0 })
        })
    }

    /// Gives the file and its index, if there is one, their final names.
    pub fn keep(self, channels: Channels, out: &Path, split: Split) -> Result<(), DataError> {
        if self.records == 0 {
            return Err(DataError::Empty(split));
        }
        let (path, of_index) = (out.join(split.packed_name()), out.join(split.shards_name()));
        let (file, index) = self.finish(channels).map_err(DataError::write(&path))?;
        file.persist_noclobber(&path).map_err(|error| DataError::write(&path)(error.error))?;
        let Some(index) = index else { return Ok(()) };
        let written = new_file(out).and_then(|mut file| {
            file.write_all(&index)?;
            Ok(file.persist_noclobber(&of_index)?)
        });
        written.map(drop).map_err(DataError::write(of_index))
    }

    /// Writes the header. Returns the file and the bytes of the index.
    pub fn finish(self, channels: Channels) -> io::Result<(NamedTempFile, Option<Vec<u8>>)> {
        let mut header = Header::encode(self.size, self.classes, &self.names, self.records, channels);
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&header)?;
        header.extend(self.names.as_bytes());
        let index = self.shards.map(|Digests { images, mut finished, current }| {
            if !self.records.is_multiple_of(images) {
                finished.push(current.finalize().into());
            }
            encode_index(&header, images, &finished)
        });
        Ok((file, index))
    }
}

/// Creates a temporary file that others may read, unlike other temporary files, because it becomes permanent.
#[cfg(unix)]
fn new_file(folder: &Path) -> io::Result<NamedTempFile<File>> {
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    tempfile::Builder::new().permissions(permissions).tempfile_in(folder)
}

/// Creates a temporary file, which has the permissions of its folder.
#[cfg(not(unix))]
fn new_file(folder: &Path) -> io::Result<NamedTempFile<File>> {
    NamedTempFile::new_in(folder)
}
