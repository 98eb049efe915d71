//! Connections, with limits that keep strangers from using up the coordinator.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
#[cfg(target_os = "linux")]
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::Shared;

/// Connections at a time: a few per browser, and the rest of a coordinator's files is for its workers.
const MOST_CONNECTIONS: usize = 256;

/// Time for a TLS handshake, and for the headers of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Time in which a peer must take some of what it is sent.
#[cfg(target_os = "linux")]
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// What is read ahead of a connection.
const BUFFER_BYTES: usize = 16 << 10;

pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>, router: Router) -> Infallible {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let (shared, router) = (shared.clone(), router.clone());
                tokio::spawn(async move {
                    meet(stream, &shared, router).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the dashboard cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn meet(stream: TcpStream, shared: &Shared, router: Router) {
    stream.set_nodelay(true).unwrap_or(());
    // A peer that reads nothing is noticed by the system: its connection breaks.
    #[cfg(target_os = "linux")]
    SockRef::from(&stream).set_tcp_user_timeout(Some(WRITE_TIMEOUT)).unwrap_or(());
    let Some(tls) = shared.access.tls() else { return speak(stream, router).await };
    let handshake = TlsAcceptor::from(tls.for_http()).accept(stream);
    // Who speaks no TLS here, or refuses our certificate, is told so by TLS itself.
    if let Ok(Ok(stream)) = tokio::time::timeout(HEADER_TIMEOUT, handshake).await {
        speak(stream, router).await;
    }
}

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: Router) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the dashboard broke");
    }
}
