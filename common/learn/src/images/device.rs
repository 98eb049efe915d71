//! Images that are kept on a device as bytes, and normalised there.

use ata_data::{DataError, IMAGE_BYTES, Images, Mixing, Placement, TaskSample};
use burn::tensor::{Device, Int, Tensor, TensorData};

use super::{ImageInput, mixed_labels};
use crate::problem::Samples;

/// The number of pixels per word: WebGPU shaders have no 8-bit numbers.
const PIXELS_OF_WORD: usize = 4;

/// The maximum size of a tensor, in bytes: 117 MiB, or 40,000 images of 32 × 32. Shaders can bind 128 MiB on every
/// adapter, and more on some.
const BLOCK_BYTES: usize = 40_000 * IMAGE_BYTES;

/// The maximum number of tensors on a device, 1.9 GiB in all. A larger data set stays in host memory, because a device
/// needs room for parameters and activations, and burn does not report how much it has.
const MOST_BLOCKS: u64 = 16;

/// A split whose batches are made on a device. If the device holds the pixels, only a batch's indices are sent there;
/// otherwise the batch's pixels are sent as bytes.
pub(crate) struct DeviceImages {
    source: Images,
    device: Device,
    resident: Option<Resident>,
    /// The mean and the standard deviation of the channels, shape [1, 3, 1, 1].
    channels: [Tensor<4>; 2],
    /// The number of bits by which a word is shifted for each of its pixels, shape [1, 1, 4].
    shifts: Tensor<3, Int>,
}

/// A whole split: its pixels on the device, and its labels in host memory, where losses use them.
struct Resident {
    /// The number of images per tensor.
    block: u64,
    /// The tensors, of shape [block, words of an image]; the last one is shorter.
    blocks: Vec<Tensor<2, Int>>,
    labels: Vec<u16>,
}

impl DeviceImages {
    pub(super) fn new(source: Images, device: &Device) -> Result<Self, DataError> {
        let channels = [0, 1].map(|part| {
            let values = source.info().channels.map(|(mean, deviation)| [mean, deviation][part]).to_vec();
            Tensor::from_data(TensorData::new(values, [1, 3, 1, 1]), device)
        });
        let shifts = Tensor::from_data(TensorData::new(vec![0_i32, 8, 16, 24], [1, 1, 4]), device);
        let block = (BLOCK_BYTES / source.info().image_bytes()) as u64;
        let fits = source.is_here() && source.count() <= MOST_BLOCKS * block;
        let resident = fits.then(|| Resident::new(&source, block, device)).transpose()?;
        Ok(Self { source, device: device.clone(), resident, channels, shifts })
    }

    /// Reads the images at these indices: pixels from 0 to 255, shape [samples, 3, size, size], and labels.
    fn read(&self, indices: &[u64]) -> Result<(Tensor<4>, Vec<i32>), DataError> {
        let (words, labels) = match &self.resident {
            Some(resident) => (
                resident.words(indices, &self.device),
                indices.iter().map(|index| resident.labels[*index as usize]).collect(),
            ),
            None => upload(&self.source, indices, &self.device)?,
        };
        let [samples, count] = words.dims();
        let size = self.source.info().size;
        let bytes =
            words.reshape([samples, count, 1]).bitwise_right_shift(self.shifts.clone()).bitwise_and_scalar(0xFF);
        Ok((bytes.float().reshape([samples, 3, size, size]), labels.into_iter().map(i32::from).collect()))
    }

    /// Creates a batch of these pixels, with the same arithmetic as [`super::ImageBatch::push`].
    fn batch_of(&self, pixels: Tensor<4>, labels: Vec<i32>) -> ImageInput {
        let [mean, deviation] = self.channels.clone();
        ImageInput::Device { images: (pixels / 255.0 - mean) / deviation, labels, mixed: None }
    }
}

impl Samples for DeviceImages {
    type Batch = ImageInput;

    fn count(&self) -> u64 {
        self.source.count()
    }

    fn batch(&self, indices: &[u64]) -> Result<ImageInput, DataError> {
        let (pixels, labels) = self.read(indices)?;
        Ok(self.batch_of(pixels, labels))
    }

    fn training_batch(&self, samples: &[TaskSample]) -> Result<ImageInput, DataError> {
        let indices: Vec<u64> = samples.iter().map(|sample| sample.index).collect();
        let (mut pixels, labels) = self.read(&indices)?;
        let augmentation = self.source.augmentation();
        if augmentation.moves() {
            let placements: Vec<Placement> = samples.iter().map(|sample| self.source.placement(*sample)).collect();
            pixels = placed(pixels, &placements, &self.device);
        }
        let batch = self.batch_of(pixels, labels);
        Ok(match augmentation.mixing(samples) {
            Some(mixing) => mixed(&batch, mixing, &self.device),
            None => batch,
        })
    }
}

/// Applies one placement to each sample of shape [samples, 3, size, size], like [`Placement::apply`].
fn placed(pixels: Tensor<4>, placements: &[Placement], device: &Device) -> Tensor<4> {
    let [samples, planes, size, _] = pixels.dims();
    let side = i64::from(size as u32);
    let of = |what: fn(&Placement) -> i32| {
        int_tensor(placements.iter().map(what).collect(), device).reshape([samples, 1, 1])
    };
    let numbers = || Tensor::<1, Int>::arange(0..side, device);
    let columns = numbers().reshape([1, 1, size]);
    let mirroring = of(|placement| placement.is_mirrored.into()) * (columns.clone() * -2 + (side - 1));
    let column = columns + mirroring - of(|placement| placement.right);
    let row = numbers().reshape([1, size, 1]) - of(|placement| placement.down);
    let inside = |at: &Tensor<3, Int>| at.clone().clamp(0, side - 1);
    let (nearest_column, nearest_row) = (inside(&column), inside(&row));
    let is_inside = nearest_column.clone().equal(column).float() * nearest_row.clone().equal(row).float();
    let index = (nearest_row * side + nearest_column).reshape([samples, 1, size * size]);
    let moved = pixels.reshape([samples, planes, size * size]).gather(2, index.repeat_dim(1, planes));
    (moved * is_inside.reshape([samples, 1, size * size])).reshape([samples, planes, size, size])
}

fn mixed(batch: &ImageInput, mixing: Mixing, device: &Device) -> ImageInput {
    let (images, labels) = (batch.images(device), batch.labels().to_vec());
    let weights = Tensor::from_data(TensorData::new(mixing.weights.clone(), [labels.len(), 1, 1, 1]), device);
    let others = images
        .clone()
        .select(0, int_tensor(mixing.positions.iter().map(|at| (*at as u32).cast_signed()).collect(), device));
    let images = images * weights.clone() + others * (weights * -1.0 + 1.0);
    let mixed = Some(mixed_labels(mixing, &labels));
    ImageInput::Device { images, labels, mixed }
}

impl Resident {
    fn new(source: &Images, block: u64, device: &Device) -> Result<Self, DataError> {
        let (mut blocks, mut labels) = (Vec::new(), Vec::new());
        for first in (0..source.count()).step_by(block as usize) {
            let indices: Vec<u64> = (first..source.count().min(first + block)).collect();
            let (words, labels_of_block) = upload(source, &indices, device)?;
            blocks.push(words);
            labels.extend(labels_of_block);
        }
        Ok(Self { block, blocks, labels })
    }

    /// Returns rows by index: gathered from one block after the other, then put in order.
    fn words(&self, indices: &[u64], device: &Device) -> Tensor<2, Int> {
        let block = |at: &usize| indices[*at] / self.block;
        let mut by_block: Vec<usize> = (0..indices.len()).collect();
        by_block.sort_by_key(block);
        let gathered: Vec<Tensor<2, Int>> = by_block
            .chunk_by(|a, b| block(a) == block(b))
            .map(|positions| {
                let rows = positions.iter().map(|at| (indices[*at] % self.block) as i32).collect();
                self.blocks[block(&positions[0]) as usize].clone().select(0, int_tensor(rows, device))
            })
            .collect();
        if let [all] = &gathered[..] {
            return all.clone();
        }
        let mut order = vec![0; indices.len()];
        (0..).zip(by_block).for_each(|(row, at)| order[at] = row);
        Tensor::cat(gathered, 0).select(0, int_tensor(order, device))
    }
}

fn int_tensor(values: Vec<i32>, device: &Device) -> Tensor<1, Int> {
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), device)
}

/// Uploads the pixels of these records, shape [samples, words of an image], and returns them with the labels.
fn upload(source: &Images, indices: &[u64], device: &Device) -> Result<(Tensor<2, Int>, Vec<u16>), DataError> {
    let count = indices.len();
    let words_of_image = source.info().image_bytes() / PIXELS_OF_WORD;
    let (mut words, mut labels) = (Vec::with_capacity(count * words_of_image), Vec::with_capacity(count));
    for index in indices {
        let image = source.read(*index)?;
        labels.push(image.label);
        let words_of = image.pixels.chunks_exact(PIXELS_OF_WORD);
        words.extend(words_of.map(|four| i32::from_le_bytes([four[0], four[1], four[2], four[3]])));
    }
    Ok((Tensor::from_data(TensorData::new(words, [count, words_of_image]), device), labels))
}

#[cfg(test)]
mod tests {
    use ata_data::{DataSource, LabelledImage, PackedWriter, Split};

    use super::*;
    use crate::ImageBatch;

    fn check(samples: &DeviceImages, images: &Images, indices: &[u64]) {
        let ImageInput::Device { images: found, labels, .. } = samples.batch(indices).unwrap() else {
            panic!("expected a batch on the device");
        };
        let expected = ImageBatch::read(images, indices).unwrap();
        assert_eq!(labels, expected.labels);
        assert_eq!(found.dims(), [indices.len(), 3, images.info().size, images.info().size]);
        let found: Vec<u32> = found.into_data().iter::<f32>().map(f32::to_bits).collect();
        assert!(found.into_iter().eq(expected.images.into_iter().map(f32::to_bits)));
    }

    #[test]
    fn augmented_batches_on_a_device_are_those_of_the_host() {
        let all = "crop/flip/mixup".parse().unwrap();
        let images = Images::open(&DataSource::Generated { seed: 3 }, Split::Test).unwrap().augmented(all);
        let samples: Vec<TaskSample> = (0..64)
            .map(|at| TaskSample {
                index: at % 9,
                draw: at.wrapping_mul(0x9E37_79B9_7F4A_7C15),
                next: if at < 63 { 1 } else { -63 },
            })
            .collect();
        let input = |samples_of: &dyn Samples<Batch = ImageInput>| samples_of.training_batch(&samples).unwrap();
        let device = DeviceImages::new(images.clone(), &Device::flex()).unwrap();
        let (found, expected) = (input(&device), input(&images));
        let bits = |input: &ImageInput| {
            let numbers = input.images(&Device::flex()).into_data();
            numbers.iter::<f32>().map(f32::to_bits).collect::<Vec<_>>()
        };
        assert_eq!(bits(&found), bits(&expected));
        assert_eq!(found.labels(), expected.labels());
        let indices: Vec<u64> = samples.iter().map(|sample| sample.index).collect();
        assert_ne!(bits(&found), bits(&device.batch(&indices).unwrap()), "an evaluation takes them as they are");
    }

    #[test]
    fn batches_on_a_device_are_those_of_the_host_bit_for_bit() {
        let open = |split| Images::open(&DataSource::Generated { seed: 3 }, split).unwrap();
        let images = open(Split::Train);
        let kept = DeviceImages::new(images.clone(), &Device::flex()).unwrap();
        assert_eq!(kept.resident.as_ref().map(|resident| resident.blocks.len()), Some(2));
        let few = DeviceImages::new(open(Split::Test), &Device::flex()).unwrap();
        let sent = DeviceImages { source: images.clone(), resident: None, ..few };
        // The images are in one block, in both blocks, repeated, and in any order.
        for indices in [&[7][..], &[3, 1, 3], &[49_999, 0, 40_000, 39_999], &[45_000]] {
            check(&kept, &images, indices);
            check(&sent, &images, indices);
        }
    }

    #[test]
    fn batches_of_packed_images_are_those_of_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let classes: Vec<String> = (0..300).map(|class| class.to_string()).collect();
        let mut writer = PackedWriter::new(folder.path(), 16, &classes, None).unwrap();
        for at in 0..300_u16 {
            let pixels = (0..3 * 16 * 16).map(|pixel| (pixel * (usize::from(at) + 7) % 256) as u8).collect();
            writer.push(&LabelledImage { label: 299 - at, pixels }).unwrap();
        }
        let channels = writer.channels();
        let (file, _) = writer.finish(channels).unwrap();
        let images = Images::open(&DataSource::File(file.path().into()), Split::Train).unwrap();
        let kept = DeviceImages::new(images.clone(), &Device::flex()).unwrap();
        check(&kept, &images, &[299, 0, 7, 7]);
        check(&DeviceImages { resident: None, ..kept }, &images, &[299, 0, 7, 7]);
    }
}
