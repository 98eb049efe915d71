//! Both ends of a connection, with their limits set.

mod client;
mod server;

pub use client::{ConnectError, Connection, Endpoint, connect};
pub use server::{Guarded, incoming, raise_file_limit, server_builder};
