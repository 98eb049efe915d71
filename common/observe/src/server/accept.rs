//! Accepts connections, with limits that keep strangers from exhausting the coordinator.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ata_net::limits::MAX_VISITORS;
use ata_net::{AcceptedConnection, Entrance, Protocol, ServerTls};
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
#[cfg(target_os = "linux")]
use socket2::SockRef;
use tokio::net::TcpListener;

use super::DashboardState;

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// The time in which a peer must read some of the data that it is sent.
#[cfg(target_os = "linux")]
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The number of bytes that are read ahead from a connection.
const BUFFER_BYTES: usize = 16 << 10;

/// Serves all connections. A new connection always finds a place, so that health checks are always answered: the oldest
/// ones are closed to make room, except viewers.
pub(super) async fn accept(listener: TcpListener, shared: Arc<DashboardState>, router: Router) -> Infallible {
    let tls = move || shared.access.tls().map(ServerTls::for_http);
    Entrance::new(Protocol::Http, MAX_VISITORS, tls)
        .accept(listener, move |arrived| speak(arrived, router.clone()))
        .await
}

async fn speak(arrived: AcceptedConnection, router: Router) {
    // The system detects a peer that reads nothing, and breaks its connection.
    #[cfg(target_os = "linux")]
    SockRef::from(arrived.tcp()).set_tcp_user_timeout(Some(WRITE_TIMEOUT)).unwrap_or(());
    let AcceptedConnection { stream, peer, place: _place, .. } = arrived;
    let closed = peer.closed();
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        router.call(request)
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        served = serving => {
            if let Err(error) = served {
                tracing::debug!(%error, "a connection to the dashboard broke");
            }
        }
        () = closed => tracing::debug!("a connection to the dashboard made room"),
    }
}
