//! A peer that does not speak the protocol never reaches the service.

use ata_wire::{Endpoint, connect, incoming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::StreamExt;

#[tokio::test]
async fn another_protocol_is_cut_off() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut accepted = Box::pin(incoming(listener));

    let mut http1 = TcpStream::connect(address).await.unwrap();
    http1.write_all(b"GET / HTTP/1.1\r\nHost: head\r\n\r\n").await.unwrap();
    let mut answer = [0; 16];
    let closed = http1.read(&mut answer);
    // The guard runs on its own and closes the connection; the service never sees it.
    tokio::select! {
        read = closed => assert!(matches!(read, Ok(0) | Err(_)), "{read:?}"),
        _ = accepted.next() => panic!("it reached the service"),
    }

    let mut halves = TcpStream::connect(address).await.unwrap();
    halves.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
    halves.write_all(b"\r\nSM\r\n\r\n").await.unwrap();
    assert!(accepted.next().await.unwrap().is_ok(), "HTTP/2 is accepted, even in pieces");
}

#[tokio::test]
async fn nobody_there() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let endpoint: Endpoint = address.to_string().parse().unwrap();
    let error = connect(&endpoint).await.unwrap_err().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("refused"), "{error}");
}
