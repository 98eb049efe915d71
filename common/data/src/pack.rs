//! Packs images into ata's own layout.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use image::ImageError;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::cache::made_once;
use crate::cifar10::Cifar10;
use crate::decode::{MOST_BYTES, decode};
use crate::file::read_exact_at;
use crate::folder::{ImageFolder, LabelledFile};
use crate::header::VERSION;
use crate::packed_writer::PackedWriter;
use crate::tars;
use crate::{DataError, LabelledImage, PackedFile, Split, hex, sha256_of_file};

/// The revision of the code that reads images. Images that another revision packed into the cache are packed again.
const REVISION: u32 = 2;
/// The file in a folder of the cache that lists what was left out.
const LEFT_OUT: &str = "left-out";
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
pub struct Unpacked {
    source: PackSource,
    /// The share of the training images that become test images, if there are none.
    validation: Option<f64>,
    /// Images next to those that are packed.
    unused: Vec<BadImage>,
}

#[derive(Debug)]
enum PackSource {
    Folder(ImageFolder),
    Cifar10(Cifar10),
}

impl Unpacked {
    /// Finds images in a folder: `train/CLASS/*` and `test/CLASS/*`, tar archives in the layout of WebDataset, or
    /// CIFAR-10 in its official binary layout. With a share for `validation`, they are `train/CLASS/*` or `CLASS/*`, and this share of them
    /// become the test images.
    pub fn find(folder: &Path, validation: Option<f64>) -> Result<Option<Self>, DataError> {
        let found = match Cifar10::find(folder) {
            Some(cifar) => Some(PackSource::Cifar10(cifar)),
            None => tars::find(folder)?.map(PackSource::Folder),
        };
        match (found, validation) {
            (Some(source), None) => Ok(Some(Self { source, validation, unused: Vec::new() })),
            (Some(_), Some(_)) => {
                let reason =
                    "--validation splits folders of images; archives and CIFAR-10 are split already: leave it out";
                Err(DataError::corrupt(folder, reason))
            }
            (None, _) => Ok(ImageFolder::find(folder, validation.is_some())?.map(|(folder, unused)| Self {
                source: PackSource::Folder(folder),
                validation,
                unused,
            })),
        }
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
        let Self { source, validation, unused } = self;
        let bad = match source {
            PackSource::Folder(folder) => pack_folder(folder, validation, out, packing, progress)?,
            PackSource::Cifar10(cifar) => cifar.pack(out, packing, progress).map(|()| Vec::new())?,
        };
        Ok([unused, bad].concat())
    }

    /// Packs the images into a folder under `cache`, once for each content and size. Returns that folder and the files left out.
    pub(crate) fn pack_into_cache(
        mut self,
        cache: &Path,
        size: usize,
        skip_bad: bool,
        progress: PackProgress<'_>,
    ) -> Result<(PathBuf, Vec<BadImage>), DataError> {
        let mut digest = Sha256::new();
        digest.update([VERSION, REVISION, size as u32, skip_bad.into()].map(u32::to_le_bytes).as_flattened());
        digest.update(self.validation.unwrap_or_default().to_le_bytes());
        digest.update(match &self.source {
            PackSource::Folder(folder) => folder.fingerprint()?,
            PackSource::Cifar10(cifar) => cifar.fingerprint()?,
        });
        let target = cache.join("packed").join(&hex(&digest.finalize())[..32]);
        let is_whole = |split: Split| PackedFile::open(&target.join(split.packed_name())).is_ok();
        let mut left_out = std::mem::take(&mut self.unused);
        let packed = made_once(target.clone(), is_whole, |unfinished| {
            let bad = self.pack(unfinished, Packing { size, skip_bad, shard_bytes: None }, progress)?;
            let list = bad.into_iter().flat_map(|bad| [bad.path.display().to_string(), bad.reason]);
            std::fs::write(unfinished.join(LEFT_OUT), list.collect::<Vec<_>>().join("\0"))
                .map_err(DataError::cache(unfinished))
        })?;
        let list = std::fs::read_to_string(packed.join(LEFT_OUT)).map_err(DataError::io(packed.join(LEFT_OUT)))?;
        let mut fields = list.split('\0');
        while let (Some(path), Some(reason)) = (fields.next(), fields.next()) {
            left_out.push(BadImage { path: path.into(), reason: reason.into() });
        }
        Ok((packed, left_out))
    }
}

/// Packs both splits of a folder. The test images are normalised like the training images.
fn pack_folder(
    folder: ImageFolder,
    validation: Option<f64>,
    out: &Path,
    Packing { size, skip_bad, shard_bytes }: Packing,
    progress: PackProgress<'_>,
) -> Result<Vec<BadImage>, DataError> {
    let ImageFolder { classes, mut train, mut test, unusable: mut bad } = folder;
    if let Some(share) = validation {
        (train, test) = split_by_content(train, share);
        if test.is_empty() {
            let reason = format!("--validation {share} takes none of {} images: raise it", train.len());
            return Err(DataError::Problem(reason));
        }
    }
    if shard_bytes.is_some() {
        // Images are shuffled because few shards are read at a time, and folders are sorted by class.
        train.shuffle(&mut ChaCha8Rng::seed_from_u64(0));
    }
    let total = (train.len() + test.len()) as u64;
    let mut done = 0;
    let mut pack = |files: &[LabelledFile], needs_all: bool| -> Result<PackedWriter, DataError> {
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
            Some(class) if needs_all => {
                let of_class = files.iter().find(|file| usize::from(file.label) == class);
                let folder = of_class.and_then(|file| file.path.parent()).unwrap_or(out);
                let why = if of_class.is_some() { "can be read" } else { "is left for training: lower --validation" };
                Err(DataError::corrupt(folder, format!("none of the images of class '{}' {why}", classes[class])))
            }
            _ => Ok(writer),
        }
    };
    // Of a rare class, chance may take no image for validation.
    let (train, test) =
        (pack(&train, skip_bad || validation.is_some())?, pack(&test, skip_bad && validation.is_none())?);
    if !bad.is_empty() && !skip_bad {
        return Err(DataError::BadImages { first: bad.remove(0), others: bad });
    }
    let channels = train.channels();
    train.keep(channels, out, Split::Train)?;
    test.keep(channels, out, Split::Test)?;
    Ok(bad)
}

/// Splits images into those for training and a share of them for tests. A hash of an image's content decides, so that neither its name nor
/// other images change its split, and copies are in the same one.
fn split_by_content(files: Vec<LabelledFile>, share: f64) -> (Vec<LabelledFile>, Vec<LabelledFile>) {
    // A file that cannot be read stays where it is, and is reported when it is packed.
    let hash = |digest: [u8; 32]| u64::from_be_bytes(*digest.first_chunk().expect("32 bytes"));
    let is_test = |file: &LabelledFile| {
        sha256_of_file(&file.path).is_ok_and(|digest| (hash(digest) as f64) < share * (u64::MAX as f64))
    };
    let of_test: Vec<bool> = files.par_iter().map(is_test).collect();
    let (test, train): (Vec<_>, Vec<_>) = files.into_iter().zip(of_test).partition(|(_, is_test)| *is_test);
    let files = |files: Vec<(LabelledFile, bool)>| files.into_iter().map(|(file, _)| file).collect();
    (files(train), files(test))
}

fn read(file: &LabelledFile, size: usize) -> Result<LabelledImage, BadImage> {
    let decoded = file.content().map_err(ImageError::from).and_then(|content| decode(content, &file.path, size));
    match decoded {
        Ok(pixels) => Ok(LabelledImage { label: file.label, pixels }),
        Err(error) => Err(BadImage { path: file.path.clone(), reason: error.to_string() }),
    }
}

impl LabelledFile {
    fn content(&self) -> io::Result<Vec<u8>> {
        let within = |bytes| {
            let reason = || format!("{bytes} bytes: expected an image of at most {MOST_BYTES}");
            if bytes <= MOST_BYTES { Ok(()) } else { Err(io::Error::new(io::ErrorKind::FileTooLarge, reason())) }
        };
        let Some(part) = &self.part else {
            within(std::fs::metadata(&self.path)?.len())?;
            return std::fs::read(&self.path);
        };
        within(part.bytes)?;
        let file = match &part.unpacked {
            Some(file) => file,
            None => &File::open(&part.archive)?.into(),
        };
        let mut content = vec![0; part.bytes as usize];
        read_exact_at(file, &mut content, part.offset)?;
        Ok(content)
    }
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
            let unpacked = Unpacked::find(folder.path(), None).unwrap().unwrap();
            let (target, _) = unpacked.pack_into_cache(cache.path(), size, false, &mut |_, _| packed = true).unwrap();
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
