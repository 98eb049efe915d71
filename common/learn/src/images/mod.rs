//! Images as [`Samples`]: batches of them, in host memory or kept on a device.

mod device;

use ata_data::{Channels, DataError, ImageInfo, Images, LabelledImage, Mixing, TaskSample};
use burn::tensor::{Device, Tensor, TensorData};

use self::device::DeviceImages;
use crate::nn::{MixedLabels, Targets};
use crate::problem::{DeviceSamples, Samples};

impl Samples for Images {
    type Batch = ImageInput;

    fn count(&self) -> u64 {
        Images::count(self)
    }

    fn batch(&self, indices: &[u64]) -> Result<ImageInput, DataError> {
        ImageBatch::read(self, indices).map(ImageInput::Host)
    }

    fn samples_of_shard(&self) -> Option<u64> {
        Images::samples_of_shard(self)
    }

    fn expect_shards(&self, shards: &[u64]) {
        Images::expect_shards(self, shards);
    }

    fn training_batch(&self, samples: &[TaskSample]) -> Result<ImageInput, DataError> {
        let batch = ImageBatch::normalised(self.info(), samples.iter().map(|sample| self.training_image(*sample)))?;
        Ok(ImageInput::Host(match self.augmentation().mixing(samples) {
            Some(mixing) => batch.mixed(mixing),
            None => batch,
        }))
    }

    fn mixes(&self) -> bool {
        self.augmentation().mixup
    }

    /// Shrinks the limit with the number of pixels, since activations grow with it.
    fn fused(&self) -> u64 {
        let pixels = (self.info().size * self.info().size) as u64;
        (512 * 32 * 32 / pixels).max(1)
    }

    fn on_device(&self, device: &Device) -> Result<Option<DeviceSamples<ImageInput>>, DataError> {
        Ok(Some(Box::new(DeviceImages::new(self.clone(), device)?)))
    }
}

/// Returns the labels that are mixed into a batch with the labels `own`.
fn mixed_labels(mixing: Mixing, own: &[i32]) -> MixedLabels {
    let labels = mixing.positions.iter().map(|other| own[*other]).collect();
    MixedLabels { labels, weights: mixing.weights }
}

/// A batch of images in host memory or on a device.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there are one or two at a time")]
pub enum ImageInput {
    /// A batch in host memory.
    Host(ImageBatch),
    /// A batch on the device that computes with it.
    Device {
        /// The normalised pixels, shape [samples, 3, size, size].
        images: Tensor<4>,
        /// The labels, in host memory, where losses and accuracies use them.
        labels: Vec<i32>,
        /// The labels of images that are mixed into these.
        mixed: Option<MixedLabels>,
    },
}

impl ImageInput {
    /// Returns the normalised pixels on the device, shape [samples, 3, size, size].
    pub fn images(&self, device: &Device) -> Tensor<4> {
        match self {
            Self::Host(ImageBatch { size, images, labels, .. }) => {
                Tensor::from_data(TensorData::new(images.clone(), [labels.len(), 3, *size, *size]), device)
            }
            Self::Device { images, .. } => images.clone(),
        }
    }

    /// Returns the labels.
    pub fn labels(&self) -> &[i32] {
        match self {
            Self::Host(ImageBatch { labels, .. }) | Self::Device { labels, .. } => labels,
        }
    }

    /// Returns the targets of the scores in training, with label smoothing.
    pub fn targets(&self, smoothing: f64) -> Targets {
        let (Self::Host(ImageBatch { labels, mixed, .. }) | Self::Device { labels, mixed, .. }) = self;
        Targets { labels: labels.clone(), mixed: mixed.clone(), smoothing }
    }
}

/// A batch of normalised images in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageBatch {
    /// The width and height of the images, in pixels.
    pub size: usize,
    /// The normalised pixels, shape [samples, 3, size, size], row-major.
    pub images: Vec<f32>,
    /// The labels of the images.
    pub labels: Vec<i32>,
    /// The labels of images that are mixed into these.
    pub mixed: Option<MixedLabels>,
}

impl ImageBatch {
    /// Reads the images at these indices.
    pub fn read(images: &Images, indices: &[u64]) -> Result<Self, DataError> {
        Self::normalised(images.info(), indices.iter().map(|index| images.read(*index)))
    }

    fn normalised(
        info: &ImageInfo,
        images: impl ExactSizeIterator<Item = Result<LabelledImage, DataError>>,
    ) -> Result<Self, DataError> {
        let mut batch = Self::new(info.size);
        batch.images.reserve_exact(images.len() * info.image_bytes());
        for image in images {
            batch.push(&image?, &info.channels);
        }
        Ok(batch)
    }

    /// Creates an empty batch of images with this width and height.
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

    /// Returns the weighted means of pairs of these images.
    fn mixed(self, mixing: Mixing) -> Self {
        let image = self.images.len() / self.labels.len();
        let weights = mixing.positions.iter().zip(&mixing.weights);
        let mixed = self.images.chunks_exact(image).zip(weights).flat_map(|(own, (other, weight))| {
            let other = &self.images[other * image..][..image];
            own.iter().zip(other).map(move |(own, other)| own * weight + other * (1.0 - weight))
        });
        Self { images: mixed.collect(), mixed: Some(mixed_labels(mixing, &self.labels)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use ata_data::{CHANNELS, IMAGE_BYTES};

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
}
