//! The description of a data set of images.

use crate::{CHANNELS, CLASS_NAMES};

/// The maximum number of classes: labels have 16 bits.
pub const MAX_CLASSES: usize = 1 << 16;
/// The maximum width and height of an image, in pixels: larger images do not fit the built-in models, whose activations
/// would take gigabytes per task.
pub const MAX_SIZE: usize = 256;

/// Returns `true` if images may have this width and height. The built-in models halve them up to three times.
pub fn is_size(size: usize) -> bool {
    (8..=MAX_SIZE).contains(&size) && size.is_multiple_of(8)
}

/// The mean and the standard deviation of the red, green and blue values of training images, on a scale of 0 to 1.
pub type Channels = [(f32, f32); 3];

/// The size, the classes and the normalisation of a data set of images.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageInfo {
    /// The width and height of the images, in pixels.
    pub size: usize,
    /// The names of the classes, in the order of their labels.
    pub classes: Vec<String>,
    /// The means and deviations that normalise pixels.
    pub channels: Channels,
}

impl ImageInfo {
    /// Returns the description of CIFAR-100.
    pub fn cifar100() -> Self {
        Self { size: 32, classes: CLASS_NAMES.map(String::from).into(), channels: CHANNELS }
    }

    /// Returns the size of an image, in bytes: a red, a green and a blue plane, row-major.
    pub fn image_bytes(&self) -> usize {
        3 * self.size * self.size
    }
}

/// An image and its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledImage {
    /// The number of the class.
    pub label: u16,
    /// The pixels, in [`ImageInfo::image_bytes`] bytes.
    pub pixels: Vec<u8>,
}
