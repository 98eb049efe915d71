//! The classes of samples in archives, by number or by name.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::folder::{LabelledFile, is_class_name};
use crate::info::MAX_CLASSES;
use crate::{DataError, Split};

/// The file with the names of the classes by number, one on each line.
const LIST: &str = "classnames.txt";
/// The fields of a sample that may hold its class. The first one that it has counts.
pub(crate) const LABELS: [&str; 3] = ["cls", "json", "txt"];
/// The maximum size of such a field, in bytes: a JSON object may describe the image at length.
pub(crate) const MAX_LABEL_BYTES: u64 = 1 << 20;
/// The maximum size of the name of a class, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// The class of a sample, as its archive gives it.
pub(crate) enum ClassLabel {
    Number(u16),
    Name(Arc<str>),
}

impl ClassLabel {
    /// Decodes a field of a sample. Returns `None` for a JSON object without a class; an error says what is wrong.
    pub(crate) fn decode(field: &str, content: &[u8]) -> Result<Option<Self>, String> {
        let text = plain_text(content)?;
        if field != "json" {
            return Self::new(text).map(Some);
        }
        let object: Value = serde_json::from_str(text).map_err(|cause| format!("is no JSON: {cause}"))?;
        match ["label", "cls", "class"].iter().find_map(|key| object.get(key)) {
            None => Ok(None),
            Some(Value::String(text)) => Self::new(text).map(Some),
            Some(Value::Number(number)) => Self::new(&number.to_string()).map(Some),
            Some(_) => Err("has a class that is neither a number nor a name".into()),
        }
    }

    fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match text.parse() {
            Ok(number) => Ok(Self::Number(number)),
            Err(_) if text.len() <= MAX_NAME_BYTES && is_class_name(text) => Ok(Self::Name(text.into())),
            Err(_) => Err("is no number or name of a class: expected one line without commas".into()),
        }
    }
}

/// Removes a byte order mark, with which some editors begin a file.
fn plain_text(content: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(content).map_err(|_| "is no text in UTF-8")?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

pub(crate) struct ClassList {
    pub(crate) names: Vec<String>,
    /// The numbers of the classes by name; `None` for a name that several classes have.
    numbers: HashMap<String, Option<u16>>,
}

impl ClassList {
    /// Returns the classes of a list in the folder, or else those of the labels: numbers, or sorted names.
    pub(crate) fn new<'a>(folder: &Path, labels: impl Iterator<Item = &'a ClassLabel>) -> Result<Self, DataError> {
        let (mut most, mut found) = (None, BTreeSet::new());
        for label in labels {
            match label {
                ClassLabel::Number(number) => most = most.max(Some(usize::from(*number))),
                ClassLabel::Name(name) => drop(found.insert(&**name)),
            }
        }
        let path = folder.join(LIST);
        let names: Vec<String> = if path.is_file() {
            read_list(&path)?
        } else if let Some(most) = most {
            (0..=most).map(|number| number.to_string()).collect()
        } else {
            found.into_iter().map(String::from).collect()
        };
        if !(2..=MAX_CLASSES).contains(&names.len()) {
            return Err(DataError::corrupt(folder, format!("{} classes: expected 2 to {MAX_CLASSES}", names.len())));
        }
        if let Some(most) = most.filter(|most| *most >= names.len()) {
            let reason =
                format!("there are images of class {most}, but classes are numbered from 0 to {}", names.len() - 1);
            return Err(DataError::corrupt(path, reason));
        }
        let mut numbers = HashMap::new();
        for (number, name) in (0..).zip(&names) {
            numbers.entry(name.clone()).and_modify(|of| *of = None).or_insert(Some(number));
        }
        Ok(Self { names, numbers })
    }

    /// Returns the number of a label's class; an error says why there is none.
    pub(crate) fn number(&self, label: &ClassLabel) -> Result<u16, String> {
        match label {
            ClassLabel::Number(number) => Ok(*number),
            ClassLabel::Name(name) => match self.numbers.get(&**name) {
                Some(Some(number)) => Ok(*number),
                Some(None) => Err(format!("{LIST} has '{name}' twice: expected the number of the class")),
                None => Err(format!("expected the number of a class, or a name in {LIST}, found '{name}'")),
            },
        }
    }

    /// Checks that each class has images in both splits.
    pub(crate) fn check(&self, folder: &Path, splits: [(Split, &[LabelledFile]); 2]) -> Result<(), DataError> {
        for (split, samples) in splits {
            let found: BTreeSet<u16> = samples.iter().map(|sample| sample.label).collect();
            if let Some((label, name)) = (0..).zip(&self.names).find(|(label, _)| !found.contains(label)) {
                let reason = format!("there is no {split} image of class {label} ('{name}')");
                return Err(DataError::corrupt(folder, reason));
            }
        }
        Ok(())
    }
}

fn read_list(path: &Path) -> Result<Vec<String>, DataError> {
    let mut content = Vec::new();
    let most = (MAX_CLASSES * MAX_NAME_BYTES) as u64;
    File::open(path).and_then(|file| file.take(most).read_to_end(&mut content)).map_err(DataError::io(path))?;
    let text = plain_text(&content).map_err(|reason| DataError::corrupt(path, reason))?;
    let names: Vec<String> = text.lines().map(|name| name.trim().to_owned()).collect();
    if let Some(at) = names.iter().position(|name| !is_class_name(name)) {
        let reason = format!("line {}: the name of a class must be text without commas", at + 1);
        return Err(DataError::corrupt(path, reason));
    }
    Ok(names)
}
