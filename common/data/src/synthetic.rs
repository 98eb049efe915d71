//! A learnable synthetic data set in the shape of CIFAR-100.

use rand::rngs::ChaCha8Rng;
use rand::{Rng, RngExt, SeedableRng};

use crate::{CLASSES, IMAGE_BYTES, RECORD_BYTES, Record, Split};

/// A synthetic data set: each class has a smooth random pattern of colours, and an image is the pattern of its class,
/// shifted by up to three pixels, with noise. Records are not stored: record i follows from (seed, split, i) by integer
/// arithmetic alone, so it is the same on every machine.
#[derive(Clone, Debug)]
pub struct Synthetic {
    split: Split,
    seed: u64,
    patterns: Vec<[u8; IMAGE_BYTES]>,
}

/// The width and height of a pattern's squares, in pixels.
const SQUARE: usize = 4;
const SIDE: usize = 32;

impl Synthetic {
    /// Creates one split for a seed: 50,000 training records, or 2,000 test records.
    pub fn new(split: Split, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        Self { split, seed, patterns: (0..CLASSES).map(|_| pattern(&mut rng)).collect() }
    }

    /// Returns the number of records.
    #[expect(clippy::len_without_is_empty, reason = "it has thousands of records")]
    pub fn len(&self) -> u64 {
        match self.split {
            Split::Train => 50_000,
            Split::Test => 2_000,
        }
    }

    /// Returns the record at an index.
    pub fn record(&self, index: u64) -> Record {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let half = if self.split == Split::Train { 1 } else { 2 };
        rng.set_stream(half << 32 | index);
        let fine = rng.random_range(0..CLASSES as u8);
        let (down, right) = (rng.random_range(0..4), rng.random_range(0..4));
        let mut noise = [0; IMAGE_BYTES];
        rng.fill_bytes(&mut noise);

        let mut record = [0; RECORD_BYTES];
        // CIFAR-100 has twenty coarse classes of five fine classes each.
        record[0] = fine / 5;
        record[1] = fine;
        let pattern = &self.patterns[usize::from(fine)];
        for (at, (pixel, noise)) in record[2..].iter_mut().zip(noise).enumerate() {
            let (plane, row, column) = (at / (SIDE * SIDE), at / SIDE % SIDE, at % SIDE);
            let from = (plane * SIDE + (row + down) % SIDE) * SIDE + (column + right) % SIDE;
            *pixel = pattern[from] / 2 + noise / 2;
        }
        record
    }
}

/// Draws a pattern: random squares, enlarged and smoothed.
fn pattern(rng: &mut impl Rng) -> [u8; IMAGE_BYTES] {
    let mut squares = [0; 3 * (SIDE / SQUARE) * (SIDE / SQUARE)];
    rng.fill_bytes(&mut squares);
    let per_side = SIDE / SQUARE;
    let square = |plane: usize, row: usize, column: usize| {
        u32::from(squares[(plane * per_side + row % per_side) * per_side + column % per_side])
    };
    std::array::from_fn(|at| {
        let (plane, row, column) = (at / (SIDE * SIDE), at / SIDE % SIDE, at % SIDE);
        let (y, dy) = (row / SQUARE, (row % SQUARE) as u32);
        let (x, dx) = (column / SQUARE, (column % SQUARE) as u32);
        let near = SQUARE as u32;
        let top = square(plane, y, x) * (near - dx) + square(plane, y, x + 1) * dx;
        let bottom = square(plane, y + 1, x) * (near - dx) + square(plane, y + 1, x + 1) * dx;
        ((top * (near - dy) + bottom * dy) / (near * near)) as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_follow_from_seed_split_and_index() {
        let data = Synthetic::new(Split::Train, 7);
        assert_eq!(data.record(5), Synthetic::new(Split::Train, 7).record(5));
        assert_ne!(data.record(5), data.record(6));
        assert_ne!(data.record(5), Synthetic::new(Split::Train, 8).record(5));
        assert_ne!(data.record(5), Synthetic::new(Split::Test, 7).record(5));
    }

    #[test]
    fn content_is_the_same_on_every_machine() {
        let record = Synthetic::new(Split::Train, 0).record(0);
        let mut crc = flate2::Crc::new();
        crc.update(&record);
        assert_eq!(crc.sum(), 2_244_931_482);
    }
}
