//! The properties of images on which a network depends.

use ata_data::{DataError, ImageInfo};

/// The number of classes and the size of the images that a network is created for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageShape {
    /// The number of classes.
    pub classes: usize,
    /// The width and height of the images, in pixels: a multiple of 8.
    pub size: usize,
}

impl Default for ImageShape {
    /// Returns the shape of CIFAR-100.
    fn default() -> Self {
        Self { classes: 100, size: 32 }
    }
}

impl From<&ImageInfo> for ImageShape {
    fn from(info: &ImageInfo) -> Self {
        Self { classes: info.classes.len(), size: info.size }
    }
}

impl ImageShape {
    /// Checks that data has this shape.
    pub(super) fn check(self, info: &ImageInfo) -> Result<(), DataError> {
        let found = Self::from(info);
        if found == self {
            return Ok(());
        }
        let say = |shape: Self| format!("{} classes of {size} × {size} pixels", shape.classes, size = shape.size);
        let (found, expected) = (say(found), say(self));
        Err(DataError::Problem(format!(
            "the data has {found}, and the model is for {expected}: leave classes and size out of --model to take them from --data"
        )))
    }
}
