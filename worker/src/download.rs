//! Downloads from the coordinator, over the current session.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ata_data::DataError;
use ata_wire::proto::DataRequest;
use ata_wire::{Connection, FileReceiver, SessionToken};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::error::SessionError;

/// The prefix of the names of files that are being downloaded.
pub(crate) const UNFINISHED: &str = ".unfinished-";

pub(crate) fn unfinished(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)
}

/// Locks a value of which no thread leaves a part behind if it panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no other process holds this file of a folder locked. The lock is released when the file is closed.
pub(crate) fn lock_file(folder: &Path, name: &str) -> Result<File, DataError> {
    std::fs::create_dir_all(folder).map_err(DataError::cache(folder))?;
    let path = folder.join(name);
    let locked = File::create(&path).and_then(|file| file.lock().map(|()| file));
    locked.map_err(DataError::cache(path))
}

/// The link over which data is downloaded. It outlives sessions, since data does too.
#[derive(Clone, Debug, Default)]
pub(crate) struct DataLink(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    session: Mutex<Option<(Connection, SessionToken)>>,
    /// Serializes downloads, since a coordinator sends one file at a time to a session.
    turn: tokio::sync::Mutex<()>,
}

/// A session over which data can be downloaded, until this is dropped.
pub(crate) struct OpenLink<'a>(&'a DataLink);

impl Drop for OpenLink<'_> {
    fn drop(&mut self) {
        *lock(&self.0.0.session) = None;
    }
}

impl DataLink {
    /// Uses this session for downloads from now on.
    pub(crate) fn open(&self, connection: Connection, session: SessionToken) -> OpenLink<'_> {
        *lock(&self.0.session) = Some((connection, session));
        OpenLink(self)
    }

    /// Downloads a file, or a part of one, to a temporary file in `cache`, and checks it. `each` is called with each piece.
    pub(crate) async fn download(
        &self,
        cache: &Path,
        sha256: [u8; 32],
        bytes: u64,
        mut each: impl FnMut(&[u8]) + Send,
    ) -> Result<NamedTempFile, SessionError> {
        let _turn = self.0.turn.lock().await;
        let Some((connection, session)) = lock(&self.0.session).clone() else {
            return Err(SessionError::Broken("there is no session to fetch data over".into()));
        };
        let mut file = unfinished(cache).map_err(DataError::cache(cache))?;
        let request = DataRequest { session: session.to_wire(), sha256: Bytes::copy_from_slice(&sha256) };
        let opened = connection.coordinator().data(request).await;
        let parts = opened.map_err(|status| SessionError::fetch(status.into()))?.into_inner();
        let mut receiver = FileReceiver::begin(parts, bytes).await.map_err(SessionError::fetch)?;
        let mut digest = Sha256::new();
        while let Some(data) = receiver.chunk().await.map_err(SessionError::fetch)? {
            digest.update(&data);
            each(&data);
            file.write_all(&data).map_err(DataError::cache(cache))?;
        }
        if digest.finalize()[..] != sha256 {
            return Err(SessionError::NoData("the data arrived damaged: its SHA-256 differs".into()));
        }
        Ok(file)
    }
}
