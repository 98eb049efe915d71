//! How connections share links.

use std::net::IpAddr;

use hyper_util::client::legacy::connect::HttpConnector;
#[cfg(target_os = "linux")]
use socket2::SockRef;
use tokio::net::TcpStream;
use tonic::transport::{self, Channel};
use tower::service_fn;
use tower_service::Service;

use crate::limits::CONNECT_TIMEOUT;

/// Sets how a connection with a machine in a private network shares links: by CUBIC (RFC 9438), the default of most systems. Many vectors
/// arrive at the same machine at the same time, and with BBR (version 1), the default of others, they share its link so unevenly that steps
/// take up to three times as long. On ways through the internet, which may lose packets, the system's choice stays.
pub(crate) fn share_links(stream: &TcpStream) {
    if stream.peer_addr().is_ok_and(|peer| is_private(peer.ip().to_canonical())) {
        // A system that has no CUBIC goes on with its own.
        #[cfg(target_os = "linux")]
        SockRef::from(stream).set_tcp_congestion(b"cubic").unwrap_or(());
    }
}

/// Connects to an endpoint. If its host has several addresses, each is tried for a part of the time.
pub(crate) async fn connect(endpoint: transport::Endpoint) -> Result<Channel, transport::Error> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = service_fn(move |uri| {
        let connecting = http.call(uri);
        async move { connecting.await.inspect(|stream| share_links(stream.inner())) }
    });
    endpoint.connect_with_connector(connector).await
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private() || address.is_link_local() || address.is_loopback(),
        IpAddr::V6(address) => address.is_unique_local() || address.is_unicast_link_local() || address.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

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
    async fn a_connection_in_a_private_network_shares_links_by_cubic() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let socket = SockRef::from(&stream);
        let control = || String::from_utf8(socket.tcp_congestion().unwrap()).unwrap();
        let has_both = [b"cubic".as_slice(), b"reno"].into_iter().all(|name| socket.set_tcp_congestion(name).is_ok());
        share_links(&stream);
        assert!(!has_both || control().starts_with("cubic"), "{}", control());
    }
}
