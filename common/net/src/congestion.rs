//! How connections share links.

use std::io;
use std::net::{IpAddr, SocketAddr};

use http::Uri;
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;
use tonic::transport::{self, Channel};
use tower::service_fn;

use crate::limits::CONNECT_TIMEOUT;

/// Sets how a socket's connections share links: by CUBIC (RFC 9438), the default of most systems. Many vectors arrive at the same machine at
/// the same time, and with BBR (version 1), the default of others, they share its link so unevenly that steps take up to three times as long.
///
/// This takes a socket that is not connected: a connection that begins with BBR is paced for ever, which takes a tenth of the time of steps
/// on fast links. A system that has no CUBIC goes on with its own choice.
fn share_evenly<'s>(socket: impl Into<SockRef<'s>>) {
    #[cfg(target_os = "linux")]
    socket.into().set_tcp_congestion(b"cubic").unwrap_or(());
}

/// Prepares a listener for connections from private networks.
pub(crate) fn prepare(listener: &TcpListener) {
    share_evenly(listener);
}

/// Gives the connections of a prepared listener from elsewhere the system's choice: ways through the internet may lose packets.
pub(crate) fn accepted(stream: &TcpStream) {
    if stream.peer_addr().is_ok_and(|peer| !is_private(peer.ip().to_canonical())) {
        #[cfg(target_os = "linux")]
        let _ = TcpSocket::new_v4()
            .and_then(|new| SockRef::from(&new).tcp_congestion())
            .and_then(|choice| SockRef::from(stream).set_tcp_congestion(&choice));
    }
}

/// Connects to an endpoint. If its host has several addresses, each is tried for a part of the time.
pub(crate) async fn connect(endpoint: transport::Endpoint) -> Result<Channel, transport::Error> {
    let connector = service_fn(|uri: Uri| async move { open(&uri).await.map(TokioIo::new) });
    endpoint.connect_with_connector(connector).await
}

async fn open(uri: &Uri) -> io::Result<TcpStream> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let addresses: Vec<SocketAddr> = lookup_host((host, uri.port_u16().unwrap_or_default())).await?.collect();
    let time = CONNECT_TIMEOUT / addresses.len().max(1) as u32;
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        match timeout(time, open_at(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failure = error,
            Err(late) => failure = late.into(),
        }
    }
    Err(failure)
}

async fn open_at(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Without this, small messages wait for each other for up to 40 ms.
    socket.set_nodelay(true)?;
    if is_private(address.ip().to_canonical()) {
        share_evenly(&socket);
    }
    socket.connect(address).await
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private() || address.is_link_local() || address.is_loopback(),
        IpAddr::V6(address) => address.is_unique_local() || address.is_unicast_link_local() || address.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_private_or_not() {
        for private in ["127.0.0.1", "10.0.0.7", "192.168.1.2", "169.254.0.9", "::1", "fd00::7", "fe80::1"] {
            assert!(is_private(private.parse().unwrap()), "{private}");
        }
        for public in ["8.8.8.8", "100.64.0.7", "2001:db8::1"] {
            assert!(!is_private(public.parse().unwrap()), "{public}");
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn connections_in_a_private_network_share_links_by_cubic() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let is_known =
            |name: &[u8]| TcpSocket::new_v4().is_ok_and(|new| SockRef::from(&new).set_tcp_congestion(name).is_ok());
        // A choice that is not the system's, either.
        let has_both = is_known(b"cubic") && SockRef::from(&listener).set_tcp_congestion(b"reno").is_ok();
        prepare(&listener);
        let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let connected = open(&uri).await.unwrap();
        let (arrived, _) = listener.accept().await.unwrap();
        accepted(&arrived);
        for stream in [connected, arrived] {
            let control = String::from_utf8(SockRef::from(&stream).tcp_congestion().unwrap()).unwrap();
            assert!(!has_both || control.starts_with("cubic"), "{control}");
        }
    }

    #[tokio::test]
    async fn a_host_with_several_addresses_is_reached_by_one_that_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // This name often has an IPv6 address, too, at which nothing listens.
        assert!(open(&format!("http://localhost:{port}").parse().unwrap()).await.is_ok());
    }
}
