//! What a network depends on of the images that it classifies.

use std::str::FromStr;

use super::ModelError;
use crate::data::{DataError, ImageInfo, MAX_CLASSES, MAX_SIZE, is_size};

/// The number of classes and the size of the images that a network is created for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageShape {
    /// Number of classes.
    pub classes: usize,
    /// Width and height of the images, in pixels: a multiple of 8.
    pub size: usize,
}

impl Default for ImageShape {
    /// That of CIFAR-100.
    fn default() -> Self {
        Self { classes: 100, size: 32 }
    }
}

/// What the specification of a model says about the shape, as in `classes=10,size=64`; the data says the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShapeParameters {
    pub(super) classes: Option<usize>,
    pub(super) size: Option<usize>,
}

impl ShapeParameters {
    /// Takes a parameter of a specification. Returns whether it is one of the shape.
    pub(super) fn take(&mut self, key: &str, value: &str) -> Result<bool, ModelError> {
        let invalid = |expected: String| ModelError::Invalid {
            model: format!("{key}={value}"),
            reason: format!("expected {expected}"),
        };
        let number = value.parse().ok();
        match key {
            "classes" => {
                let classes = number.filter(|classes| (2..=MAX_CLASSES).contains(classes));
                let expected = || invalid(format!("a number of classes from 2 to {MAX_CLASSES}, as in classes=10"));
                self.classes = Some(classes.ok_or_else(expected)?);
            }
            "size" => {
                let size = number.filter(|size| is_size(*size));
                let expected = || invalid(format!("a multiple of 8 pixels, at most {MAX_SIZE}, as in size=64"));
                self.size = Some(size.ok_or_else(expected)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The shape, which is that of CIFAR-100 where nothing else was said.
    pub(super) fn shape(self) -> ImageShape {
        let default = ImageShape::default();
        ImageShape { classes: self.classes.unwrap_or(default.classes), size: self.size.unwrap_or(default.size) }
    }

    /// All parameters, with those of the data where nothing else was said, and the ones that a specification must have in addition.
    pub(super) fn adapted(self, info: &ImageInfo) -> (Self, Vec<String>) {
        let (of_data, default) = (ImageShape::from(info), ImageShape::default());
        let mut added = Vec::new();
        if self.classes.is_none() && of_data.classes != default.classes {
            added.push(format!("classes={}", of_data.classes));
        }
        if self.size.is_none() && of_data.size != default.size {
            added.push(format!("size={}", of_data.size));
        }
        let adapted = Self { classes: self.classes.or(Some(of_data.classes)), size: self.size.or(Some(of_data.size)) };
        (adapted, added)
    }
}

impl FromStr for ShapeParameters {
    type Err = ModelError;

    /// Reads `classes=10,size=64`, or a part of it.
    fn from_str(text: &str) -> Result<Self, ModelError> {
        let mut parameters = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            if !parameters.take(key, value)? {
                return Err(ModelError::Unknown(text.into()));
            }
        }
        Ok(parameters)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn info(classes: usize, size: usize) -> ImageInfo {
        let classes = (0..classes).map(|class| class.to_string()).collect();
        ImageInfo { size, classes, ..ImageInfo::cifar100() }
    }

    #[test]
    fn what_a_specification_leaves_out_is_taken_from_the_data() {
        for (text, classes, size, added) in [
            ("", 10, 64, "classes=10,size=64"),
            ("", 10, 32, "classes=10"),
            ("", 100, 32, ""),
            ("size=64", 10, 64, "classes=10"),
            ("classes=10,size=64", 10, 64, ""),
        ] {
            let given: ShapeParameters = text.parse().unwrap();
            let (adapted, found) = given.adapted(&info(classes, size));
            assert_eq!((adapted.shape(), &found.join(",")[..]), (ImageShape { classes, size }, added), "{text}");
            // A worker that resolves both together gets the same shape.
            let there: ShapeParameters = format!("{text},{added}").parse().unwrap();
            assert_eq!(there.shape(), adapted.shape());
        }
    }

    #[test]
    fn a_specification_that_contradicts_the_data_is_refused() {
        let given: ShapeParameters = "classes=5".parse().unwrap();
        let error = given.adapted(&info(10, 32)).0.shape().check(&info(10, 32)).unwrap_err().to_string();
        assert!(error.contains("the data has 10 classes of 32 × 32 pixels, and the model is for 5 classes"), "{error}");
    }

    #[test]
    fn bad_parameters_are_refused_with_the_reason() {
        for (text, reason) in [
            ("classes=1", "expected a number of classes from 2"),
            ("classes=x", "expected a number of classes from 2"),
            ("size=30", "expected a multiple of 8 pixels"),
            ("size=264", "at most 256"),
            ("depth=3", "unknown model 'depth=3'"),
        ] {
            let error = text.parse::<ShapeParameters>().unwrap_err().to_string();
            assert!(error.contains(reason), "expected '{reason}': {error}");
        }
    }
}
