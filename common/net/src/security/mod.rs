//! Authentication of coordinators and workers.
//!
//! Outside loopback, the coordinator speaks TLS. A worker authenticates the coordinator by its key, which the join token pins, or
//! by a certificate authority. The coordinator authenticates its workers by a secret, which the token holds too, or by their
//! certificates. Both happen before anything else is sent.
//!
//! # Layout
//! - `token`: [`Secret`], [`KeyPin`], [`JoinToken`]: the credentials of peers, and their text form
//! - [`Credentials`]: the coordinator's key and secrets in a folder
//! - `server_tls`: TLS at the coordinator, and checks of certificates and keys; `reload`: files that may be replaced while the program runs
//! - `access`: [`Security`], the coordinator's demands, and the check of every request
//! - `client`: [`Trust`], the worker's demands and credentials, and trust in a key

mod access;
mod client;
mod credentials;
mod reload;
mod server_tls;
mod token;

pub(crate) use access::Guard;
pub use access::{Secrets, Security};
pub use client::{AuthorizedChannel, Trust, http_client, why_refused};
pub use credentials::{Credentials, Role};
pub(crate) use server_tls::names_of;
pub use server_tls::{ServerTls, TlsFiles, Validity, check_key, validity};
pub(crate) use token::address_of;
pub use token::{JoinToken, KeyPin, Secret};

use std::io;
use std::path::{Path, PathBuf};

/// An error in credentials.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// The text is not a join token.
    #[error("that is no join token: expected ata1-HOST:PORT-KEY-SECRET, whole, as `ata token show` prints it")]
    Token,
    /// A part of the token is not a key.
    #[error("the key in the join token is damaged: copy the whole line that `ata token show` prints")]
    Pin,
    /// A part of the token is not a secret.
    #[error("the secret is damaged: expected 26 letters and digits, as the last part of what `ata token show` prints")]
    Secret,
    /// The text is not an address.
    #[error("'{0}' is not a coordinator's address: expected HOST:PORT, as in head:7070")]
    Address(String),
    /// A file cannot be read or written, or does not contain what it should.
    #[error("{0}: {1}")]
    File(PathBuf, String),
    /// A file cannot be written.
    #[error("cannot write {0}: {1}")]
    Write(PathBuf, io::Error),
    /// A private file can be read by others.
    #[error("{0} can be read by others on this machine: `chmod 600 {0}`, or remove it to have a new one made")]
    Readable(PathBuf),
    /// A thread cannot be started.
    #[error("cannot start the thread that looks at certificates and secrets: {0}")]
    Thread(io::Error),
    /// The system provides no random bytes.
    #[error("this system gives no random bytes for a secret")]
    NoRandomness,
}

impl SecurityError {
    fn file(path: &Path, cause: &impl ToString) -> Self {
        Self::File(path.to_owned(), cause.to_string())
    }
}
