//! The header of a file of packed images, and of an index of its shards.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use crate::info::{MAX_CLASSES, MAX_SIZE, is_size};
use crate::{Channels, DataError, ImageInfo};

pub(crate) const MAGIC: [u8; 8] = *b"ATA-IMGS";
pub(crate) const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 56;
pub(crate) const LABEL_BYTES: usize = 2;
/// The maximum size of all class names, in bytes: 256 for each of the most classes.
const MAX_NAMES_BYTES: usize = MAX_CLASSES * 256;

#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) info: Arc<ImageInfo>,
    /// The number of images, at least one.
    pub(crate) records: u64,
    /// The size of the header, in bytes, with the names of the classes.
    pub(crate) bytes: u64,
}

impl Header {
    /// Reads and checks a header. Errors name the file `path`.
    pub(crate) fn read(reader: &mut impl Read, path: &Path) -> Result<Self, DataError> {
        let corrupt = |reason: String| DataError::corrupt(path, reason);
        let mut header = [0; HEADER_BYTES];
        let cut = |cause: io::Error| match cause.kind() {
            io::ErrorKind::UnexpectedEof => corrupt("it ends within the header: is it cut short?".into()),
            _ => DataError::io(path)(cause),
        };
        reader.read_exact(&mut header).map_err(cut)?;
        let four = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
        let word = |at| u32::from_le_bytes(four(at));
        let (version, size, classes, names_bytes) = (word(8), word(12) as usize, word(16) as usize, word(20) as usize);
        if header[..8] != MAGIC || version != VERSION {
            return Err(corrupt(format!(
                "version {version} of the packed images is not known here: expected {VERSION}"
            )));
        }
        if !is_size(size) {
            return Err(corrupt(format!("images of {size} pixels: expected a multiple of 8, at most {MAX_SIZE}")));
        }
        if !(1..=MAX_CLASSES).contains(&classes) || names_bytes > MAX_NAMES_BYTES {
            let reason = format!("{classes} classes with names of {names_bytes} bytes: expected at most {MAX_CLASSES}");
            return Err(corrupt(reason));
        }
        let mut names = vec![0; names_bytes];
        reader.read_exact(&mut names).map_err(cut)?;
        let names = String::from_utf8(names).map_err(|_| corrupt("the names of the classes are no text".into()))?;
        let names: Vec<String> = names.lines().map(String::from).collect();
        if names.len() != classes {
            return Err(corrupt(format!("{} names for {classes} classes", names.len())));
        }
        let channels =
            [0, 1, 2].map(|at| (f32::from_le_bytes(four(32 + 4 * at)), f32::from_le_bytes(four(44 + 4 * at))));
        // The writer's deviations are at least 1e-3 / 255, so that normalised pixels stay far from values that `f32` cannot represent.
        let is_possible =
            |(mean, deviation): &(f32, f32)| (0.0..=1.0).contains(mean) && (1e-6..=1.0).contains(deviation);
        if !channels.iter().all(is_possible) {
            return Err(corrupt(format!("impossible means and deviations of the channels: {channels:?}")));
        }
        let records = u64::from(word(24)) | u64::from(word(28)) << 32;
        if records == 0 {
            return Err(corrupt("it has no images".into()));
        }
        let info = Arc::new(ImageInfo { size, classes: names, channels });
        Ok(Self { info, records, bytes: (HEADER_BYTES + names_bytes) as u64 })
    }

    /// Encodes the header without the names of the classes, which follow.
    pub(crate) fn encode(size: usize, classes: usize, names: &str, records: u64, channels: Channels) -> Vec<u8> {
        let word = |number: usize| (number as u32).to_le_bytes();
        let [(r, dr), (g, dg), (b, db)] = channels;
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend([size, classes, names.len()].map(word).as_flattened());
        header.extend(records.to_le_bytes());
        header.extend([r, g, b, dr, dg, db].map(f32::to_le_bytes).as_flattened());
        header
    }

    /// Returns the size of an image with its label, in bytes.
    pub(crate) fn record_bytes(&self) -> u64 {
        (LABEL_BYTES + self.info.image_bytes()) as u64
    }

    pub(crate) fn image(&self, mut record: Vec<u8>) -> Result<crate::LabelledImage, String> {
        let label = self.label(&record)?;
        record.drain(..LABEL_BYTES);
        Ok(crate::LabelledImage { label, pixels: record })
    }

    /// Decodes the label of a record; an error says what is wrong.
    pub(crate) fn label(&self, record: &[u8]) -> Result<u16, String> {
        let (label, classes) = (u16::from_le_bytes([record[0], record[1]]), self.info.classes.len());
        if usize::from(label) < classes {
            return Ok(label);
        }
        Err(format!("label {label} is out of range (0 to {})", classes - 1))
    }
}
