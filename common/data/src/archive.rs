//! Reads the official `cifar-100-binary.tar.gz` without trusting it.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use tar::EntryType;

use crate::cache::made_once;
use crate::tar_reader::{TarEntry, TarReader};
use crate::{DataError, RECORD_BYTES, RecordFile, Split, hex, sha256_of_file};

/// The maximum number of records in a split: the official ones have 50,000 and 10,000.
const MAX_RECORDS: u64 = 200_000;

/// Unpacks `train.bin` and `test.bin` from an archive into a folder under `cache`, once per content, and returns that
/// folder. Everything is checked before the folder appears under its final name.
pub fn extract_archive(archive: &Path, cache: &Path) -> Result<PathBuf, DataError> {
    let target = cache.join("archives").join(hex(&sha256_of_file(archive)?));
    let is_whole = |split: Split| RecordFile::open(&target.join(split.file_name())).is_ok();
    made_once(target.clone(), is_whole, |unpacked| unpack(archive, unpacked))
}

fn unpack(archive: &Path, unpacked: &Path) -> Result<(), DataError> {
    let corrupt = |reason: String| DataError::corrupt(archive, reason);
    let mut reader = TarReader::open(archive)?;
    while let Some(entry) = reader.next_entry()? {
        if let Some(split) = wanted(&entry).map_err(corrupt)? {
            unpack_split(&mut reader, &entry, split.file_name(), unpacked, corrupt)?;
        }
    }
    match Split::BOTH.map(Split::file_name).into_iter().find(|name| !unpacked.join(name).is_file()) {
        Some(name) => Err(corrupt(format!("holds no {name}: expected cifar-100-binary.tar.gz"))),
        None => Ok(()),
    }
}

/// Returns the split that an entry holds, if any; an error for an entry that no valid archive has.
fn wanted(entry: &TarEntry) -> Result<Option<Split>, String> {
    let name = String::from_utf8_lossy(&entry.name);
    let path = Path::new(&*name);
    if path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(format!("entry '{name}' would leave the folder"));
    }
    match entry.kind {
        EntryType::Regular => {}
        EntryType::Directory => return Ok(None),
        other => return Err(format!("entry '{name}' is of kind {other:?}; only files and folders are expected")),
    }
    Ok(Split::BOTH.into_iter().find(|split| path.file_name().is_some_and(|name| name == split.file_name())))
}

fn unpack_split(
    reader: &mut TarReader,
    entry: &TarEntry,
    name: &str,
    folder: &Path,
    corrupt: impl Fn(String) -> DataError,
) -> Result<(), DataError> {
    let bytes = entry.bytes;
    if bytes > MAX_RECORDS * RECORD_BYTES as u64 {
        return Err(corrupt(format!("{name}: {bytes} bytes are more than {MAX_RECORDS} records")));
    }
    let path = folder.join(name);
    let file = File::create_new(&path).map_err(|cause| match cause.kind() {
        ErrorKind::AlreadyExists => corrupt(format!("{name}: appears twice")),
        _ => DataError::cache(&path)(cause),
    })?;
    reader.copy_to(&file, &path)?;
    match RecordFile::open(&path) {
        Ok(_) => Ok(()),
        // The temporary path would not help the user.
        Err(DataError::Corrupt { reason, .. }) => Err(corrupt(format!("{name}: {reason}"))),
        Err(error) => Err(corrupt(format!("{name}: {error}"))),
    }
}
