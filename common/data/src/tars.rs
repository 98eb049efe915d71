//! Images in tar archives, in the layout of WebDataset: a sample is a run of entries whose names are the same up to the
//! first dot of the file's name, as in `0001.jpg` and `0001.cls`, which holds the number of the class.
//!
//! Source: WebDataset, "The WebDataset Format".

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tar::{Archive, Entry};

use crate::folder::{ImageFolder, LabelledFile, SplitPart, entries, is_class_name, is_image_extension};
use crate::info::MAX_CLASSES;
use crate::{BadImage, DataError};

/// The file with the names of the classes by number, one on each line. Without this file, their names are their numbers.
const CLASS_NAMES: &str = "classnames.txt";

/// Lists the images of the archives in a folder. Returns `None` if there are no training images.
pub(crate) fn find(folder: &Path) -> Result<Option<ImageFolder>, DataError> {
    let [train, test, val] = archives(folder)?;
    if train.is_empty() {
        return Ok(None);
    }
    let test = if test.is_empty() { val } else { test };
    if test.is_empty() {
        let reason =
            "has archives to train on, but none that have 'test' or 'val' in their names, or are in such a folder";
        return Err(DataError::corrupt(folder, reason));
    }
    let mut found = ImageFolder::default();
    for (archives, samples) in [(&train, &mut found.train), (&test, &mut found.test)] {
        for archive in archives {
            list(archive, samples, &mut found.unusable)?;
        }
    }
    found.classes = class_names(folder, [&found.train, &found.test])?;
    Ok(Some(found))
}

/// Returns the sorted archives of the splits `train`, `test` and `val`: those with these names in theirs, or in folders of these names.
fn archives(folder: &Path) -> Result<[Vec<PathBuf>; 3], DataError> {
    const SPLITS: [&str; 3] = ["train", "test", "val"];
    let mut archives = [const { Vec::new() }; 3];
    let has_folders = folder.join(SPLITS[0]).is_dir();
    let is_archive = |path: &PathBuf| path.extension() == Some(OsStr::new("tar")) && path.is_file();
    for (split, found) in SPLITS.into_iter().zip(&mut archives) {
        let inside = if has_folders { folder.join(split) } else { folder.to_owned() };
        if inside.is_dir() {
            let is_of_split = |path: &PathBuf| has_folders || has_word(path, split);
            found.extend(entries(&inside)?.into_iter().filter(|path| is_archive(path) && is_of_split(path)));
        }
    }
    Ok(archives)
}

/// Returns `true` if a word of a file's name begins with `begin`. Letters within a word do not count, as in "constrained" or "interval".
fn has_word(path: &Path, begin: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split(|c: char| !c.is_alphanumeric()).any(|word| word.starts_with(begin))
}

/// A sample of which not all entries have been read.
#[derive(Default)]
struct Sample {
    key: PathBuf,
    image: Option<(PathBuf, SplitPart)>,
    label: Option<u16>,
}

impl Sample {
    fn end(self, samples: &mut Vec<LabelledFile>, unusable: &mut Vec<BadImage>) {
        let (path, reason) = match (self.image, self.label) {
            (Some((path, part)), Some(label)) => return samples.push(LabelledFile { path, part: Some(part), label }),
            (Some((path, _)), None) => (path, "there is no .cls with its class"),
            (None, Some(_)) => (self.key, "has a .cls, but no .png, .jpg or .jpeg"),
            (None, None) => return,
        };
        unusable.push(BadImage { path, reason: reason.into() });
    }
}

/// Adds the samples of an archive, without reading their images.
fn list(path: &Path, samples: &mut Vec<LabelledFile>, unusable: &mut Vec<BadImage>) -> Result<(), DataError> {
    let file = File::open(path).map_err(DataError::io(path))?;
    let bytes = file.metadata().map_err(DataError::io(path))?.len();
    let archive: Arc<Path> = path.into();
    let damaged = |cause: std::io::Error| DataError::corrupt(path, format!("is no whole tar archive: {cause}"));
    let mut sample = Sample::default();
    for entry in Archive::new(file).entries_with_seek().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let inside = entry.path().map_err(damaged)?.into_owned();
        let name = path.join(&inside);
        let Some((key, field)) = key_and_field(&name).filter(|_| entry.header().entry_type().is_file()) else {
            continue;
        };
        let (offset, length) = (entry.raw_file_position(), entry.size());
        if offset.checked_add(length).is_none_or(|end| end > bytes) {
            return Err(DataError::corrupt(path, format!("ends in the middle of {}", inside.display())));
        }
        if key != sample.key {
            std::mem::replace(&mut sample, Sample { key, ..Sample::default() }).end(samples, unusable);
        }
        if is_image_extension(&field) {
            let part = SplitPart { archive: archive.clone(), offset, bytes: length };
            if let Some((path, _)) = sample.image.replace((name, part)) {
                unusable.push(BadImage { path, reason: "there is another image of the same sample".into() });
            }
        } else if field == "cls" {
            match label(&mut entry).map_err(damaged)? {
                Ok(label) => sample.label = Some(label),
                Err(reason) => unusable.push(BadImage { path: name, reason }),
            }
        }
    }
    sample.end(samples, unusable);
    Ok(())
}

/// Returns the name of the sample and that of the entry's field; `None` for hidden files.
fn key_and_field(path: &Path) -> Option<(PathBuf, String)> {
    let (name, field) = path.file_name()?.to_str()?.split_once('.')?;
    (!name.is_empty()).then(|| (path.with_file_name(name), field.to_owned()))
}

/// Reads the number of a class; the inner error says why it is invalid.
fn label(entry: &mut Entry<'_, File>) -> std::io::Result<Result<u16, String>> {
    // No valid number is longer.
    let mut text = Vec::new();
    entry.take(20).read_to_end(&mut text)?;
    let label = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
    Ok(label
        .ok_or_else(|| format!("expected the number of a class, found '{}'", String::from_utf8_lossy(&text).trim())))
}

/// Returns the names of the classes, each of which must have images in both splits.
fn class_names(folder: &Path, splits: [&[LabelledFile]; 2]) -> Result<Vec<String>, DataError> {
    let [train, test] = splits.map(|samples| samples.iter().map(|sample| sample.label).collect::<BTreeSet<u16>>());
    let most = train.last().max(test.last()).map_or(0, |label| usize::from(*label));
    let path = folder.join(CLASS_NAMES);
    let names: Vec<String> = if path.is_file() {
        let text = std::fs::read_to_string(&path).map_err(DataError::io(&path))?;
        text.lines().map(|name| name.trim().to_owned()).collect()
    } else {
        (0..=most).map(|label| label.to_string()).collect()
    };
    if let Some(at) = names.iter().position(|name| !is_class_name(name)) {
        let reason = format!("line {}: the name of a class must be text without commas", at + 1);
        return Err(DataError::corrupt(path, reason));
    }
    if !(2..=MAX_CLASSES).contains(&names.len()) {
        return Err(DataError::corrupt(folder, format!("{} classes: expected 2 to {MAX_CLASSES}", names.len())));
    }
    if most >= names.len() {
        let reason =
            format!("there are images of class {most}, but classes are numbered from 0 to {}", names.len() - 1);
        return Err(DataError::corrupt(path, reason));
    }
    for (label, name) in (0..).zip(&names) {
        for (split, labels) in [("training", &train), ("test", &test)] {
            if !labels.contains(&label) {
                let reason = format!("there is no {split} image of class {label} ('{name}')");
                return Err(DataError::corrupt(folder, reason));
            }
        }
    }
    Ok(names)
}
