//! A split of a data set of images in ata's own layout: one file of records of one size, which are read by their position.
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
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::NamedTempFile;

use super::file::read_exact_at;
use super::{Channels, DataError, ImageInfo, LabelledImage};

const MAGIC: [u8; 8] = *b"ATA-IMGS";
pub(super) const VERSION: u32 = 1;
const HEADER_BYTES: usize = 56;
const LABEL_BYTES: usize = 2;

/// Labels have 16 bits.
pub const MAX_CLASSES: usize = 1 << 16;
/// Bytes of the names of classes: 256 for each of the most classes.
const MAX_NAMES_BYTES: usize = MAX_CLASSES * 256;
/// Pixels of a row: larger images do not fit the built-in models, whose activations would take gigabytes per task.
pub const MAX_SIZE: usize = 256;

/// Whether images may have this width and height, as the built-in models halve them up to three times.
pub fn is_size(size: usize) -> bool {
    (8..=MAX_SIZE).contains(&size) && size.is_multiple_of(8)
}

/// A split in ata's own layout, checked when opened.
#[derive(Clone, Debug)]
pub struct PackedFile {
    /// Shared between clones, which read at explicit offsets.
    file: Arc<File>,
    path: PathBuf,
    info: Arc<ImageInfo>,
    /// Where the first record begins.
    first: u64,
    records: u64,
}

impl PackedFile {
    /// Whether a file begins as one of this layout.
    pub fn is_packed(path: &Path) -> Result<bool, DataError> {
        let mut magic = [0; MAGIC.len()];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
        match read {
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            read => read.map(|()| magic == MAGIC).map_err(DataError::io(path)),
        }
    }

    /// Opens a file and reads it once: its size must be that of its records, and every label that of a class.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let (opened, mut rest) = Self::header(path)?;
        let mut record = vec![0; opened.record_bytes()];
        for index in 0..opened.records {
            rest.read_exact(&mut record).map_err(DataError::io(path))?;
            opened.label(&record, index)?;
        }
        Ok(opened)
    }

    /// What the header of a file says.
    pub fn describe(path: &Path) -> Result<ImageInfo, DataError> {
        Ok((*Self::header(path)?.0.info).clone())
    }

    /// Opens a file and checks its header and its size. Returns what follows the header, too.
    fn header(path: &Path) -> Result<(Self, BufReader<File>), DataError> {
        let corrupt = |reason: String| DataError::corrupt(path, reason);
        let file = File::open(path).map_err(DataError::io(path))?;
        let bytes = file.metadata().map_err(DataError::io(path))?.len();
        let mut reader = BufReader::with_capacity(1 << 20, file.try_clone().map_err(DataError::io(path))?);
        let mut header = [0; HEADER_BYTES];
        let cut = |cause: io::Error| match cause.kind() {
            io::ErrorKind::UnexpectedEof => corrupt(format!("{bytes} bytes end within the header: is it cut short?")),
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
        // The writer's deviations are at least 1e-3 / 255, so that normalised pixels stay far from what `f32` cannot represent.
        let is_possible =
            |(mean, deviation): &(f32, f32)| (0.0..=1.0).contains(mean) && (1e-6..=1.0).contains(deviation);
        if !channels.iter().all(is_possible) {
            return Err(corrupt(format!("impossible means and deviations of the channels: {channels:?}")));
        }
        let records = u64::from(word(24)) | u64::from(word(28)) << 32;
        let info = Arc::new(ImageInfo { size, classes: names, channels });
        let first = (HEADER_BYTES + names_bytes) as u64;
        let expected =
            records.checked_mul((LABEL_BYTES + info.image_bytes()) as u64).and_then(|of| of.checked_add(first));
        if records == 0 || expected != Some(bytes) {
            return Err(corrupt(format!("{bytes} bytes are not those of {records} records: is it cut short?")));
        }
        Ok((Self { file: Arc::new(file), path: path.into(), info, first, records }, reader))
    }

    /// What the images are.
    pub fn info(&self) -> &Arc<ImageInfo> {
        &self.info
    }

    /// The number of images.
    #[expect(clippy::len_without_is_empty, reason = "a packed file has at least one image")]
    pub fn len(&self) -> u64 {
        self.records
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The image at an index below [`PackedFile::len`].
    pub fn read(&self, index: u64) -> Result<LabelledImage, DataError> {
        let mut record = vec![0; self.record_bytes()];
        read_exact_at(&self.file, &mut record, self.first + index * self.record_bytes() as u64)
            .map_err(DataError::io(&self.path))?;
        // The file may have changed since it was checked.
        let label = self.label(&record, index)?;
        record.drain(..LABEL_BYTES);
        Ok(LabelledImage { label, pixels: record })
    }

    fn record_bytes(&self) -> usize {
        LABEL_BYTES + self.info.image_bytes()
    }

    fn label(&self, record: &[u8], index: u64) -> Result<u16, DataError> {
        let (label, classes) = (u16::from_le_bytes([record[0], record[1]]), self.info.classes.len());
        if usize::from(label) < classes {
            return Ok(label);
        }
        let reason = format!("image {index}: label {label} is out of range (0 to {})", classes - 1);
        Err(DataError::corrupt(&self.path, reason))
    }
}

/// Writes a split in ata's own layout to a temporary file, which is removed unless it is finished and kept.
pub(super) struct PackedWriter {
    file: BufWriter<NamedTempFile>,
    size: usize,
    /// The names of the classes as the header has them.
    names: String,
    classes: usize,
    records: u64,
    /// By channel, the sums of its values and of their squares.
    sums: [(u64, u64); 3],
}

impl PackedWriter {
    /// Begins a file in a folder.
    pub(super) fn new(folder: &Path, size: usize, classes: &[String]) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(1 << 20, new_file(folder)?);
        let names: String = classes.iter().flat_map(|class| [class, "\n"]).collect();
        // How many records there are, and what their mean is, is known in the end.
        file.write_all(&[0; HEADER_BYTES])?;
        file.write_all(names.as_bytes())?;
        Ok(Self { file, size, names, classes: classes.len(), records: 0, sums: [(0, 0); 3] })
    }

    /// Adds an image.
    pub(super) fn push(&mut self, image: &LabelledImage) -> io::Result<()> {
        for (plane, (sum, squares)) in image.pixels.chunks_exact(self.size * self.size).zip(&mut self.sums) {
            *sum += plane.iter().map(|value| u64::from(*value)).sum::<u64>();
            *squares += plane.iter().map(|value| u64::from(*value).pow(2)).sum::<u64>();
        }
        self.records += 1;
        self.file.write_all(&image.label.to_le_bytes())?;
        self.file.write_all(&image.pixels)
    }

    /// Number of images so far.
    pub(super) fn len(&self) -> u64 {
        self.records
    }

    /// Mean and standard deviation of what was added. A channel of a single value has the deviation 1, by which it can be divided.
    pub(super) fn channels(&self) -> Channels {
        let count = (self.records * (self.size * self.size) as u64) as f64;
        self.sums.map(|(sum, squares)| {
            let mean = sum as f64 / count;
            let deviation = (squares as f64 / count - mean * mean).max(0.0).sqrt();
            ((mean / 255.0) as f32, if deviation > 1e-3 { (deviation / 255.0) as f32 } else { 1.0 })
        })
    }

    /// Writes the header.
    pub(super) fn finish(self, channels: Channels) -> io::Result<NamedTempFile> {
        let word = |number: usize| (number as u32).to_le_bytes();
        let [(r, dr), (g, dg), (b, db)] = channels;
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend([self.size, self.classes, self.names.len()].map(word).as_flattened());
        header.extend(self.records.to_le_bytes());
        header.extend([r, g, b, dr, dg, db].map(f32::to_le_bytes).as_flattened());
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&header)?;
        Ok(file)
    }
}

/// A temporary file that others may read, unlike other temporary files, because it becomes one to stay.
#[cfg(unix)]
fn new_file(folder: &Path) -> io::Result<NamedTempFile> {
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    tempfile::Builder::new().permissions(permissions).tempfile_in(folder)
}

/// A temporary file, which has the permissions of its folder.
#[cfg(not(unix))]
fn new_file(folder: &Path) -> io::Result<NamedTempFile> {
    NamedTempFile::new_in(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 8;

    fn names() -> Vec<String> {
        ["cat", "großer Hund"].map(String::from).into()
    }

    fn image(label: u16) -> LabelledImage {
        let pixels = (0..3 * SIZE * SIZE).map(|at| (at * (usize::from(label) + 3) % 251) as u8).collect();
        LabelledImage { label, pixels }
    }

    /// Labels 0, 1, 0.
    fn written() -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = PackedWriter::new(folder.path(), SIZE, &names()).unwrap();
        for label in [0, 1, 0] {
            writer.push(&image(label)).unwrap();
        }
        let channels = writer.channels();
        std::fs::read(writer.finish(channels).unwrap().path()).unwrap()
    }

    fn open(bytes: &[u8]) -> Result<PackedFile, DataError> {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        PackedFile::open(file.path())
    }

    #[test]
    fn images_are_read_as_written() {
        let opened = open(&written()).unwrap();
        assert_eq!((opened.len(), &opened.info().classes, opened.info().size), (3, &names(), SIZE));
        for (index, label) in [(0, 0), (1, 1), (2, 0)] {
            assert_eq!(opened.read(index).unwrap(), image(label));
        }
        assert!(matches!(opened.read(3), Err(DataError::Io { .. })));
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
        let mut writer = PackedWriter::new(folder.path(), SIZE, &names()).unwrap();
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
            (with(44, &[0; 4]), "impossible means and deviations"),
            (with(32, &f32::NAN.to_le_bytes()), "impossible means and deviations"),
            (with(HEADER_BYTES, &[255]), "are no text"),
            (with(first, &[2]), "image 0: label 2 is out of range (0 to 1)"),
            (good[..good.len() - 1].to_vec(), "is it cut short?"),
            (good[..HEADER_BYTES + 3].to_vec(), "end within the header"),
            (good[..20].to_vec(), "20 bytes end within the header"),
        ];
        for (bytes, reason) in cases {
            let error = open(&bytes).unwrap_err().to_string();
            assert!(error.contains(reason), "expected '{reason}': {error}");
        }
    }
}
