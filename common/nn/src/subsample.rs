//! Takes every other row and column of images, and adds channels.

use crate::image::Size;

/// Returns the size of the smaller images, which have `channels` channels.
pub fn output(size: Size, channels: usize) -> Size {
    Size { channels, height: size.height.div_ceil(2), width: size.width.div_ceil(2) }
}

/// Returns the smaller images; channels beyond those of the input are zero.
pub fn forward(size: Size, channels: usize, images: &[f32]) -> Vec<f32> {
    let output = output(size, channels);
    let mut result = vec![0.0; images.len() / size.numbers() * output.numbers()];
    for (result, image) in result.chunks_exact_mut(output.numbers()).zip(images.chunks_exact(size.numbers())) {
        for (to, from) in pixels(size, output) {
            result[to..][..size.channels].copy_from_slice(&image[from..][..size.channels]);
        }
    }
    result
}

/// Returns the gradient of the images, from that of the smaller ones.
pub fn gradient(size: Size, channels: usize, of_output: &[f32]) -> Vec<f32> {
    let output = output(size, channels);
    let mut of_images = vec![0.0; of_output.len() / output.numbers() * size.numbers()];
    for (image, gradient) in of_images.chunks_exact_mut(size.numbers()).zip(of_output.chunks_exact(output.numbers())) {
        for (from, to) in pixels(size, output) {
            image[to..][..size.channels].copy_from_slice(&gradient[from..][..size.channels]);
        }
    }
    of_images
}

/// Returns the offset of each pixel in the smaller image, and in the larger one.
fn pixels(size: Size, output: Size) -> impl Iterator<Item = (usize, usize)> {
    let place = move |at: usize| (2 * (at / output.width) * size.width + 2 * (at % output.width)) * size.channels;
    (0..output.pixels()).map(move |at| (at * output.channels, place(at)))
}
