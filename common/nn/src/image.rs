//! The layout of images in memory.

use std::borrow::Cow;

use crate::{Aligned, BLOCK, spread, zeros};

/// The size of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The number of channels.
    pub channels: usize,
    /// The number of rows.
    pub height: usize,
    /// The number of columns.
    pub width: usize,
}

impl Size {
    /// Returns the number of values in an image.
    pub fn numbers(self) -> usize {
        self.channels * self.height * self.width
    }

    /// Returns the number of pixels in an image.
    pub fn pixels(self) -> usize {
        self.height * self.width
    }

    /// Returns the number of values from a pixel to the one below, in an image with a border of one pixel.
    pub(crate) fn row(self) -> usize {
        (self.width + 2) * self.channels
    }

    /// Returns the number of values in an image with its border, including the slack for vectors that end beyond a run.
    pub fn padded(self) -> usize {
        ((self.height + 2) * self.row() + BLOCK).next_multiple_of(BLOCK)
    }

    /// Returns the number of values in three neighbouring pixels, which a row of a 3×3 kernel covers.
    pub(crate) fn run(self) -> usize {
        3 * self.channels
    }

    /// Returns the length of a run, rounded up to whole blocks.
    pub(crate) fn wide_run(self) -> usize {
        self.run().next_multiple_of(BLOCK)
    }
}

/// A view of a tensor of shape [samples, channels, height, width] whose values are in any order.
#[derive(Clone, Copy, Debug)]
pub struct ImageView<'a> {
    /// The values, from the tensor's first one on.
    pub numbers: &'a [f32],
    /// The distance between neighbours in each dimension.
    pub strides: [usize; 4],
}

impl<'a> ImageView<'a> {
    /// Returns all images, channels last, without a border.
    pub fn images(&self, samples: usize, size: Size) -> Cow<'a, [f32]> {
        let [sample, channel, row, pixel] = self.strides;
        let own = [size.numbers(), 1, size.width * size.channels, size.channels];
        if [sample, channel, row, pixel] == own {
            return Cow::Borrowed(&self.numbers[..samples * size.numbers()]);
        }
        let mut images = zeros(samples * size.numbers());
        for (n, image) in images.chunks_exact_mut(size.numbers()).enumerate() {
            self.copy(n, size, image.chunks_exact_mut(size.width * size.channels));
        }
        Cow::Owned(images)
    }

    pub(crate) fn padded_images(&self, samples: usize, size: Size) -> Aligned {
        let mut images = Aligned::zeros(samples * size.padded());
        let each = images.chunks_exact_mut(size.padded()).enumerate();
        spread(each, |(n, image)| self.copy_padded(n, size, image));
        images
    }

    pub(crate) fn padded_image(&self, n: usize, size: Size) -> Aligned {
        let mut image = Aligned::zeros(size.padded());
        self.copy_padded(n, size, &mut image);
        image
    }

    /// Writes an image inside an existing border of zeros.
    pub(crate) fn copy_padded(&self, n: usize, size: Size, image: &mut [f32]) {
        let (row, pixel) = (size.row(), size.channels);
        self.copy(n, size, image[row..].chunks_exact_mut(row).take(size.height).map(|to| &mut to[pixel..row - pixel]));
    }

    fn copy<'b>(&self, n: usize, size: Size, rows: impl Iterator<Item = &'b mut [f32]>) {
        let [of_sample, of_channel, of_row, of_pixel] = self.strides;
        for (y, row) in rows.enumerate() {
            let from = &self.numbers[n * of_sample + y * of_row..];
            if of_channel == 1 && of_pixel == size.channels {
                row.copy_from_slice(&from[..row.len()]);
                continue;
            }
            for c in 0..size.channels {
                let from = from[c * of_channel..].iter().step_by(of_pixel.max(1));
                for (to, from) in row[c..].iter_mut().step_by(size.channels).zip(from) {
                    *to = *from;
                }
            }
        }
    }
}
