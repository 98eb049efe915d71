//! A split of a data set of images in ata's own layout: one file of records of one size, which are read by position.
//!
//! Numbers are little-endian. The header has 56 bytes, followed by the names of the classes, each of which ends with a line feed.
//!
//! | bytes | content |
//! | --- | --- |
//! | 0–7 | `ATA-IMGS` |
//! | 8–11 | version of the layout: 1 |
//! | 12–15 | width and height of the images, in pixels |
//! | 16–19 | number of classes |
//! | 20–23 | bytes of their names |
//! | 24–31 | number of records |
//! | 32–43 | mean of the red, green and blue values of the training images, on a scale of 0 to 1, as `f32` |
//! | 44–55 | their standard deviations |
//!
//! A record is the label in two bytes, then a red, a green and a blue plane, row-major.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::file::{begins_with, read_exact_at};
use crate::header::{Header, MAGIC};
use crate::{DataError, ImageInfo, LabelledImage};

/// A split in ata's own layout, checked when opened.
#[derive(Clone, Debug)]
pub struct PackedFile {
    /// The file, shared between clones, which read at explicit offsets.
    file: Arc<File>,
    path: PathBuf,
    header: Arc<Header>,
}

impl PackedFile {
    /// Returns `true` if a file begins like one of this layout.
    pub fn is_packed(path: &Path) -> Result<bool, DataError> {
        begins_with(path, MAGIC)
    }

    /// Opens a file and reads it once: its size must match its records, and every label must be that of a class.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let (opened, mut rest) = Self::header(path)?;
        let mut record = vec![0; opened.header.record_bytes() as usize];
        for index in 0..opened.len() {
            rest.read_exact(&mut record).map_err(DataError::io(path))?;
            opened.header.label(&record).map_err(|reason| bad_image(path, index, &reason))?;
        }
        Ok(opened)
    }

    /// Opens a file without reading the images, which are checked when they are read.
    pub(crate) fn open_unread(path: &Path) -> Result<Self, DataError> {
        Ok(Self::header(path)?.0)
    }

    /// Opens a file and checks its header and its size. Also returns a reader of the bytes that follow the header.
    fn header(path: &Path) -> Result<(Self, BufReader<File>), DataError> {
        let file = File::open(path).map_err(DataError::io(path))?;
        let bytes = file.metadata().map_err(DataError::io(path))?.len();
        let mut reader = BufReader::with_capacity(1 << 20, file.try_clone().map_err(DataError::io(path))?);
        let header = Header::read(&mut reader, path)?;
        let expected = header.records.checked_mul(header.record_bytes()).and_then(|of| of.checked_add(header.bytes));
        if expected != Some(bytes) {
            let records = header.records;
            let reason = format!("{bytes} bytes are not those of {records} records: is it cut short?");
            return Err(DataError::corrupt(path, reason));
        }
        Ok((Self { file: Arc::new(file), path: path.into(), header: Arc::new(header) }, reader))
    }

    /// Returns the description of the images.
    pub fn info(&self) -> &Arc<ImageInfo> {
        &self.header.info
    }

    /// Returns the number of images.
    #[expect(clippy::len_without_is_empty, reason = "a packed file has at least one image")]
    pub fn len(&self) -> u64 {
        self.header.records
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the image at an index below [`PackedFile::len`].
    pub fn read(&self, index: u64) -> Result<LabelledImage, DataError> {
        let mut record = vec![0; self.header.record_bytes() as usize];
        self.read_at(&mut record, index)?;
        // The file may have changed since it was checked.
        self.header.image(record).map_err(|reason| bad_image(&self.path, index, &reason))
    }

    /// Fills a buffer with records, from an index on.
    pub(crate) fn read_at(&self, buffer: &mut [u8], index: u64) -> Result<(), DataError> {
        let offset = self.header.bytes + index * self.header.record_bytes();
        read_exact_at(&self.file, buffer, offset).map_err(DataError::io(&self.path))
    }
}

pub(crate) fn bad_image(path: &Path, index: u64, reason: &str) -> DataError {
    DataError::corrupt(path, format!("image {index}: {reason}"))
}

#[cfg(test)]
mod tests {
    use tempfile::NamedTempFile;

    use super::*;
    use crate::header::HEADER_BYTES;
    use crate::packed_writer::PackedWriter;

    const SIZE: usize = 8;

    fn names() -> Vec<String> {
        ["cat", "großer Hund"].map(String::from).into()
    }

    fn image(label: u16) -> LabelledImage {
        let pixels = (0..3 * SIZE * SIZE).map(|at| (at * (usize::from(label) + 3) % 251) as u8).collect();
        LabelledImage { label, pixels }
    }

    /// Returns a packed file with the labels 0, 1, 0.
    fn written() -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = PackedWriter::new(folder.path(), SIZE, &names(), None).unwrap();
        for label in [0, 1, 0] {
            writer.push(&image(label)).unwrap();
        }
        let channels = writer.channels();
        std::fs::read(writer.finish(channels).unwrap().0.path()).unwrap()
    }

    fn open(bytes: &[u8]) -> Result<PackedFile, DataError> {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        PackedFile::open(file.path())
    }

    #[test]
    fn the_normalisation_is_that_of_all_pixels() {
        let opened = open(&written()).unwrap();
        let images = [0, 1, 0].map(image);
        for (channel, (mean, deviation)) in opened.info().channels.into_iter().enumerate() {
            let plane = |image: &LabelledImage| image.pixels[channel * SIZE * SIZE..][..SIZE * SIZE].to_vec();
            let values: Vec<f64> = images.iter().flat_map(plane).map(|value| f64::from(value) / 255.0).collect();
            let expected = values.iter().sum::<f64>() / values.len() as f64;
            let variance = values.iter().map(|value| (value - expected).powi(2)).sum::<f64>() / values.len() as f64;
            assert!((f64::from(mean) - expected).abs() < 1e-6, "{mean} is not {expected}");
            assert!((f64::from(deviation) - variance.sqrt()).abs() < 1e-6, "{deviation} is not {}", variance.sqrt());
        }
    }

    #[test]
    fn images_of_one_colour_can_be_normalised() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = PackedWriter::new(folder.path(), SIZE, &names(), None).unwrap();
        writer.push(&LabelledImage { label: 0, pixels: vec![255; 3 * SIZE * SIZE] }).unwrap();
        assert_eq!(writer.channels(), [(1.0, 1.0); 3]);
    }

    #[test]
    fn damaged_files_are_refused_with_the_reason() {
        let good = written();
        let with = |at: usize, bytes: &[u8]| {
            let mut bad = good.clone();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            bad
        };
        let first = HEADER_BYTES + "cat\ngroßer Hund\n".len();
        let cases = [
            (with(8, &[2]), "version 2 of the packed images is not known here"),
            (with(12, &[9]), "images of 9 pixels: expected a multiple of 8"),
            (with(16, &[0]), "0 classes"),
            (with(16, &[3]), "2 names for 3 classes"),
            (with(20, &[255; 4]), "names of 4294967295 bytes"),
            (with(24, &[2]), "not those of 2 records: is it cut short?"),
            (with(24, &[255; 8]), "is it cut short?"),
            (with(24, &[0; 8]), "it has no images"),
            (with(44, &[0; 4]), "impossible means and deviations"),
            (with(32, &f32::NAN.to_le_bytes()), "impossible means and deviations"),
            (with(HEADER_BYTES, &[255]), "are no text"),
            (with(first, &[2]), "image 0: label 2 is out of range (0 to 1)"),
            (good[..good.len() - 1].to_vec(), "is it cut short?"),
            (good[..HEADER_BYTES + 3].to_vec(), "ends within the header"),
            (good[..20].to_vec(), "it ends within the header"),
        ];
        for (bytes, reason) in cases {
            let error = open(&bytes).unwrap_err().to_string();
            assert!(error.contains(reason), "expected '{reason}': {error}");
        }
    }
}
