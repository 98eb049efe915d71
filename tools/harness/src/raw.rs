//! Handwritten HTTP/2, for peers that violate the protocol in ways that no library does, and for peers that need to know when their
//! connection is closed.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::frames::prefixed;

/// The bytes that a client sends first (RFC 9113, section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The types of frames (RFC 9113, section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

/// The flags of frames.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A connection that opens calls, sends the beginning of each, and ends none. It answers pings.
pub struct RawConnection {
    stream: TcpStream,
    open: HashSet<u32>,
}

impl RawConnection {
    /// Opens a call to each path, and announces a message of `bytes` bytes on each.
    pub async fn announcing(address: SocketAddr, paths: &[&str], bytes: u32) -> io::Result<Self> {
        let announced = [&[0], &bytes.to_be_bytes()[..]].concat();
        let calls: Vec<_> = paths.iter().map(|path| (*path, &announced[..])).collect();
        Self::open(address, &calls).await
    }

    /// Makes a call with this message, and waits until it is answered.
    pub async fn calling(address: SocketAddr, path: &str, message: &impl Message) -> io::Result<Self> {
        let mut connection = Self::open(address, &[(path, &prefixed(&message.encode_to_vec()))]).await?;
        while !matches!(connection.frame().await?, DATA | HEADERS) {}
        Ok(connection)
    }

    async fn open(address: SocketAddr, calls: &[(&str, &[u8])]) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address).await?;
        let mut sent = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        let ids = (1..).step_by(2).take(calls.len());
        for (id, (path, data)) in ids.clone().zip(calls) {
            sent.extend(frame(HEADERS, END_HEADERS, id, &headers(path)));
            sent.extend(frame(DATA, 0, id, data));
        }
        stream.write_all(&sent).await?;
        Ok(Self { stream, open: ids.collect() })
    }

    /// Waits until all calls are over. An error means that the connection is closed.
    pub async fn all_over(&mut self) -> io::Result<()> {
        while !self.open.is_empty() {
            self.frame().await?;
        }
        Ok(())
    }

    /// Waits until the connection is closed.
    pub async fn closed(&mut self) {
        while self.frame().await.is_ok() {}
    }

    /// Reads the next frame, and returns its type.
    async fn frame(&mut self) -> io::Result<u8> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).await?;
        let (kind, flags) = (head[3], head[4]);
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        match kind {
            PING if flags & ACK == 0 => self.stream.write_all(&frame(PING, ACK, 0, &payload)).await?,
            SETTINGS if flags & ACK == 0 => self.stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await?,
            RST_STREAM => drop(self.open.remove(&id)),
            DATA | HEADERS if flags & END_STREAM != 0 => drop(self.open.remove(&id)),
            _ => {}
        }
        Ok(kind)
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes the header of a gRPC call, as literals without indexing (RFC 7541, section 6.2.2).
fn headers(path: &str) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}
