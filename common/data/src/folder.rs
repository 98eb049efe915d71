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

/// An image file, and the number of its class.
#[derive(Debug)]
pub(crate) struct LabelledFile {
    /// The path of the file; in an archive, that of the archive followed by the entry's name.
    pub(crate) path: PathBuf,
    /// The position in an archive, if the file is in one.
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
    /// Lists a folder of images. Returns `None` if it has no folder `train`.
    pub(crate) fn find(folder: &Path) -> Result<Option<Self>, DataError> {
        let train = folder.join("train");
        if !train.is_dir() {
            return Ok(None);
        }
        let test = ["test", "val"].map(|name| folder.join(name)).into_iter().find(|path| path.is_dir());
        let test =
            test.ok_or_else(|| DataError::corrupt(folder, "has a folder 'train', but no folder 'test' or 'val'"))?;
        let mut unusable = Vec::new();
        let of_train = classes(&train, &mut unusable)?;
        let of_test = classes(&test, &mut unusable)?;
        same_classes([(&train, &of_train), (&test, &of_test)])?;
        let mut files = |classes: &[(String, PathBuf)]| -> Result<Vec<LabelledFile>, DataError> {
            let mut files = Vec::new();
            for (label, (_, folder)) in (0..).zip(classes) {
                let images = images(folder, &mut unusable)?.into_iter();
                files.extend(images.map(|path| LabelledFile { path, part: None, label }));
            }
            Ok(files)
        };
        let (train, test) = (files(&of_train)?, files(&of_test)?);
        Ok(Some(Self { classes: of_train.into_iter().map(|(name, _)| name).collect(), train, test, unusable }))
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

/// Returns the folders of a split's classes, by name.
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

/// Returns the images of a class, sorted by name.
fn images(class: &Path, unusable: &mut Vec<BadImage>) -> Result<Vec<PathBuf>, DataError> {
    let (images, others): (Vec<PathBuf>, Vec<PathBuf>) = entries(class)?.into_iter().partition(|path| {
        let extension = path.extension().and_then(OsStr::to_str);
        extension.is_some_and(is_image_extension) && path.is_file()
    });
    let stray = |path| BadImage { path, reason: "expected a file .png, .jpg, .jpeg or .webp".into() };
    unusable.extend(others.into_iter().map(stray));
    if images.is_empty() {
        let reason = "no images: add some, or remove the folder of the class from all splits";
        return Err(DataError::corrupt(class, reason));
    }
    Ok(images)
}

pub(crate) fn is_image_extension(extension: &str) -> bool {
    ["png", "jpg", "jpeg", "webp"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Returns `true` if a class can have this name; model files contain a list of the names.
pub(crate) fn is_class_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c == ',' || c.is_control())
}

/// Returns the content of a folder, sorted, without hidden files, which systems leave everywhere.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let is_hidden = |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let listed = std::fs::read_dir(folder).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<PathBuf> = listed.map_err(DataError::io(folder))?;
    paths.retain(|path| !is_hidden(path));
    paths.sort();
    Ok(paths)
}
