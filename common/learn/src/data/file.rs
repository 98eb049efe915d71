//! Files of data, identified by their content.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::DataError;

/// A file of data and the identity of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataFile {
    /// Where it is.
    pub path: PathBuf,
    /// SHA-256 of all of it.
    pub sha256: [u8; 32],
    /// Its size.
    pub bytes: u64,
}

impl DataFile {
    /// Reads a file once to identify it.
    pub fn identify(path: &Path) -> Result<Self, DataError> {
        let mut digest = Sha256::new();
        let mut file = File::open(path).map_err(DataError::io(path))?;
        let mut buffer = vec![0; 1 << 16];
        let mut bytes = 0;
        loop {
            match file.read(&mut buffer).map_err(DataError::io(path))? {
                0 => return Ok(Self { path: path.into(), sha256: digest.finalize().into(), bytes }),
                read => {
                    digest.update(&buffer[..read]);
                    bytes += read as u64;
                }
            }
        }
    }
}

/// SHA-256 of a whole file.
pub fn sha256_of_file(path: &Path) -> Result<[u8; 32], DataError> {
    Ok(DataFile::identify(path)?.sha256)
}

/// A SHA-256 digest in its usual form of 64 hexadecimal digits.
pub fn hex(digest: &[u8; 32]) -> String {
    digest.map(|byte| format!("{byte:02x}")).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_identified_by_all_of_its_bytes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        let found = DataFile::identify(file.path()).unwrap();
        assert_eq!((found.bytes, &hex(&found.sha256)[..16]), (3, "ba7816bf8f01cfea"), "FIPS 180-2, B.1");
        std::fs::write(file.path(), vec![7; 100_000]).unwrap();
        let longer = DataFile::identify(file.path()).unwrap();
        assert_eq!(longer.bytes, 100_000);
        assert_eq!(longer.sha256[..], Sha256::digest(vec![7; 100_000])[..]);
    }
}
