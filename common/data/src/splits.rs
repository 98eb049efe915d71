//! The names that folders and archives have for the splits of a data set.

use std::path::Path;

/// A split of a data set, as people name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedSplit {
    Train,
    Test,
    /// Images for evaluations during the training; those of a data set that has no others are its test images.
    Validation,
}

impl NamedSplit {
    /// Returns the split that the name of a folder or archive says: a word of it begins with `train`, `test` or `val`, and none with
    /// another of these. Letters within a word do not count, as in "constrained" or "interval", and upper case is as good as lower case.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        let says = |begin| name.split(|c: char| !c.is_alphanumeric()).any(|word| word.starts_with(begin));
        match ["train", "test", "val"].map(says) {
            [true, false, false] => Some(Self::Train),
            [false, true, false] => Some(Self::Test),
            [false, false, true] => Some(Self::Validation),
            _ => None,
        }
    }
}
