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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::Synthetic;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tar::{Builder, Header};
    use tempfile::TempDir;

    fn records(split: Split, count: u64) -> Vec<u8> {
        let synthetic = Synthetic::new(split, 1);
        (0..count).flat_map(|index| synthetic.record(index)).collect()
    }

    fn header(name: &str, kind: EntryType, bytes: u64) -> Header {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(bytes);
        header.set_cksum();
        header
    }

    /// Builds an archive of entries (name, kind, content).
    fn archive(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
        let mut tar = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (name, kind, content) in entries {
            tar.append(&header(name, *kind, content.len() as u64), *content).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap()
    }

    fn extract(bytes: &[u8]) -> Result<(TempDir, PathBuf), String> {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("data.tar.gz");
        std::fs::write(&path, bytes).unwrap();
        let result = extract_archive(&path, folder.path()).map_err(|error| error.to_string());
        if result.is_err() {
            let left = std::fs::read_dir(folder.path().join("archives")).map_or(0, Iterator::count);
            assert_eq!(left, 0, "a refused archive leaves nothing behind");
        }
        result.map(|target| (folder, target))
    }

    const FILE: EntryType = EntryType::Regular;

    #[test]
    fn the_official_layout_is_unpacked_once() {
        let (train, test) = (records(Split::Train, 3), records(Split::Test, 2));
        let bytes = archive(&[
            ("cifar-100-binary/", EntryType::Directory, b""),
            ("cifar-100-binary/fine_label_names.txt", FILE, b"apple\n"),
            ("cifar-100-binary/train.bin", FILE, &train),
            ("cifar-100-binary/test.bin", FILE, &test),
        ]);
        let (folder, target) = extract(&bytes).unwrap();
        assert_eq!(std::fs::read(target.join("train.bin")).unwrap(), train);
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), 2);
        let again = extract_archive(&folder.path().join("data.tar.gz"), folder.path()).unwrap();
        assert_eq!(again, target);
        // A damaged cached copy is replaced.
        std::fs::write(target.join("test.bin"), &test[..100]).unwrap();
        extract_archive(&folder.path().join("data.tar.gz"), folder.path()).unwrap();
        assert_eq!(std::fs::read(target.join("test.bin")).unwrap(), test);
    }

    #[test]
    fn hostile_and_broken_archives_are_refused_with_the_reason() {
        let (train, test) = (records(Split::Train, 3), records(Split::Test, 2));
        let good = archive(&[("train.bin", FILE, &train), ("test.bin", FILE, &test)]);
        // The last 8 bytes hold the checksum of the uncompressed content.
        let mut damaged = good.clone();
        damaged[good.len() - 6] ^= 1;
        let mut bad_label = train.clone();
        bad_label[1] = 200;
        let mut large = GzEncoder::new(Vec::new(), Compression::fast());
        large.write_all(header("train.bin", FILE, 2 << 30).as_bytes()).unwrap();
        let cases: &[(&[u8], &str)] = &[
            (&large.finish().unwrap(), "train.bin: 2147483648 bytes are more than 200000 records"),
            (b"hello", "is no whole tar archive"),
            (&damaged, "cannot be unpacked: "),
            (&archive(&[("../train.bin", FILE, &train)]), "entry '../train.bin' would leave the folder"),
            (&archive(&[("/train.bin", FILE, &train)]), "would leave the folder"),
            (&archive(&[("train.bin", EntryType::Symlink, b"")]), "is of kind Symlink"),
            (&archive(&[("train.bin", FILE, &train)]), "holds no test.bin"),
            (&archive(&[("train.bin", FILE, &train), ("a/train.bin", FILE, &train)]), "train.bin: appears twice"),
            (&archive(&[("train.bin", FILE, &train[1..])]), "is it cut short?"),
            (&archive(&[("train.bin", FILE, &bad_label)]), "fine label 200 is out of range"),
        ];
        for (bytes, reason) in cases {
            let error = extract(bytes).map(|_| ()).unwrap_err();
            assert!(error.contains(reason), "expected '{reason}': {error}");
        }
    }
}
