//! Packs images into ata's own layout.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Seek};
use std::path::{Path, PathBuf};

use image::error::{LimitError, LimitErrorKind};
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits, imageops::FilterType};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::cache::made_once;
use crate::cifar10::Cifar10;
use crate::file::read_exact_at;
use crate::folder::{ImageFolder, LabelledFile, SplitPart};
use crate::header::VERSION;
use crate::packed_writer::PackedWriter;
use crate::tars;
use crate::{DataError, LabelledImage, PackedFile, Split, hex};

/// The maximum number of pixels in a row or column of a source image: more than those of any camera.
const MOST_PIXELS: u32 = 1 << 15;
/// The maximum memory for decoding an image, in bytes, per thread: an image of 80 megapixels. Small files can claim to be far larger.
pub(crate) const MOST_BYTES: u64 = 256 << 20;
/// The number of images that are decoded in parallel before they are written; 128 of the largest take 25 MB.
const AT_ONCE: usize = 128;

/// The default width and height of packed images: those of CIFAR.
pub const DEFAULT_SIZE: usize = 32;

/// The options for packing images.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    /// The width and height of the packed images: a multiple of 8, at most 256.
    pub size: usize,
    /// Whether unusable files are left out; otherwise they are an error.
    pub skip_bad: bool,
    /// The size of a shard, in bytes, if machines are to read the images in shards.
    pub shard_bytes: Option<u64>,
}

/// A file that cannot be used, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadImage {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

/// A callback with the number of images that are done, and the total number.
pub type PackProgress<'a> = &'a mut dyn FnMut(u64, u64);

/// Images that can be packed.
#[derive(Debug)]
pub struct Unpacked(PackSource);

#[derive(Debug)]
enum PackSource {
    Folder(ImageFolder),
    Cifar10(Cifar10),
}

impl Unpacked {
    /// Finds images in a folder: `train/CLASS/*` and `test/CLASS/*`, tar archives in the layout of WebDataset, or
    /// CIFAR-10 in its official binary layout.
    pub fn find(folder: &Path) -> Result<Option<Self>, DataError> {
        if let Some(cifar) = Cifar10::find(folder) {
            return Ok(Some(Self(PackSource::Cifar10(cifar))));
        }
        let found = match tars::find(folder)? {
            Some(found) => Some(found),
            None => ImageFolder::find(folder)?,
        };
        Ok(found.map(|folder| Self(PackSource::Folder(folder))))
    }

    /// Packs the images into `train.packed` and `test.packed` in a folder, which must not contain these files. Returns the files left out.
    pub fn pack(self, out: &Path, packing: Packing, progress: PackProgress<'_>) -> Result<Vec<BadImage>, DataError> {
        std::fs::create_dir_all(out).map_err(DataError::write(out))?;
        for split in Split::BOTH {
            for path in [split.packed_name(), split.shards_name()].map(|name| out.join(name)) {
                if path.exists() {
                    return Err(DataError::write(path)(io::ErrorKind::AlreadyExists.into()));
                }
            }
        }
        match self.0 {
            PackSource::Folder(folder) => pack_folder(folder, out, packing, progress),
            PackSource::Cifar10(cifar) => cifar.pack(out, packing, progress).map(|()| Vec::new()),
        }
    }

    /// Packs the images into a folder under `cache`, once for each content and size, and returns that folder.
    pub(crate) fn pack_into_cache(
        self,
        cache: &Path,
        size: usize,
        progress: PackProgress<'_>,
    ) -> Result<PathBuf, DataError> {
        let mut digest = Sha256::new();
        digest.update([VERSION, size as u32].map(u32::to_le_bytes).as_flattened());
        digest.update(match &self.0 {
            PackSource::Folder(folder) => folder.fingerprint()?,
            PackSource::Cifar10(cifar) => cifar.fingerprint()?,
        });
        let target = cache.join("packed").join(&hex(&digest.finalize())[..32]);
        let is_whole = |split: Split| PackedFile::open(&target.join(split.packed_name())).is_ok();
        made_once(target.clone(), is_whole, |unfinished| {
            self.pack(unfinished, Packing { size, skip_bad: false, shard_bytes: None }, progress).map(drop)
        })
    }
}

/// Packs both splits of a folder. The test images are normalised like the training images.
fn pack_folder(
    folder: ImageFolder,
    out: &Path,
    Packing { size, skip_bad, shard_bytes }: Packing,
    progress: PackProgress<'_>,
) -> Result<Vec<BadImage>, DataError> {
    let ImageFolder { classes, mut train, test, unusable: mut bad } = folder;
    if shard_bytes.is_some() {
        // Images are shuffled because few shards are read at a time, and folders are sorted by class.
        train.shuffle(&mut ChaCha8Rng::seed_from_u64(0));
    }
    let total = (train.len() + test.len()) as u64;
    let mut done = 0;
    let mut pack = |files: &[LabelledFile]| -> Result<PackedWriter, DataError> {
        let mut writer = PackedWriter::new(out, size, &classes, shard_bytes).map_err(DataError::write(out))?;
        let mut found = vec![false; classes.len()];
        for files in files.chunks(AT_ONCE) {
            let read: Vec<Result<LabelledImage, BadImage>> = files.par_iter().map(|file| read(file, size)).collect();
            for image in read {
                match image {
                    Ok(image) => {
                        found[usize::from(image.label)] = true;
                        writer.push(&image).map_err(DataError::write(out))?;
                    }
                    Err(image) => bad.push(image),
                }
            }
            done += files.len() as u64;
            progress(done, total);
        }
        match found.iter().position(|found| !found) {
            Some(class) if skip_bad => {
                let folder =
                    files.iter().find(|file| usize::from(file.label) == class).and_then(|file| file.path.parent());
                let reason = format!("none of the images of class '{}' can be read", classes[class]);
                Err(DataError::corrupt(folder.unwrap_or(out), reason))
            }
            _ => Ok(writer),
        }
    };
    let (train, test) = (pack(&train)?, pack(&test)?);
    if !bad.is_empty() && !skip_bad {
        return Err(DataError::BadImages { first: bad.remove(0), others: bad });
    }
    let channels = train.channels();
    train.keep(channels, out, Split::Train)?;
    test.keep(channels, out, Split::Test)?;
    Ok(bad)
}

fn read(file: &LabelledFile, size: usize) -> Result<LabelledImage, BadImage> {
    let LabelledFile { path, part, label } = file;
    let decoded = match part {
        None => File::open(path).map_err(ImageError::from).and_then(|file| decode(BufReader::new(file), path, size)),
        Some(part) => part.read().map_err(ImageError::from).and_then(|bytes| decode(Cursor::new(bytes), path, size)),
    };
    match decoded {
        Ok(pixels) => Ok(LabelledImage { label: *label, pixels }),
        Err(error) => Err(BadImage { path: path.clone(), reason: error.to_string() }),
    }
}

impl SplitPart {
    fn read(&self) -> io::Result<Vec<u8>> {
        if self.bytes > MOST_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "no image is that large"));
        }
        let file = match &self.unpacked {
            Some(file) => file,
            None => &File::open(&self.archive)?.into(),
        };
        let mut bytes = vec![0; self.bytes as usize];
        read_exact_at(file, &mut bytes, self.offset)?;
        Ok(bytes)
    }
}

/// Reads an image, and resizes it so that its shorter side fits. The excess of the longer side is cropped on both ends.
fn decode(file: impl BufRead + Seek, path: &Path, size: usize) -> Result<Vec<u8>, ImageError> {
    let mut reader = ImageReader::new(file).with_guessed_format()?;
    if reader.format().is_none() {
        reader.set_format(ImageFormat::from_path(path)?);
    }
    let mut limits = Limits::default();
    (limits.max_image_width, limits.max_image_height) = (Some(MOST_PIXELS), Some(MOST_PIXELS));
    limits.max_alloc = Some(MOST_BYTES);
    reader.limits(limits);
    let mut decoder = reader.into_decoder()?;
    // The decoder's own limit covers its working memory, but not the image.
    if decoder.total_bytes() > MOST_BYTES {
        return Err(ImageError::Limits(LimitError::from_kind(LimitErrorKind::InsufficientMemory)));
    }
    // Cameras store the orientation of an image as metadata.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut image = DynamicImage::ImageRgb8(DynamicImage::from_decoder(decoder)?.into_rgb8());
    image.apply_orientation(orientation);
    let size = size as u32;
    if (image.width(), image.height()) != (size, size) {
        image = image.resize_to_fill(size, size, FilterType::Triangle);
    }
    let image = image.into_rgb8();
    // The result has a red, a green and a blue plane.
    Ok([0, 1, 2].iter().flat_map(|channel| image.pixels().map(move |pixel| pixel.0[*channel])).collect())
}

#[cfg(test)]
mod tests {
    use image::RgbImage;
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_folder_is_packed_once_for_each_content_and_size() {
        let (folder, cache) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let file = |split: &str, class: &str| folder.path().join(split).join(class).join("1.png");
        let paint = |path: PathBuf, value: u8| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            RgbImage::from_pixel(8, 8, image::Rgb([value; 3])).save(path).unwrap();
        };
        for (split, class) in [("train", "a"), ("train", "b"), ("val", "a"), ("val", "b")] {
            paint(file(split, class), 1);
        }
        // Returns whether packing was necessary.
        let pack = |size| {
            let mut packed = false;
            let unpacked = Unpacked::find(folder.path()).unwrap().unwrap();
            let target = unpacked.pack_into_cache(cache.path(), size, &mut |_, _| packed = true).unwrap();
            let names = std::fs::read_dir(cache.path().join("packed")).unwrap().map(|entry| entry.unwrap().file_name());
            assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with("unfinished-")));
            (target, packed)
        };
        let (first, packed) = pack(8);
        assert!(packed);
        assert_eq!(pack(8), (first.clone(), false));
        let (larger, packed) = pack(16);
        assert!(packed && larger != first);
        // A damaged copy is replaced.
        std::fs::write(first.join("test.packed"), "").unwrap();
        assert_eq!(pack(8), (first.clone(), true));
        assert_eq!(PackedFile::open(&first.join("test.packed")).unwrap().len(), 2);
        // The image is another one, of a different length.
        std::fs::remove_file(file("val", "b")).unwrap();
        paint(file("val", "b").with_file_name("2.png"), 2);
        let (other, packed) = pack(8);
        assert!(packed && other != first);
    }
}
