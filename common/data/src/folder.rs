//! Folders of images: `train/CLASS/*.png`, `test/CLASS/*.jpg`.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use crate::info::MAX_CLASSES;
use crate::{BadImage, DataError};

/// The images of a folder, which are not opened yet.
#[derive(Debug, Default)]
pub(crate) struct ImageFolder {
    pub(crate) classes: Vec<String>,
    pub(crate) train: Vec<LabelledFile>,
    pub(crate) test: Vec<LabelledFile>,
    /// Files that are not images.
    pub(crate) unusable: Vec<BadImage>,
}

#[derive(Debug)]
pub(crate) struct LabelledFile {
    /// The path of the file; in an archive, that of the archive followed by the entry's name.
    pub(crate) path: PathBuf,
    pub(crate) part: Option<SplitPart>,
    pub(crate) label: u16,
}

#[derive(Debug)]
pub(crate) struct SplitPart {
    pub(crate) archive: Arc<Path>,
    /// The file that the archive's images were copied to, if it is compressed.
    pub(crate) unpacked: Option<Arc<File>>,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl ImageFolder {
    /// Lists a folder of images: `train/CLASS/*` and `test/CLASS/*`; if it is `to_split`, `train/CLASS/*` or `CLASS/*`, all of which are then
    /// in `train`. Returns them with the images next to those splits, or `None` if there are none.
    pub(crate) fn find(folder: &Path, to_split: bool) -> Result<Option<(Self, Vec<BadImage>)>, DataError> {
        let [train, test, validation] = named_folders(folder, Path::is_dir)?;
        let (train, test) = match (to_split, train, test.or(validation)) {
            (false, Some(train), Some(test)) => (train, Some(test)),
            (false, None, _) if holds_classes(folder)? => {
                let reason = "expected train/CLASS/*.png and test/CLASS/*.png, found folders of images: if each is a class, take a part \
                              of its images for tests with --validation 5%";
                return Err(DataError::corrupt(folder, reason));
            }
            (false, None, _) => return Ok(None),
            (false, Some(_), None) => {
                let reason = "has a folder 'train', but no folder 'test' or 'val': add one, or take a part of the training images with \
                              --validation 5%";
                return Err(DataError::corrupt(folder, reason));
            }
            (true, train, None) => (train.unwrap_or_else(|| folder.into()), None),
            (true, _, Some(test)) => {
                return Err(DataError::corrupt(test, "there are test images already: leave --validation out"));
            }
        };
        let mut found = Self::default();
        let of_train = classes(&train, &mut found.unusable)?;
        if let Some(test) = &test {
            let of_test = classes(test, &mut found.unusable)?;
            same_classes([(&train, &of_train), (test, &of_test)])?;
            found.train = files(&of_train, &mut found.unusable)?;
            found.test = files(&of_test, &mut found.unusable)?;
        } else {
            found.train = files(&of_train, &mut found.unusable)?;
        }
        found.classes = of_train.into_iter().map(|(name, _)| name).collect();
        let mut unused = Vec::new();
        for path in
            entries(folder)?.into_iter().filter(|path| train != folder && *path != train && test.as_ref() != Some(path))
        {
            let count = image_count(&path);
            if count > 0 {
                let test = test.as_deref().unwrap_or(&train).display();
                let reason =
                    format!("it holds {count} images next to those that are used, in {} and {test}", train.display());
                unused.push(BadImage { path, reason });
            }
        }
        Ok(Some((found, unused)))
    }

    /// Returns a digest that changes if a file is added, removed or written to.
    pub(crate) fn fingerprint(&self) -> Result<[u8; 32], DataError> {
        let mut digest = Sha256::new();
        digest.update(self.classes.join("\n"));
        let files = [&self.train, &self.test].into_iter().flatten();
        let files = files.map(|file| file.part.as_ref().map_or(&*file.path, |part| &part.archive));
        // An entry of an archive is not a file.
        let unusable = self.unusable.iter().filter_map(|stray| stray.path.ancestors().find(|path| path.exists()));
        let mut before = None;
        for path in files.chain(unusable) {
            // Many images are in the same archive.
            if before.replace(path) == Some(path) {
                continue;
            }
            let metadata = path.metadata().map_err(DataError::io(path))?;
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let modified = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
            digest.update(path.as_os_str().as_encoded_bytes());
            digest.update([0]);
            digest.update(metadata.len().to_le_bytes());
            digest.update(modified.as_nanos().to_le_bytes());
        }
        Ok(digest.finalize().into())
    }
}

/// Returns the folders for training, tests and validation, in which `is_content` holds of an entry; of several, that with the shortest name.
pub(crate) fn named_folders(folder: &Path, is_content: fn(&Path) -> bool) -> Result<[Option<PathBuf>; 3], DataError> {
    let mut paths = entries(folder)?;
    paths.sort_by_key(|path| path.as_os_str().len());
    let holds_content =
        |path: &Path| path.is_dir() && entries(path).is_ok_and(|inside| inside.iter().any(|path| is_content(path)));
    let named = |split| paths.iter().find(|path| NamedSplit::of(path) == Some(split) && holds_content(path)).cloned();
    Ok([NamedSplit::Train, NamedSplit::Test, NamedSplit::Validation].map(named))
}

/// Returns `true` if two folders in this one hold images.
fn holds_classes(folder: &Path) -> Result<bool, DataError> {
    let holds_images =
        |path: &&PathBuf| path.is_dir() && entries(path).is_ok_and(|inside| inside.iter().any(|path| is_image(path)));
    Ok(entries(folder)?.iter().filter(holds_images).nth(1).is_some())
}

/// Counts the images at or below a path, without following links.
fn image_count(path: &Path) -> usize {
    if !path.is_dir() {
        return is_image(path).into();
    }
    entries(path).unwrap_or_default().iter().filter(|path| !path.is_symlink()).map(|path| image_count(path)).sum()
}

fn classes(split: &Path, unusable: &mut Vec<BadImage>) -> Result<Vec<(String, PathBuf)>, DataError> {
    let mut classes = Vec::new();
    for path in entries(split)? {
        if !path.is_dir() {
            unusable.push(BadImage { path, reason: "expected a folder for each class".into() });
            continue;
        }
        let name = path.file_name().and_then(OsStr::to_str).map(String::from);
        match name.filter(|name| is_class_name(name)) {
            Some(name) => classes.push((name, path)),
            None => return Err(DataError::corrupt(path, "the name of a class must be text without commas: rename it")),
        }
    }
    match classes.len() {
        few @ 0..2 => {
            Err(DataError::corrupt(split, format!("{few} classes: expected a folder for each of at least two")))
        }
        2..=MAX_CLASSES => {
            classes.sort();
            Ok(classes)
        }
        more => Err(DataError::corrupt(split, format!("{more} classes: expected at most {MAX_CLASSES}"))),
    }
}

fn same_classes([train, test]: [(&Path, &[(String, PathBuf)]); 2]) -> Result<(), DataError> {
    for [(has, of_has), (lacks, of_lacks)] in [[train, test], [test, train]] {
        if let Some((name, _)) = of_has.iter().find(|(name, _)| !of_lacks.iter().any(|(other, _)| other == name)) {
            let reason = format!("no class '{name}', which {} has: both need the same classes", has.display());
            return Err(DataError::corrupt(lacks, reason));
        }
    }
    Ok(())
}

/// Returns the images of all classes, which are numbered in this order.
fn files(classes: &[(String, PathBuf)], unusable: &mut Vec<BadImage>) -> Result<Vec<LabelledFile>, DataError> {
    let mut files = Vec::new();
    for (label, (_, folder)) in (0..).zip(classes) {
        let images = images(folder, unusable)?.into_iter();
        files.extend(images.map(|path| LabelledFile { path, part: None, label }));
    }
    Ok(files)
}

fn images(class: &Path, unusable: &mut Vec<BadImage>) -> Result<Vec<PathBuf>, DataError> {
    let (images, others): (Vec<PathBuf>, Vec<PathBuf>) = entries(class)?.into_iter().partition(|path| is_image(path));
    let stray = |path: PathBuf| match image_count(&path) {
        count if path.is_dir() => {
            BadImage { path, reason: format!("a folder in that of a class, with {count} images") }
        }
        _ => BadImage { path, reason: "expected a file .png, .jpg, .jpeg or .webp".into() },
    };
    unusable.extend(others.into_iter().map(stray));
    if images.is_empty() {
        let reason = "no images: add some, or remove the folder of the class from all splits";
        return Err(DataError::corrupt(class, reason));
    }
    Ok(images)
}

fn is_image(path: &Path) -> bool {
    path.extension().and_then(OsStr::to_str).is_some_and(is_image_extension) && path.is_file()
}

pub(crate) fn is_image_extension(extension: &str) -> bool {
    ["png", "jpg", "jpeg", "webp"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Returns `true` if a class can have this name; model files contain a list of the names.
pub(crate) fn is_class_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c == ',' || c.is_control())
}

/// Names of the files and folders that systems leave everywhere, in addition to hidden ones.
const OF_SYSTEMS: [&str; 8] = [
    "thumbs.db",
    "ehthumbs.db",
    "desktop.ini",
    "$recycle.bin",
    "system volume information",
    "__macosx",
    "@eadir",
    "lost+found",
];

/// Returns the content of a folder, sorted, without what systems leave everywhere.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let is_of_system = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(b".") || OF_SYSTEMS.iter().any(|known| name.eq_ignore_ascii_case(known))
    };
    let listed = std::fs::read_dir(folder).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<PathBuf> = listed.map_err(DataError::io(folder))?;
    paths.retain(|path| !is_of_system(path));
    paths.sort();
    Ok(paths)
}

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
