//! Both ends of a connection, with limits and authentication. `ata-wire` defines the messages.
//!
//! # Layout
//! - `endpoint`: [`Endpoint`], the address that a worker connects to; `congestion`: how connections share links
//! - `entrance`: a port of the coordinator, for workers or for browsers; `handshake`: the beginning of a connection; `admission`: limits
//!   open connections; `peer`: the other end of a connection; `warnings`: rate-limited warnings about peers
//! - `obstacle`: [`Obstacle`], what keeps a client from a server
//! - `server`: the workers' port; `windows`: limits how much its connections may send ahead
//! - `security`: TLS, join tokens, secrets
//! - [`limits`]: every limit, with the reason for its value
//! - `memory`: the memory that this process may use

mod admission;
mod congestion;
mod endpoint;
mod entrance;
mod handshake;
pub mod limits;
mod memory;
mod obstacle;
mod peer;
mod security;
mod server;
mod warnings;
mod windows;

pub use endpoint::{ConnectError, Endpoint};
pub use entrance::{AcceptedConnection, Entrance};
pub use handshake::Transport;
pub use memory::memory_bytes;
pub use obstacle::{MORE_FILES, Obstacle, cannot_listen, is_out_of_files};
pub use peer::{CountedUpload, KeepOpen, Peer};
pub use security::{
    AuthorizedChannel, Credentials, JoinToken, KeyPin, Role, Secret, Secrets, Security, SecurityError, ServerTls,
    TlsFiles, Trust, Validity, check_key, http_client, validity, why_refused,
};
pub use server::{files_for, raise_file_limit, serve};
pub use warnings::Protocol;
pub use windows::SendAhead;
