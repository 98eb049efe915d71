//! Images with labels, from a file or generated.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ata_nn::cross_entropy::{MixedLabels, Targets};
use burn::tensor::{Device, Tensor, TensorData};

use super::cifar::find_split;
use super::device_images::DeviceImages;
use super::{
    Augmentation, Channels, DataError, DataSource, ImageInfo, LabelledImage, Mixing, PackProgress, PackedFile,
    Placement, RecordFile, ShardIndex, ShardedFile, Split, Synthetic, TaskSample, Unpacked, extract_archive,
};
use crate::cache::default_cache_dir;
use crate::problem::{DeviceSamples, Samples};

/// One split of a data set of images, read image by image.
#[derive(Clone, Debug)]
pub struct Images {
    records: Records,
    info: Arc<ImageInfo>,
    augmentation: Augmentation,
}

#[derive(Clone, Debug)]
enum Records {
    /// Packed images of the user.
    Packed(PackedFile),
    /// The same, in shards.
    Sharded(ShardedFile),
    /// CIFAR-100.
    Cifar(RecordFile),
    /// Generated from a seed, in the shape of CIFAR-100.
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
            Records::Sharded(file) => file.info().clone(),
            Records::Cifar(_) | Records::Synthetic(_) => Arc::new(ImageInfo::cifar100()),
        };
        Ok(Self { records, info, augmentation: Augmentation::default() })
    }

    /// The same images, of which tasks get randomly changed ones.
    #[must_use]
    pub fn augmented(self, augmentation: Augmentation) -> Self {
        Self { augmentation, ..self }
    }

    /// Whether reading an image takes no more than reading a file.
    pub(super) fn is_here(&self) -> bool {
        !matches!(&self.records, Records::Sharded(file) if !file.is_here())
    }

    pub(super) fn augmentation(&self) -> Augmentation {
        self.augmentation
    }

    /// How an image of a task is changed.
    pub(super) fn placement(&self, sample: TaskSample) -> Placement {
        self.augmentation.placement(sample.draw, self.info.size)
    }

    /// What the images in a file are, without reading them.
    pub fn describe(path: &Path) -> Result<ImageInfo, DataError> {
        if ShardIndex::is_index(path)? {
            return Ok((**ShardIndex::read(path)?.info()).clone());
        }
        if PackedFile::is_packed(path)? { PackedFile::describe(path) } else { Ok(ImageInfo::cifar100()) }
    }

    /// What the images are.
    pub fn info(&self) -> &ImageInfo {
        &self.info
    }

    /// Packs what the user names into the cache, if it is a folder of images that are not packed yet, and returns the folder with the
    /// packed ones; otherwise what the user named.
    pub fn prepare(data: &Path, size: usize, progress: PackProgress<'_>) -> Result<PathBuf, DataError> {
        let is_found = |split: &Split| {
            let names = [split.file_name(), split.packed_name(), split.shards_name()];
            names.iter().any(|name| data.join(name).is_file())
        };
        if !data.is_dir() || [Split::Train, Split::Test].iter().any(is_found) {
            return Ok(data.into());
        }
        match Unpacked::find(data)? {
            Some(unpacked) => unpacked.pack_into_cache(&default_cache_dir(), size, progress),
            None => Ok(data.into()),
        }
    }

    /// The file of a split in what the user names: a folder, one of the two files in it, or the official archive of CIFAR-100, which
    /// is then unpacked into the cache.
    pub fn locate(data: &Path, split: Split) -> Result<PathBuf, DataError> {
        find_split(&Self::folder(data)?, split)
    }

    /// The folder that holds the splits of what the user names.
    pub fn folder(data: &Path) -> Result<PathBuf, DataError> {
        let expected = "'synthetic', a folder of images, or cifar-100-binary.tar.gz";
        let found = data.metadata().map_err(|cause| DataError::NotFound { path: data.into(), cause, expected })?;
        if found.is_dir() {
            return Ok(data.into());
        }
        let mut names = [Split::Train, Split::Test]
            .into_iter()
            .flat_map(|split| [split.file_name(), split.packed_name(), split.shards_name()]);
        let is_split = names.any(|name| data.ends_with(name));
        match data.parent() {
            Some(folder) if is_split => Ok(Path::new(".").join(folder)),
            _ => extract_archive(data, &default_cache_dir()),
        }
    }

    /// The image at an index below [`Samples::count`].
    pub fn read(&self, index: u64) -> Result<LabelledImage, DataError> {
        match &self.records {
            Records::Packed(file) => file.read(index),
            Records::Sharded(file) => file.read(index),
            Records::Cifar(file) => file.read(index).map(LabelledImage::from),
            Records::Synthetic(synthetic) => Ok(synthetic.record(index).into()),
        }
    }

    /// The images at these indices, in host memory.
    pub fn host_batch(&self, indices: &[u64]) -> Result<ImageBatch, DataError> {
        self.normalised(indices.iter().map(|index| self.read(*index)))
    }

    fn normalised(
        &self,
        images: impl ExactSizeIterator<Item = Result<LabelledImage, DataError>>,
    ) -> Result<ImageBatch, DataError> {
        let mut batch = ImageBatch::new(self.info.size);
        batch.images.reserve_exact(images.len() * self.info.image_bytes());
        for image in images {
            batch.push(&image?, &self.info.channels);
        }
        Ok(batch)
    }
}

impl Samples for Images {
    type Batch = ImageInput;

    fn count(&self) -> u64 {
        match &self.records {
            Records::Packed(file) => file.len(),
            Records::Sharded(file) => file.index().count(),
            Records::Cifar(file) => file.len(),
            Records::Synthetic(synthetic) => synthetic.len(),
        }
    }

    fn batch(&self, indices: &[u64]) -> Result<ImageInput, DataError> {
        self.host_batch(indices).map(ImageInput::Host)
    }

    fn samples_of_shard(&self) -> Option<u64> {
        match &self.records {
            Records::Sharded(file) => Some(file.index().images_of_shard()),
            _ => None,
        }
    }

    fn expect_shards(&self, shards: &[u64]) {
        if let Records::Sharded(file) = &self.records {
            file.expect(shards);
        }
    }

    fn training_batch(&self, samples: &[TaskSample]) -> Result<ImageInput, DataError> {
        let changed = |sample: &TaskSample| {
            let image = self.read(sample.index)?;
            Ok(self.placement(*sample).apply(image, self.info.size))
        };
        let batch = self.normalised(samples.iter().map(changed))?;
        Ok(ImageInput::Host(match self.augmentation.mixing(samples) {
            Some(mixing) => batch.mixed(mixing),
            None => batch,
        }))
    }

    /// Activations grow with the number of pixels.
    fn fused(&self) -> u64 {
        let pixels = (self.info.size * self.info.size) as u64;
        (512 * 32 * 32 / pixels).max(1)
    }

    fn on_device(&self, device: &Device) -> Result<Option<DeviceSamples<ImageInput>>, DataError> {
        Ok(Some(Box::new(DeviceImages::new(self.clone(), device)?)))
    }
}

/// A batch of images in host memory or on a device.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there are one or two at a time")]
pub enum ImageInput {
    /// In host memory.
    Host(ImageBatch),
    /// On the device that computes with it.
    Device {
        /// Normalised pixels, shape [samples, 3, size, size].
        images: Tensor<4>,
        /// Labels, in host memory, where losses and accuracies take them.
        labels: Vec<i32>,
        /// Labels of images that are mixed into these.
        mixed: Option<MixedLabels>,
    },
}

impl ImageInput {
    /// Normalised pixels on the device, shape [samples, 3, size, size].
    pub fn images(&self, device: &Device) -> Tensor<4> {
        match self {
            Self::Host(ImageBatch { size, images, labels, .. }) => {
                Tensor::from_data(TensorData::new(images.clone(), [labels.len(), 3, *size, *size]), device)
            }
            Self::Device { images, .. } => images.clone(),
        }
    }

    /// Labels.
    pub fn labels(&self) -> &[i32] {
        match self {
            Self::Host(ImageBatch { labels, .. }) | Self::Device { labels, .. } => labels,
        }
    }

    /// What scores are compared with in training, with label smoothing.
    pub fn targets(&self, smoothing: f64) -> Targets {
        let (Self::Host(ImageBatch { labels, mixed, .. }) | Self::Device { labels, mixed, .. }) = self;
        Targets { labels: labels.clone(), mixed: mixed.clone(), smoothing }
    }
}

/// Images ready for a device.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageBatch {
    /// Width and height, in pixels.
    pub size: usize,
    /// Normalised pixels, shape [samples, 3, size, size], row-major.
    pub images: Vec<f32>,
    /// Labels.
    pub labels: Vec<i32>,
    /// Labels of images that are mixed into these.
    pub mixed: Option<MixedLabels>,
}

impl ImageBatch {
    /// No images yet, of a width and height.
    pub fn new(size: usize) -> Self {
        Self { size, images: Vec::new(), labels: Vec::new(), mixed: None }
    }

    /// Adds an image, normalising each channel to mean 0 and standard deviation 1 over the training images.
    pub fn push(&mut self, image: &LabelledImage, channels: &Channels) {
        self.labels.push(image.label.into());
        for (plane, &(mean, deviation)) in image.pixels.chunks_exact(self.size * self.size).zip(channels) {
            self.images.extend(plane.iter().map(|&pixel| (f32::from(pixel) / 255.0 - mean) / deviation));
        }
    }

    /// The weighted means of these images and others among them.
    fn mixed(self, mixing: Mixing) -> Self {
        let image = self.images.len() / self.labels.len();
        let weights = mixing.positions.iter().zip(&mixing.weights);
        let mixed = self.images.chunks_exact(image).zip(weights).flat_map(|(own, (other, weight))| {
            let other = &self.images[other * image..][..image];
            own.iter().zip(other).map(move |(own, other)| own * weight + other * (1.0 - weight))
        });
        Self { images: mixed.collect(), mixed: Some(mixing.labels(&self.labels)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CHANNELS, IMAGE_BYTES};
    use super::*;

    #[test]
    fn pixels_are_normalised_per_channel() {
        let mut image = LabelledImage { label: 42, pixels: vec![0; IMAGE_BYTES] };
        image.pixels[0] = 255;
        image.pixels[1024] = 128;
        let mut batch = ImageBatch::new(32);
        batch.push(&image, &CHANNELS);
        assert_eq!((batch.labels[0], batch.images.len()), (42, IMAGE_BYTES));
        assert!((batch.images[0] - (1.0 - 0.5071) / 0.2673).abs() < 1e-6);
        assert!((batch.images[1024] - (128.0 / 255.0 - 0.4865) / 0.2564).abs() < 1e-6);
        assert!((batch.images[2048] - (0.0 - 0.4409) / 0.2762).abs() < 1e-6);
    }

    /// `ata up` hands its workers the training file itself.
    #[test]
    fn a_split_is_found_from_its_folder_and_from_either_file() {
        let folder = tempfile::tempdir().unwrap();
        for split in [Split::Train, Split::Test] {
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
