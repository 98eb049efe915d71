//! Reads the official `cifar-100-binary.tar.gz` without trusting it.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::path::{Component, Path, PathBuf};

use flate2::bufread::GzDecoder;
use tar::{Archive, Entry, EntryType};

use crate::cache::made_once;
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
    let target = cache.join("archives").join(hex(&sha256_of_file(archive)?));
    let is_whole = |split: Split| RecordFile::open(&target.join(split.file_name())).is_ok();
    made_once(target.clone(), is_whole, |unpacked| unpack(archive, unpacked))
}

fn unpack(archive: &Path, unpacked: &Path) -> Result<(), DataError> {
    let corrupt = |reason: String| DataError::corrupt(archive, reason);
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
            unpack_split(&mut entry, split.file_name(), unpacked, corrupt)?;
        }
    }
    // The rest is read because the archive's checksum is at its end.
    let mut rest = tar.into_inner();
    std::io::copy(&mut rest, &mut std::io::sink()).map_err(|cause| corrupt(format!("damaged: {cause}")))?;
    if rest.limit() == 0 {
        return Err(corrupt(format!("more than {MAX_UNPACKED_BYTES} bytes when unpacked")));
    }
    match Split::BOTH.map(Split::file_name).into_iter().find(|name| !unpacked.join(name).is_file()) {
        Some(name) => Err(corrupt(format!("holds no {name}: expected cifar-100-binary.tar.gz"))),
        None => Ok(()),
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
    Ok(Split::BOTH.into_iter().find(|split| path.file_name().is_some_and(|name| name == split.file_name())))
}

fn unpack_split(
    entry: &mut Entry<'_, impl Read>,
    name: &str,
    folder: &Path,
    corrupt: impl Fn(String) -> DataError,
) -> Result<(), DataError> {
    let bytes = entry.size();
    if bytes > MAX_RECORDS * RECORD_BYTES as u64 {
        return Err(corrupt(format!("{name}: {bytes} bytes are more than {MAX_RECORDS} records")));
    }
    let path = folder.join(name);
    let mut file = File::create_new(&path).map_err(|cause| match cause.kind() {
        ErrorKind::AlreadyExists => corrupt(format!("{name}: appears twice")),
        _ => DataError::cache(&path)(cause),
    })?;
    let mut buffer = vec![0; 1 << 16];
    let mut left = bytes;
    while left > 0 {
        let ends_early = |cause| corrupt(format!("{name} ends early: {cause}"));
        let read = entry.read(&mut buffer).map_err(ends_early)?;
        if read == 0 {
            return Err(ends_early(ErrorKind::UnexpectedEof.into()));
        }
        file.write_all(&buffer[..read]).map_err(DataError::cache(&path))?;
        left -= read as u64;
    }
    match RecordFile::open(&path) {
        Ok(_) => Ok(()),
        // The temporary path would not help the user.
        Err(DataError::Corrupt { reason, .. }) => Err(corrupt(format!("{name}: {reason}"))),
        Err(error) => Err(corrupt(format!("{name}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
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
        let many: Vec<_> = (0..1001).map(|_| ("x", FILE, &b""[..])).collect();
        let mut large = GzEncoder::new(Vec::new(), Compression::fast());
        large.write_all(header("train.bin", FILE, 2 << 30).as_bytes()).unwrap();
        let cases: &[(&[u8], &str)] = &[
            (&large.finish().unwrap(), "train.bin: 2147483648 bytes are more than 200000 records"),
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
}
