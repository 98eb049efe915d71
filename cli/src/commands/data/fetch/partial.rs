//! The file that a download fills.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// `NAME.partial`, which becomes `NAME` when it is whole. If the download breaks off it stays, to be continued.
pub(super) struct Partial {
    path: PathBuf,
    file: File,
    len: u64,
}

impl Partial {
    /// Opens what an earlier download left, or else an empty file. No other process fills it meanwhile.
    pub(super) fn open(target: &Path) -> Result<Self, Failure> {
        let path = target.with_added_extension("partial");
        let failed = |cause| cannot_write(&path, &cause);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        // Some file systems have no locks.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            let shown = path.display();
            return Err(Failure::disk(format!(
                "{shown}: another `ata data fetch` is filling it; wait until it is done"
            )));
        }
        let len = file.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok(Self { path, file, len })
    }

    /// Bytes that are there.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(|cause| cannot_write(&self.path, &cause))?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Forgets what is there.
    pub(super) fn clear(&mut self) -> Result<(), Failure> {
        if self.len > 0 {
            let cleared = self.file.set_len(0).and_then(|()| self.file.rewind());
            cleared.map_err(|cause| cannot_write(&self.path, &cause))?;
            self.len = 0;
        }
        Ok(())
    }

    /// Puts the bytes on the disk, and closes the file.
    pub(super) fn close(self) -> Result<PathBuf, Failure> {
        self.file.sync_all().map_err(|cause| cannot_write(&self.path, &cause))?;
        Ok(self.path)
    }

    /// Removes the file.
    pub(super) fn remove(self) -> Result<(), Failure> {
        drop(self.file);
        remove(&self.path)
    }
}

pub(super) fn remove(path: &Path) -> Result<(), Failure> {
    std::fs::remove_file(path)
        .map_err(|cause| Failure::disk(format!("cannot remove {}: {cause}. Remove it yourself", path.display())))
}

fn cannot_write(path: &Path, cause: &std::io::Error) -> Failure {
    let shown = path.display();
    Failure::disk(format!("cannot write {shown}: {cause}. Mend that and run the command again, or give another folder"))
}
