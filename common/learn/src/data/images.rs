//! Images with labels, from a file or generated.

use std::path::{Path, PathBuf};

use burn::tensor::{Device, Tensor, TensorData};

use super::cifar::find_split;
use super::device_images::DeviceImages;
use super::{CHANNELS, DataError, DataSource, IMAGE_BYTES, Record, RecordFile, Split, Synthetic, extract_archive};
use crate::cache::default_cache_dir;
use crate::problem::{DeviceSamples, Samples};

/// One split of CIFAR-100 or of its synthetic stand-in, read record by record.
#[derive(Clone, Debug)]
pub enum Images {
    /// A file of records.
    File(RecordFile),
    /// Generated from a seed.
    Synthetic(Synthetic),
}

impl Images {
    /// Opens a split.
    pub fn open(source: &DataSource, split: Split) -> Result<Self, DataError> {
        match source {
            DataSource::Generated { seed } => Ok(Self::Synthetic(Synthetic::new(split, *seed))),
            DataSource::File(path) => Ok(Self::File(RecordFile::open(path)?)),
        }
    }

    /// The file of a split in what the user names: a folder, one of the two files in it, or the official archive, which
    /// is then unpacked into the cache.
    pub fn locate(data: &Path, split: Split) -> Result<PathBuf, DataError> {
        find_split(&Self::folder(data)?, split)
    }

    /// The folder that holds the splits of what the user names.
    pub fn folder(data: &Path) -> Result<PathBuf, DataError> {
        let expected = "'synthetic', a folder with train.bin and test.bin, or cifar-100-binary.tar.gz";
        let found = data.metadata().map_err(|cause| DataError::NotFound { path: data.into(), cause, expected })?;
        if found.is_dir() {
            return Ok(data.into());
        }
        let is_split = [Split::Train, Split::Test].iter().any(|split| data.ends_with(split.file_name()));
        match data.parent() {
            Some(folder) if is_split => Ok(Path::new(".").join(folder)),
            _ => extract_archive(data, &default_cache_dir()),
        }
    }

    /// The record at an index below [`Samples::count`].
    pub fn read(&self, index: u64) -> Result<Record, DataError> {
        match self {
            Self::File(file) => file.read(index),
            Self::Synthetic(synthetic) => Ok(synthetic.record(index)),
        }
    }

    /// The images at these indices, in host memory.
    pub fn host_batch(&self, indices: &[u64]) -> Result<ImageBatch, DataError> {
        let mut batch = ImageBatch::default();
        batch.images.reserve_exact(indices.len() * IMAGE_BYTES);
        for index in indices {
            batch.push(&self.read(*index)?);
        }
        Ok(batch)
    }
}

impl Samples for Images {
    type Batch = ImageInput;

    fn count(&self) -> u64 {
        match self {
            Self::File(file) => file.len(),
            Self::Synthetic(synthetic) => synthetic.len(),
        }
    }

    fn batch(&self, indices: &[u64]) -> Result<ImageInput, DataError> {
        self.host_batch(indices).map(ImageInput::Host)
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
        /// Normalised pixels, shape [samples, 3, 32, 32].
        images: Tensor<4>,
        /// Fine labels, in host memory, where losses and accuracies take them.
        labels: Vec<i32>,
    },
}

impl ImageInput {
    /// Normalised pixels on the device, shape [samples, 3, 32, 32].
    pub fn images(&self, device: &Device) -> Tensor<4> {
        match self {
            Self::Host(ImageBatch { images, labels }) => {
                Tensor::from_data(TensorData::new(images.clone(), [labels.len(), 3, 32, 32]), device)
            }
            Self::Device { images, .. } => images.clone(),
        }
    }

    /// Fine labels.
    pub fn labels(&self) -> &[i32] {
        match self {
            Self::Host(ImageBatch { labels, .. }) | Self::Device { labels, .. } => labels,
        }
    }
}

/// Images ready for a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageBatch {
    /// Normalised pixels, shape [samples, 3, 32, 32], row-major.
    pub images: Vec<f32>,
    /// Fine labels.
    pub labels: Vec<i32>,
}

impl ImageBatch {
    /// Adds a record, normalising each channel to mean 0 and standard deviation 1 over CIFAR-100.
    pub fn push(&mut self, record: &Record) {
        self.labels.push(i32::from(record[1]));
        for (plane, (mean, deviation)) in record[2..].chunks_exact(IMAGE_BYTES / 3).zip(CHANNELS) {
            self.images.extend(plane.iter().map(|&pixel| (f32::from(pixel) / 255.0 - mean) / deviation));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::RECORD_BYTES;
    use super::*;

    #[test]
    fn pixels_are_normalised_per_channel() {
        let mut record = [0; RECORD_BYTES];
        record[1] = 42;
        record[2] = 255;
        record[2 + 1024] = 128;
        let mut batch = ImageBatch::default();
        batch.push(&record);
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
