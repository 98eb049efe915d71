//! Data files, identified by their content.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::{DataError, Shard, ShardIndex};

/// A data file, or a part of one, and the identity of its content. It stays open, because another file may take its path.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// The path at which it was opened.
    pub path: PathBuf,
    /// The SHA-256 of its content.
    pub sha256: [u8; 32],
    /// The size of the content, in bytes.
    pub bytes: u64,
    /// The offset at which it begins in the file, whose size is `file_bytes`.
    offset: u64,
    file_bytes: u64,
    file: Arc<File>,
}

/// Distinguishes versions of a file, as far as that is possible without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// The size of the file, in bytes.
    pub bytes: u64,
    modified: Option<SystemTime>,
}

impl DataFile {
    /// Reads a file once to identify it.
    pub fn identify(path: &Path) -> Result<Self, DataError> {
        let mut digest = Sha256::new();
        let mut file = File::open(path).map_err(DataError::io(path))?;
        let (mut buffer, mut bytes) = (vec![0; 1 << 16], 0);
        loop {
            let read = file.read(&mut buffer).map_err(DataError::io(path))?;
            if read == 0 {
                break;
            }
            digest.update(&buffer[..read]);
            bytes += read as u64;
        }
        let (path, sha256) = (path.into(), digest.finalize().into());
        Ok(Self { path, sha256, bytes, offset: 0, file_bytes: bytes, file: file.into() })
    }

    /// Returns the shards of a packed file, which are not read yet.
    pub fn shards(index: &ShardIndex, packed: &Path) -> Result<Vec<Self>, DataError> {
        let file = Arc::new(File::open(packed).map_err(DataError::io(packed))?);
        let file_bytes = file.metadata().map_err(DataError::io(packed))?.len();
        let of = |Shard { offset, bytes, sha256, .. }: Shard| {
            let (path, file) = (packed.into(), file.clone());
            Self { path, sha256, bytes, offset, file_bytes, file }
        };
        Ok(index.shards().map(of).collect())
    }

    /// Returns `false` if the file must have changed, given its state.
    pub fn is_possible(&self, state: FileState) -> bool {
        state.bytes == self.file_bytes
    }

    /// Returns the current state of the file.
    pub fn state(&self) -> io::Result<FileState> {
        let metadata = self.file.metadata()?;
        Ok(FileState { bytes: metadata.len(), modified: metadata.modified().ok() })
    }

    /// Reads the current content of the file, from this byte on. Any number of threads may do so at the same time.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        read_exact_at(&self.file, buffer, self.offset + offset)
    }
}

/// Reads from a position, so that many threads can share a file.
#[cfg(unix)]
pub(crate) fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
pub(crate) fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> std::io::Result<()> {
    while !buffer.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, buffer, offset)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => {
                buffer = &mut buffer[read..];
                offset += read as u64;
            }
        }
    }
    Ok(())
}

/// Returns `true` if a file begins with these bytes.
pub(crate) fn begins_with(path: &Path, magic: [u8; 8]) -> Result<bool, DataError> {
    let mut first = [0; 8];
    match File::open(path).and_then(|mut file| file.read_exact(&mut first)) {
        Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| first == magic).map_err(DataError::io(path)),
    }
}

/// Returns the SHA-256 of a whole file.
pub fn sha256_of_file(path: &Path) -> Result<[u8; 32], DataError> {
    Ok(DataFile::identify(path)?.sha256)
}

/// Formats bytes as hexadecimal digits, two for each.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_identified_by_all_of_its_bytes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let content = vec![7; 100_000];
        std::fs::write(file.path(), &content).unwrap();
        let found = DataFile::identify(file.path()).unwrap();
        assert_eq!((found.bytes, &found.sha256[..]), (100_000, &Sha256::digest(&content)[..]));
    }

    #[cfg(unix)]
    #[test]
    fn what_was_identified_can_be_read_although_another_file_took_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("data"), folder.path().join("other"));
        std::fs::write(&path, "abcdef").unwrap();
        std::fs::write(&other, "ABCDEF").unwrap();
        let found = DataFile::identify(&path).unwrap();
        let state = found.state().unwrap();
        std::fs::rename(other, &path).unwrap();
        let mut read = [0; 3];
        found.read_at(&mut read, 2).unwrap();
        assert_eq!((&read, found.state().unwrap()), (b"cde", state));
        assert!(found.read_at(&mut read, 4).is_err(), "it ends before");
    }
}
