//! Images with labels, from a file or generated.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cache::default_cache_dir;
use crate::cifar::find_split;
use crate::sharded::ShardedFile;
use crate::{
    Augmentation, BadImage, DataError, DataSource, ImageInfo, LabelledImage, PackProgress, PackedFile, Placement,
    RecordFile, ShardIndex, Split, Synthetic, TaskSample, Unpacked, extract_archive,
};

/// The options for images that are read from a folder in which they are not packed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FolderOptions {
    /// Whether unusable files are left out; otherwise they are an error.
    pub skip_bad: bool,
    /// The share of the images that become test images, above 0 and below 1, if the folder has no others.
    pub validation: Option<f64>,
}

/// One split of a data set of images, read image by image.
#[derive(Clone, Debug)]
pub struct Images {
    records: Records,
    info: Arc<ImageInfo>,
    augmentation: Augmentation,
}

#[derive(Clone, Debug)]
enum Records {
    Packed(PackedFile),
    Sharded(ShardedFile),
    Cifar(RecordFile),
    Synthetic(Synthetic),
}

impl Images {
    /// Opens a split.
    pub fn open(source: &DataSource, split: Split) -> Result<Self, DataError> {
        let records = match source {
            DataSource::Generated { seed } => Records::Synthetic(Synthetic::new(split, *seed)),
            DataSource::Shards { index, store } => Records::Sharded(ShardedFile::with_store(index, store.clone())?),
            DataSource::File(path) if ShardIndex::is_index(path)? => Records::Sharded(ShardedFile::open(path)?),
            DataSource::File(path) if PackedFile::is_packed(path)? => Records::Packed(PackedFile::open(path)?),
            DataSource::File(path) => Records::Cifar(RecordFile::open(path)?),
        };
        let info = match &records {
            Records::Packed(file) => file.info().clone(),
            Records::Sharded(file) => file.index.info().clone(),
            Records::Cifar(_) | Records::Synthetic(_) => Arc::new(ImageInfo::cifar100()),
        };
        Ok(Self { records, info, augmentation: Augmentation::default() })
    }

    /// Returns the same images, to which tasks apply random changes.
    #[must_use]
    pub fn augmented(self, augmentation: Augmentation) -> Self {
        Self { augmentation, ..self }
    }

    /// Returns `true` if the images are on this machine, so that reading one only reads a file.
    pub fn is_here(&self) -> bool {
        !matches!(&self.records, Records::Sharded(file) if !file.is_here())
    }

    /// Returns the random changes that tasks apply.
    pub fn augmentation(&self) -> Augmentation {
        self.augmentation
    }

    /// Returns how an image of a task is changed.
    pub fn placement(&self, sample: TaskSample) -> Placement {
        self.augmentation.placement(sample.draw, self.info.size)
    }

    /// Describes the images in a file, without reading them.
    pub fn describe(path: &Path) -> Result<ImageInfo, DataError> {
        if ShardIndex::is_index(path)? {
            return Ok((**ShardIndex::read(path)?.info()).clone());
        }
        if PackedFile::is_packed(path)? {
            return Ok((**PackedFile::open_unread(path)?.info()).clone());
        }
        Ok(ImageInfo::cifar100())
    }

    /// Returns the description of the images.
    pub fn info(&self) -> &ImageInfo {
        &self.info
    }

    /// Packs the images of `data` into the cache if it is a folder of images that are not packed yet, and returns the
    /// folder of the packed images, and the files left out. Otherwise returns `data`.
    pub fn prepare(
        data: &Path,
        size: usize,
        FolderOptions { skip_bad, validation }: FolderOptions,
        progress: PackProgress<'_>,
    ) -> Result<(PathBuf, Vec<BadImage>), DataError> {
        let is_split =
            |folder: &Path| Split::BOTH.iter().flat_map(|split| split.names()).any(|name| folder.join(name).is_file());
        if data.is_dir()
            && !is_split(data)
            && let Some(unpacked) = Unpacked::find(data, validation)?
        {
            return unpacked.pack_into_cache(&default_cache_dir(), size, skip_bad, progress);
        }
        match validation {
            Some(_) => {
                Err(DataError::corrupt(data, "is no folder of images, which --validation could split: leave it out"))
            }
            None => Ok((data.into(), Vec::new())),
        }
    }

    /// Returns the file of a split in `data`: a folder, one of the two files in it, or the official archive of
    /// CIFAR-100, which is then unpacked into the cache.
    pub fn locate(data: &Path, split: Split) -> Result<PathBuf, DataError> {
        find_split(&Self::folder(data)?, split)
    }

    /// Returns the folder that holds the splits of `data`.
    pub fn folder(data: &Path) -> Result<PathBuf, DataError> {
        let expected = "'synthetic', a folder of images, or cifar-100-binary.tar.gz";
        let found = data.metadata();
        let found =
            found.map_err(|cause| DataError::Problem(format!("{}: {cause}. Expected {expected}", data.display())))?;
        if found.is_dir() {
            return Ok(data.into());
        }
        let is_split = Split::BOTH.iter().flat_map(|split| split.names()).any(|name| data.ends_with(name));
        match data.parent() {
            Some(folder) if is_split => Ok(Path::new(".").join(folder)),
            _ => extract_archive(data, &default_cache_dir()),
        }
    }

    /// Reads the image at an index below [`Self::count`].
    pub fn read(&self, index: u64) -> Result<LabelledImage, DataError> {
        match &self.records {
            Records::Packed(file) => file.read(index),
            Records::Sharded(file) => file.read(index),
            Records::Cifar(file) => file.read(index).map(LabelledImage::from),
            Records::Synthetic(synthetic) => Ok(synthetic.record(index).into()),
        }
    }

    /// Reads a task's image, and changes it as the augmentation says.
    pub fn training_image(&self, sample: TaskSample) -> Result<LabelledImage, DataError> {
        Ok(self.placement(sample).apply(self.read(sample.index)?, self.info.size))
    }

    /// Returns the number of images.
    pub fn count(&self) -> u64 {
        match &self.records {
            Records::Packed(file) => file.len(),
            Records::Sharded(file) => file.index.count(),
            Records::Cifar(file) => file.len(),
            Records::Synthetic(synthetic) => synthetic.len(),
        }
    }

    /// Returns the number of images per shard, if the images are in shards; the last shard may have fewer.
    pub fn samples_of_shard(&self) -> Option<u64> {
        match &self.records {
            Records::Sharded(file) => Some(file.index.images_of_shard()),
            _ => None,
        }
    }

    /// Announces the shards that are needed next, in this order, so that they can be obtained ahead.
    pub fn expect_shards(&self, shards: &[u64]) {
        if let Records::Sharded(file) = &self.records {
            file.expect(shards);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ata up` gives its workers the training file itself.
    #[test]
    fn a_split_is_found_from_its_folder_and_from_either_file() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Images::locate(folder.path(), Split::Train).unwrap_err().to_string();
        assert!(missing.contains("holds no train.bin"), "{missing}");
        let below = folder.path().join("cifar-100-binary/train.bin");
        std::fs::create_dir(below.parent().unwrap()).unwrap();
        std::fs::write(&below, "").unwrap();
        assert_eq!(Images::locate(folder.path(), Split::Train).unwrap(), below);
        for split in Split::BOTH {
            std::fs::write(folder.path().join(split.file_name()), Synthetic::new(split, 1).record(0)).unwrap();
        }
        let train = folder.path().join("train.bin");
        for named in [folder.path(), &train, &folder.path().join("test.bin")] {
            let found = Images::locate(named, Split::Train).unwrap();
            assert_eq!(found.canonicalize().unwrap(), train.canonicalize().unwrap());
            assert_eq!(Images::open(&DataSource::File(found), Split::Train).unwrap().count(), 1);
        }
        let missing = Images::locate(&folder.path().join("nowhere"), Split::Test).unwrap_err().to_string();
        assert!(missing.contains("nowhere") && missing.contains("Expected 'synthetic', a folder"), "{missing}");
    }
}
