//! Random changes of training images.

use std::fmt;
use std::str::FromStr;

use crate::{LabelledImage, TaskSample};

/// The random changes that training images undergo.
///
/// How an image is changed depends on its [`TaskSample::draw`](crate::TaskSample) only, so a task is the same whichever
/// worker computes it, on any device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Augmentation {
    /// Whether images move by up to an eighth of their size in each direction; pixels that come into view are black.
    /// This is a crop of the padded image (He et al., CVPR 2016, section 4.2: 4 pixels for images of 32).
    pub crop: bool,
    /// Whether half of the images are mirrored, left to right.
    pub flip: bool,
    /// Whether each image is mixed with another one of its task, and so are the labels; the weights are uniformly
    /// distributed (Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018, with α = 1).
    pub mixup: bool,
}

impl Augmentation {
    /// Returns `true` if pixels move.
    pub fn moves(self) -> bool {
        self.crop || self.flip
    }

    /// Returns which images of a batch are mixed, and how.
    pub fn mixing(self, samples: &[TaskSample]) -> Option<Mixing> {
        self.mixup.then(|| Mixing {
            positions: samples.iter().enumerate().map(|(at, sample)| at.wrapping_add_signed(sample.next)).collect(),
            // The weight comes from bits 56 to 62: 128 weights are even enough, and exact in f32.
            weights: samples.iter().map(|sample| ((sample.draw >> 56 & 0x7F) as f32 + 0.5) / 128.0).collect(),
        })
    }

    /// Returns how an image of this width and height is changed.
    pub fn placement(self, draw: u64, size: usize) -> Placement {
        let reach = if self.crop { size as u64 / 8 } else { 0 };
        // The offsets come from bits 0 to 27 and 28 to 55: multiples of 2⁻²⁸ are even enough for a few offsets.
        let offset = |bits: u64| (((bits & 0xFFF_FFFF) * (2 * reach + 1)) >> 28) as i32 - reach as i32;
        Placement { right: offset(draw), down: offset(draw >> 28), is_mirrored: self.flip && draw >> 63 == 1 }
    }
}

impl FromStr for Augmentation {
    type Err = String;

    /// Parses names separated by `/` or `,`; an empty text means no changes.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected crop, flip, mixup, or several: crop,flip";
        let mut augmentation = Self::default();
        for name in text.split(['/', ',']).filter(|name| !name.is_empty()) {
            match name {
                "crop" => augmentation.crop = true,
                "flip" => augmentation.flip = true,
                "mixup" => augmentation.mixup = true,
                _ => return Err(format!("unknown augmentation '{name}': {expected}")),
            }
        }
        Ok(augmentation)
    }
}

impl fmt::Display for Augmentation {
    /// Formats the names separated by `/`, since commas separate parameters in the specification of a model.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [("crop", self.crop), ("flip", self.flip), ("mixup", self.mixup)];
        let names: Vec<&str> = names.into_iter().filter_map(|(name, is_on)| is_on.then_some(name)).collect();
        f.write_str(&names.join("/"))
    }
}

/// The images of a batch that are mixed, and their weights.
pub struct Mixing {
    /// The position of the image that is mixed into each image.
    pub positions: Vec<usize>,
    /// The weight of each image; the image that is mixed into it has the rest.
    pub weights: Vec<f32>,
}

/// The displacement of an image's pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The number of pixels by which the image moves to the right, before it is mirrored.
    pub right: i32,
    /// The number of pixels by which the image moves down.
    pub down: i32,
    /// Whether left and right are swapped.
    pub is_mirrored: bool,
}

impl Placement {
    /// Returns the changed image.
    pub fn apply(self, image: LabelledImage, size: usize) -> LabelledImage {
        if self == Self::default() {
            return image;
        }
        let mut pixels = vec![0; image.pixels.len()];
        let rows = pixels.chunks_exact_mut(size).zip(image.pixels.chunks_exact(size * size).flat_map(|plane| {
            (0..size).map(move |row| {
                let row = row.checked_add_signed(-(self.down as isize)).filter(|row| *row < size)?;
                plane.get(row * size..(row + 1) * size)
            })
        }));
        for (row, source) in rows {
            let Some(source) = source else { continue };
            for (column, pixel) in row.iter_mut().enumerate() {
                let column = if self.is_mirrored { size - 1 - column } else { column };
                let column = column.checked_add_signed(-(self.right as isize));
                *pixel = column.and_then(|column| source.get(column)).copied().unwrap_or(0);
            }
        }
        LabelledImage { pixels, ..image }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ata_types::Iteration;

    use super::*;
    use crate::{TaskSampler, Tasks};

    const BOTH: Augmentation = Augmentation { crop: true, flip: true, mixup: false };

    /// Returns one plane of 8 × 8 pixels, numbered from 1.
    fn numbered() -> LabelledImage {
        LabelledImage { label: 7, pixels: (1..=64).collect() }
    }

    fn row(image: &LabelledImage, row: usize) -> &[u8] {
        &image.pixels[row * 8..(row + 1) * 8]
    }

    #[test]
    fn pixels_move_and_what_comes_into_view_is_black() {
        let moved = Placement { right: 2, down: -1, is_mirrored: false }.apply(numbered(), 8);
        assert_eq!(row(&moved, 0), [0, 0, 9, 10, 11, 12, 13, 14]);
        assert_eq!(row(&moved, 6), [0, 0, 57, 58, 59, 60, 61, 62]);
        assert_eq!(row(&moved, 7), [0; 8]);
        let mirrored = Placement { right: -1, down: 0, is_mirrored: true }.apply(numbered(), 8);
        assert_eq!(row(&mirrored, 1), [0, 16, 15, 14, 13, 12, 11, 10]);
        assert_eq!((Placement::default().apply(numbered(), 8), mirrored.label), (numbered(), 7));
    }

    #[test]
    fn draws_are_spread_evenly() {
        let draw = |at: u64| at.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut counts = BTreeMap::new();
        for at in 0..81_000 {
            let Placement { right, down, is_mirrored } = BOTH.placement(draw(at), 32);
            *counts.entry((right, down)).or_insert(0) += 1;
            *counts.entry((99, i32::from(is_mirrored))).or_insert(0) += 1;
        }
        assert!((40_000..41_000).contains(&counts.remove(&(99, 1)).unwrap()));
        counts.remove(&(99, 0));
        assert_eq!(counts.len(), 81);
        assert!(counts.values().all(|count| (900..1_100).contains(count)), "{counts:?}");
        assert!(counts.keys().all(|(right, down)| right.abs() <= 4 && down.abs() <= 4));
    }

    /// Images are mixed within their tasks, whatever other tasks are in the batch, with uniformly distributed weights.
    #[test]
    fn tasks_are_mixed_by_themselves() {
        let mixup = Augmentation { mixup: true, ..Augmentation::default() };
        let mut sampler = TaskSampler::new(Tasks { seed: 1, budget: 2, task_batch: 3 }, 50, None);
        let mut task = |iteration, index| sampler.task(Iteration(iteration), index);
        let both = mixup.mixing(&[task(1, 0), task(1, 1)].concat()).unwrap();
        assert_eq!(both.positions, [1, 2, 0, 4, 5, 3]);
        assert_eq!(mixup.mixing(&task(1, 1)).unwrap().weights, both.weights[3..]);
        assert_eq!(mixup.mixing(&task(1, 0)).unwrap().positions, [1, 2, 0]);
        let weights: Vec<f32> =
            (1..2000).flat_map(|iteration| mixup.mixing(&task(iteration, 0)).unwrap().weights).collect();
        assert!(weights.iter().all(|weight| (0.0..=1.0).contains(weight)));
        for below in [0.25, 0.5, 0.75] {
            let share = weights.iter().filter(|weight| **weight < below).count() as f32 / weights.len() as f32;
            assert!((share - below).abs() < 0.03, "{below}: {share}");
        }
        assert!(BOTH.mixing(&task(1, 0)).is_none());
    }

    #[test]
    fn only_what_was_asked_for_is_changed() {
        for draw in [0, u64::MAX, 0x8123_4567_89AB_CDEF] {
            assert_eq!(Augmentation::default().placement(draw, 32), Placement::default());
            assert!(!Augmentation { crop: true, ..Augmentation::default() }.placement(draw, 32).is_mirrored);
            let Placement { right, down, .. } =
                Augmentation { flip: true, ..Augmentation::default() }.placement(draw, 32);
            assert_eq!((right, down), (0, 0));
        }
    }

    #[test]
    fn names_are_read_and_written() {
        for (text, augmentation, written) in [
            ("", Augmentation::default(), ""),
            ("flip,crop", BOTH, "crop/flip"),
            ("crop", Augmentation { crop: true, ..Augmentation::default() }, "crop"),
            ("mixup,flip,crop", Augmentation { mixup: true, ..BOTH }, "crop/flip/mixup"),
        ] {
            assert_eq!(text.parse(), Ok(augmentation));
            assert_eq!(augmentation.to_string(), written);
            assert_eq!(written.parse(), Ok(augmentation));
        }
        let error = "crop,blur".parse::<Augmentation>().unwrap_err();
        assert_eq!(error, "unknown augmentation 'blur': expected crop, flip, mixup, or several: crop,flip");
    }
}
