//! Both ends of a connection, with their limits set.
//!
//! # Layout
//! - `client`: a worker's side
//! - `entrance`: a port of the coordinator, for workers or for browsers; `handshake`: the beginning of a connection; `admission`:
//!   which connections may be open; `peer`: the other end of a connection; `warnings`: what is logged about peers
//! - `server`: the workers' port; `windows`: how much its connections may send ahead
//! - `probe`: measures the way to a coordinator

mod admission;
mod client;
mod entrance;
mod handshake;
mod peer;
mod probe;
mod server;
mod warnings;
mod windows;

pub use client::{ConnectError, Connection, Endpoint, connect};
pub use entrance::{AcceptedConnection, Entrance, Protocol, Transport};
pub(crate) use peer::Upload;
pub use peer::{Peer, Stay};
pub use probe::{ProbeResult, padding};
pub use server::{files_for, raise_file_limit, serve};
