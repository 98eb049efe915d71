//! Replaces object stores in a program that was built without them.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use tokio::runtime::Handle;

/// The objects under a URL. No value exists in this program.
#[derive(Debug)]
pub enum Objects {}

impl Objects {
    /// Returns an error that says how to get a program with object stores.
    pub fn open(_url: &str) -> Result<Self, String> {
        let reason = "this program was built without object stores; those in the archives of a release have them: take one, build \
                      with `cargo build --release --features object-store`, or name a folder";
        Err(reason.into())
    }

    /// Returns the URL.
    pub fn url(&self) -> &str {
        match *self {}
    }

    /// Returns the runtime that makes the requests.
    pub fn runtime(&self) -> &Handle {
        match *self {}
    }

    /// Reads a whole object.
    pub fn get(&self, _name: &str, _most_bytes: u64) -> io::Result<Vec<u8>> {
        match *self {}
    }

    /// Reads a part of an object.
    #[expect(clippy::unused_async, reason = "it is awaited where there are object stores")]
    pub async fn read(
        &self,
        _name: &str,
        _range: Range<u64>,
        _take: impl FnMut(Bytes) -> io::Result<()> + Send,
    ) -> io::Result<()> {
        match *self {}
    }
}
