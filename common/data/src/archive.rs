//! Reads the official `cifar-100-binary.tar.gz` without trusting it.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Component, Path, PathBuf};

use flate2::bufread::GzDecoder;
use tar::{Archive, Entry, EntryType};
use tempfile::TempDir;

use crate::{DataError, RECORD_BYTES, RecordFile, Split, hex, sha256_of_file};

/// The maximum unpacked size of an archive, in bytes: the official one has 184 MB.
const MAX_UNPACKED_BYTES: u64 = 1 << 30;
/// The maximum number of records in a split: the official ones have 50,000 and 10,000.
const MAX_RECORDS: u64 = 200_000;
/// The maximum number of entries in an archive: the official one has six.
const MAX_ENTRIES: usize = 1_000;

/// Unpacks `train.bin` and `test.bin` from an archive into a folder under `cache`, once per content, and returns that
/// folder. Everything is checked before the folder appears under its final name.
pub fn extract_archive(archive: &Path, cache: &Path) -> Result<PathBuf, DataError> {
    let corrupt = |reason: String| DataError::corrupt(archive, reason);
    let digest = sha256_of_file(archive)?;
    let target = cache.join("archives").join(hex(&digest));
    let is_whole = |folder: &Path| {
        [Split::Train, Split::Test].iter().all(|split| RecordFile::open(&folder.join(split.file_name())).is_ok())
    };
    if target.is_dir() {
        if is_whole(&target) {
            return Ok(target);
        }
        // The folder was damaged after it was unpacked.
        std::fs::remove_dir_all(&target).map_err(DataError::cache(&target))?;
    }
    let parent = cache.join("archives");
    std::fs::create_dir_all(&parent).map_err(DataError::cache(&parent))?;
    // This folder is removed again if anything goes wrong.
    let unpacked = TempDir::with_prefix_in("unpacking-", &parent).map_err(DataError::cache(&parent))?;

    let file = BufReader::new(File::open(archive).map_err(DataError::io(archive))?);
    // Allowing one byte more means that reaching the end exceeds the limit.
    let mut tar = Archive::new(GzDecoder::new(file).take(MAX_UNPACKED_BYTES + 1));
    let entries = tar.entries().map_err(|cause| corrupt(format!("not a tar.gz archive: {cause}")))?;
    // In raw mode, long-name and extension records stay plain entries, and are not read into memory.
    for (count, entry) in entries.raw(true).enumerate() {
        let mut entry = entry.map_err(|cause| corrupt(format!("not a whole tar.gz archive: {cause}")))?;
        if count >= MAX_ENTRIES {
            return Err(corrupt(format!("more than {MAX_ENTRIES} entries")));
        }
        if let Some(split) = wanted(&entry).map_err(corrupt)? {
            let path = unpacked.path().join(split.file_name());
            unpack(&mut entry, &path).map_err(|error| match error {
                UnpackError::Refused(reason) => corrupt(format!("{}: {reason}", split.file_name())),
                UnpackError::Read(cause) => corrupt(format!("{} ends early: {cause}", split.file_name())),
                UnpackError::Write(cause) => DataError::Cache { path: path.clone(), cause },
            })?;
            RecordFile::open(&path).map_err(|error| corrupt(format!("{}: {}", split.file_name(), reason_of(error))))?;
        }
    }
    // The rest is read because the archive's checksum is at its end.
    let mut rest = tar.into_inner();
    std::io::copy(&mut rest, &mut std::io::sink()).map_err(|cause| corrupt(format!("damaged: {cause}")))?;
    if rest.limit() == 0 {
        return Err(corrupt(format!("more than {MAX_UNPACKED_BYTES} bytes when unpacked")));
    }
    for split in [Split::Train, Split::Test] {
        if !unpacked.path().join(split.file_name()).is_file() {
            return Err(corrupt(format!("holds no {}: expected cifar-100-binary.tar.gz", split.file_name())));
        }
    }
    match std::fs::rename(unpacked.path(), &target) {
        Ok(()) => Ok(target),
        // Another process was faster, with the same content.
        Err(_) if target.is_dir() => Ok(target),
        Err(cause) => Err(DataError::Cache { path: target, cause }),
    }
}

/// Returns the split that an entry holds, if any; an error for an entry that no valid archive has.
fn wanted(entry: &Entry<'_, impl Read>) -> Result<Option<Split>, String> {
    let path = entry.path().map_err(|cause| format!("an entry's name cannot be read: {cause}"))?.into_owned();
    let name = path.display();
    if path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(format!("entry '{name}' would leave the folder"));
    }
    match entry.header().entry_type() {
        EntryType::Regular | EntryType::Continuous => {}
        EntryType::Directory | EntryType::XHeader | EntryType::XGlobalHeader => return Ok(None),
        other => return Err(format!("entry '{name}' is of kind {other:?}; only files and folders are expected")),
    }
    Ok([Split::Train, Split::Test]
        .into_iter()
        .find(|split| path.file_name().is_some_and(|name| name == split.file_name())))
}

enum UnpackError {
    Refused(String),
    Read(std::io::Error),
    Write(std::io::Error),
}

fn unpack(entry: &mut Entry<'_, impl Read>, path: &Path) -> Result<(), UnpackError> {
    let bytes = entry.size();
    if bytes > MAX_RECORDS * RECORD_BYTES as u64 {
        return Err(UnpackError::Refused(format!("{bytes} bytes are more than {MAX_RECORDS} records")));
    }
    let mut file = File::create_new(path).map_err(|cause| match cause.kind() {
        std::io::ErrorKind::AlreadyExists => UnpackError::Refused("appears twice".into()),
        _ => UnpackError::Write(cause),
    })?;
    let mut buffer = vec![0; 1 << 16];
    let mut left = bytes;
    while left > 0 {
        let read = entry.read(&mut buffer).map_err(UnpackError::Read)?;
        if read == 0 {
            return Err(UnpackError::Read(std::io::ErrorKind::UnexpectedEof.into()));
        }
        file.write_all(&buffer[..read]).map_err(UnpackError::Write)?;
        left -= read as u64;
    }
    Ok(())
}

/// Returns the reason without the temporary path, which would not help the user.
fn reason_of(error: DataError) -> String {
    match error {
        DataError::Corrupt { reason, .. } => reason,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Synthetic;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tar::{Builder, Header};

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
        let many: Vec<_> = (0..1001).map(|_| ("x", FILE, &b""[..])).collect();
        let cases: &[(&[u8], &str)] = &[
            (b"hello", "not a"),
            (&good[..good.len() / 2], "train.bin ends early"),
            (&damaged, "damaged: "),
            (&archive(&[("../train.bin", FILE, &train)]), "entry '../train.bin' would leave the folder"),
            (&archive(&[("/train.bin", FILE, &train)]), "would leave the folder"),
            (&archive(&[("train.bin", EntryType::Symlink, b"")]), "is of kind Symlink"),
            (&archive(&[("name", EntryType::GNULongName, b"x")]), "is of kind GNULongName"),
            (&archive(&[("train.bin", FILE, &train)]), "holds no test.bin"),
            (&archive(&[("train.bin", FILE, &train), ("a/train.bin", FILE, &train)]), "train.bin: appears twice"),
            (&archive(&[("train.bin", FILE, &train[1..])]), "is it cut short?"),
            (&archive(&[("train.bin", FILE, &bad_label)]), "fine label 200 is out of range"),
            (&archive(&many), "more than 1000 entries"),
        ];
        for (bytes, reason) in cases {
            let error = extract(bytes).map(|_| ()).unwrap_err();
            assert!(error.contains(reason), "expected '{reason}': {error}");
        }
    }

    /// An archive of 2 MB with 2 GiB of zeros is refused, both as an unwanted entry and as one that is too large.
    #[test]
    fn bombs_are_refused() {
        for (name, reason) in [("padding", "not a whole"), ("train.bin", "more than 200000 records")] {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(header(name, FILE, 2 << 30).as_bytes()).unwrap();
            let zeros = vec![0; 1 << 20];
            for _ in 0..2048 {
                encoder.write_all(&zeros).unwrap();
            }
            let error = extract(&encoder.finish().unwrap()).map(|_| ()).unwrap_err();
            assert!(error.contains(reason), "expected '{reason}': {error}");
        }
    }
}
