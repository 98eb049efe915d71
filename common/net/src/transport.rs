//! The protocols of ports, and the byte streams of their connections.

use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC, which workers speak.
    Grpc,
    /// HTTP/1.1, which browsers speak, for the dashboard.
    Http,
}

/// The byte stream of a connection, encrypted or not.
pub type Transport = Either<TcpStream, Box<TlsStream<TcpStream>>>;
