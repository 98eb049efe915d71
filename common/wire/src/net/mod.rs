//! Both ends of a connection, with their limits set.
//!
//! # Layout
//! - `client`: a worker's side
//! - `server`: the coordinator's side; `handshake`: what is said before HTTP/2; `admission`: which connections may be open;
//!   `peer`: who is at the other end; `warnings`: what is logged about them
//! - `probe`: measures the way between them

mod admission;
mod client;
mod handshake;
mod peer;
mod probe;
mod server;
mod warnings;

pub use client::{ConnectError, Connection, Endpoint, connect};
pub use peer::Peer;
pub use probe::{Probed, padding};
pub use server::{files_for, raise_file_limit, serve};
