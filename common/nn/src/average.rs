//! Global average pooling.

use crate::image::Size;
use crate::instructions::by_width;
use crate::normalise::{PixelSums, Plain};

/// Returns the means over the pixels of each image, by channel. Sums over pixels are computed as in [`crate::group_norm::forward`].
pub fn forward(size: Size, images: &[f32]) -> Vec<f32> {
    let sums = |image| by_width(PixelSums { channels: size.channels, count: size.numbers(), term: Plain(image) });
    images.chunks_exact(size.numbers()).flat_map(sums).map(|sum| sum / size.pixels() as f32).collect()
}

/// Returns the gradient of the images, from that of the means.
pub fn gradient(size: Size, of_means: &[f32]) -> Vec<f32> {
    let mut of_images = Vec::with_capacity(of_means.len() * size.pixels());
    for means in of_means.chunks_exact(size.channels) {
        let pixel: Vec<f32> = means.iter().map(|mean| mean / size.pixels() as f32).collect();
        of_images.extend(std::iter::repeat_n(pixel, size.pixels()).flatten());
    }
    of_images
}
