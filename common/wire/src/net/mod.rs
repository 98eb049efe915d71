//! Both ends of a connection, with their limits set.
//!
//! # Layout
//! - `client`: a worker's side
//! - `entrance`: a port of the coordinator, for workers or for browsers; `handshake`: what is said before anything else;
//!   `admission`: which connections may be open; `peer`: who is at the other end; `warnings`: what is logged about them
//! - `server`: the workers' port; `windows`: how much its connections may send ahead
//! - `probe`: measures the way between them

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
pub use entrance::{Arrived, Entrance, Protocol, Transport};
pub use peer::{Peer, Stay};
pub use probe::{Probed, padding};
pub use server::{files_for, raise_file_limit, serve};
