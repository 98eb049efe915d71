//! The parameters in the specification of an image classifier, apart from its network, and the shape of the images.

use std::str::FromStr;

use super::ModelError;
use ata_data::{Augmentation, DataError, ImageInfo, MAX_CLASSES, MAX_SIZE, is_size};

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

/// The parameters of a specification, as in `classes=10,size=64,augment=crop/flip,label_smoothing=0.1`. Missing classes
/// and sizes come from the data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ImageParameters {
    classes: Option<usize>,
    size: Option<usize>,
    augmentation: Option<Augmentation>,
    label_smoothing: Option<f64>,
}

impl ImageParameters {
    /// Reads a parameter of a specification. Returns `false` if it is not one of these.
    pub(super) fn take(&mut self, key: &str, value: &str) -> Result<bool, ModelError> {
        let invalid = |reason: String| ModelError::Invalid { model: format!("{key}={value}"), reason };
        let number = value.parse().ok();
        let is_repeated = match key {
            "classes" => {
                let classes = number.filter(|classes| (2..=MAX_CLASSES).contains(classes));
                let reason = || format!("expected a number of classes from 2 to {MAX_CLASSES}, as in classes=10");
                self.classes.replace(classes.ok_or_else(|| invalid(reason()))?).is_some()
            }
            "size" => {
                let size = number.filter(|size| is_size(*size));
                let reason = || format!("expected a multiple of 8 pixels, at most {MAX_SIZE}, as in size=64");
                self.size.replace(size.ok_or_else(|| invalid(reason()))?).is_some()
            }
            "augment" => self.augmentation.replace(value.parse().map_err(invalid)?).is_some(),
            "label_smoothing" => {
                let smoothing = value.parse().ok().filter(|smoothing| (0.0..1.0).contains(smoothing));
                let reason = || "expected a number from 0 to below 1, as in label_smoothing=0.1".into();
                self.label_smoothing.replace(smoothing.ok_or_else(|| invalid(reason()))?).is_some()
            }
            _ => return Ok(false),
        };
        if is_repeated { Err(invalid(format!("{key} is there twice"))) } else { Ok(true) }
    }

    pub(super) fn augmentation(self) -> Augmentation {
        self.augmentation.unwrap_or_default()
    }

    /// Returns the share of each label that is spread over all classes, from 0 to below 1.
    pub(super) fn label_smoothing(self) -> f64 {
        self.label_smoothing.unwrap_or_default()
    }

    /// Returns the shape; missing values are those of CIFAR-100.
    pub(super) fn shape(self) -> ImageShape {
        let default = ImageShape::default();
        ImageShape { classes: self.classes.unwrap_or(default.classes), size: self.size.unwrap_or(default.size) }
    }

    /// Fills missing parameters from the data. Returns all parameters, and those that must be added to the specification.
    pub(super) fn adapted(self, info: &ImageInfo) -> (Self, Vec<String>) {
        let (of_data, default) = (ImageShape::from(info), ImageShape::default());
        let mut added = Vec::new();
        if self.classes.is_none() && of_data.classes != default.classes {
            added.push(format!("classes={}", of_data.classes));
        }
        if self.size.is_none() && of_data.size != default.size {
            added.push(format!("size={}", of_data.size));
        }
        let (classes, size) = (self.classes.or(Some(of_data.classes)), self.size.or(Some(of_data.size)));
        (Self { classes, size, ..self }, added)
    }
}

impl FromStr for ImageParameters {
    type Err = ModelError;

    /// Parses `classes=10,size=64`, or a part of it.
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
            let given: ImageParameters = text.parse().unwrap();
            let (adapted, found) = given.adapted(&info(classes, size));
            assert_eq!((adapted.shape(), &found.join(",")[..]), (ImageShape { classes, size }, added), "{text}");
            // A worker that resolves both together gets the same shape.
            let there: ImageParameters = format!("{text},{added}").parse().unwrap();
            assert_eq!(there.shape(), adapted.shape());
        }
    }

    #[test]
    fn a_specification_that_contradicts_the_data_is_refused() {
        let given: ImageParameters = "classes=5".parse().unwrap();
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
            ("augment=crop/blur", "unknown augmentation 'blur': expected crop"),
            ("label_smoothing=1", "expected a number from 0 to below 1"),
            ("label_smoothing=NaN", "expected a number from 0 to below 1"),
            ("size=64,classes=10,size=64", "size is there twice"),
            ("depth=3", "unknown model 'depth=3'"),
        ] {
            let error = text.parse::<ImageParameters>().unwrap_err().to_string();
            assert!(error.contains(reason), "expected '{reason}': {error}");
        }
    }
}
