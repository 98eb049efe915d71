//! The other end of a connection.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use http::Extensions;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::limits::STRANGER_TIMEOUT;
use crate::warnings::{Protocol, Warnings};

/// The other end of a connection. Every request of the connection carries it as an extension.
#[derive(Clone, Debug)]
pub struct Peer {
    address: SocketAddr,
    /// The DNS names in the certificate of the peer, if it presented one.
    names: Option<Arc<[String]>>,
    state: Arc<ConnectionState>,
    warnings: Arc<Warnings>,
}

/// Records what keeps a connection open, and what is in progress on it.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    claims: watch::Sender<usize>,
    closed: CancellationToken,
    uploads: AtomicUsize,
    /// The number of bytes that the connection has carried, both ways.
    bytes: AtomicU64,
}

impl ConnectionState {
    pub(crate) fn is_stranger(&self) -> bool {
        *self.claims.borrow() == 0
    }

    /// Closes the connection, even if it is waiting.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    pub(crate) fn carried(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Keeps a connection open until it is dropped.
#[derive(Debug)]
pub struct KeepOpen {
    state: Arc<ConnectionState>,
    host: IpAddr,
}

impl KeepOpen {
    /// Returns `true` if this keeps the connection of `peer` open.
    pub fn is_of(&self, peer: &Peer) -> bool {
        Arc::ptr_eq(&self.state, &peer.state)
    }

    /// Returns the number of bytes that the connection has carried, both ways.
    pub fn bytes(&self) -> u64 {
        self.state.bytes.load(Ordering::Relaxed)
    }

    /// Returns the address of the other end.
    pub fn host(&self) -> IpAddr {
        self.host
    }
}

impl Drop for KeepOpen {
    fn drop(&mut self) {
        self.state.claims.send_modify(|claims| *claims -= 1);
    }
}

impl Peer {
    pub(crate) fn new(address: SocketAddr, warnings: Arc<Warnings>) -> Self {
        Self { address, names: None, state: Arc::default(), warnings }
    }

    /// Returns the peer of the connection that carried a request.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    pub(crate) fn with_names(self, names: Option<Vec<String>>) -> Self {
        Self { names: names.map(Arc::from), ..self }
    }

    pub(crate) fn state(&self) -> &Arc<ConnectionState> {
        &self.state
    }

    /// Keeps the connection open. Connections that nothing keeps open make room for new ones.
    pub fn keep_open(&self) -> KeepOpen {
        self.state.claims.send_modify(|claims| *claims += 1);
        KeepOpen { state: self.state.clone(), host: self.address.ip() }
    }

    /// Closes the connection once nothing has kept it open for [`STRANGER_TIMEOUT`], at first from `since`. Resolves when it is gone.
    pub(crate) fn probation(&self, since: Instant) -> impl Future<Output = ()> + Send + use<> {
        let (address, warnings) = (self.address.ip(), self.warnings.clone());
        let (state, mut claims) = (Arc::downgrade(&self.state), self.state.claims.subscribe());
        async move {
            let mut deadline = since + STRANGER_TIMEOUT;
            loop {
                let stays_now =
                    timeout_at(deadline, claims.wait_for(|claims| *claims > 0)).await.map(|claims| claims.is_ok());
                match stays_now {
                    Ok(true) if claims.wait_for(|claims| *claims == 0).await.is_ok() => {}
                    // The connection is gone.
                    Ok(_) => return,
                    Err(_) => break,
                }
                deadline = Instant::now() + STRANGER_TIMEOUT;
            }
            if let Some(state) = state.upgrade() {
                warnings.warn(address, format_args!("was closed: it belongs to no session"));
                state.close();
            }
        }
    }

    /// Checks whether the peer may use a name: a certificate for `rig` is valid for `rig`, and for `rig-2` or
    /// `rig-wgpu0` of the same machine. An error lists the valid names.
    pub fn may_be_called(&self, name: &str) -> Result<(), String> {
        let Some(names) = &self.names else { return Ok(()) };
        let is_good =
            |good: &String| name.strip_prefix(&**good).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        if names.iter().any(is_good) {
            return Ok(());
        }
        let names = names.join(", ");
        Err(format!(
            "this worker's certificate is for [{names}], and not for '{name}': use --name, or another certificate"
        ))
    }

    /// Names the machine at the other end by its certificate or, without one, by its address. A worker can choose neither freely. Machines
    /// behind one router, or with copies of one certificate, count as one. An IPv6 address counts whole, because the machines of a
    /// network share its first 64 bits.
    pub fn machine(&self) -> String {
        match &self.names {
            Some(names) => {
                let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
                format!("certificate of {}", names.into_iter().collect::<Vec<_>>().join(", "))
            }
            None => self.address.ip().to_canonical().to_string(),
        }
    }

    /// Closes the connection with all of its calls, which cannot end by themselves while they wait for the peer.
    pub fn close(&self) {
        self.state.close();
    }

    /// Resolves when the connection must be closed.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        self.state.closed.clone().cancelled_owned()
    }

    /// Returns `true` if gradients are arriving, which may delay other data.
    pub fn is_busy(&self) -> bool {
        self.state.uploads.load(Ordering::Relaxed) > 0
    }

    /// Counts an arriving gradient until the result is dropped.
    pub fn upload(&self) -> CountedUpload {
        self.state.uploads.fetch_add(1, Ordering::Relaxed);
        CountedUpload(self.state.clone())
    }

    /// Logs a warning about the peer, at a limited rate.
    pub fn warn(&self, what: fmt::Arguments<'_>) {
        self.warnings.warn(self.address.ip(), what);
    }
}

/// Returns a peer without a connection, of which only the address is known.
impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self::new((address, 0).into(), Arc::new(Warnings::about(Protocol::Grpc)))
    }
}

/// Returns a peer without a connection, about which nothing is known.
impl Default for Peer {
    fn default() -> Self {
        Self::from(IpAddr::from(Ipv4Addr::UNSPECIFIED))
    }
}

/// A gradient that is arriving on a connection.
#[derive(Debug)]
pub struct CountedUpload(Arc<ConnectionState>);

impl Drop for CountedUpload {
    fn drop(&mut self) {
        self.0.uploads.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The port does not count, nor do the address of a machine with a certificate, and the order of its names.
    #[test]
    fn a_machine_is_its_certificate_or_its_address() {
        for (address, names, expected) in [
            ("10.0.0.1:1", &[][..], "10.0.0.1"),
            ("10.0.0.1:2", &[], "10.0.0.1"),
            ("[::ffff:10.0.0.1]:1", &[], "10.0.0.1"),
            ("[2001:db8::1]:7", &[], "2001:db8::1"),
            ("10.0.0.1:1", &["rig", "gpu.example.org"], "certificate of gpu.example.org, rig"),
            ("10.0.0.2:1", &["gpu.example.org", "rig", "rig"], "certificate of gpu.example.org, rig"),
        ] {
            let names = (!names.is_empty()).then(|| names.iter().map(|&name| name.to_owned()).collect());
            let peer = Peer { address: address.parse().unwrap(), ..Peer::default() }.with_names(names);
            assert_eq!(peer.machine(), expected, "{address}");
        }
    }

    #[test]
    fn a_certificate_is_good_for_its_own_names() {
        let peer = Peer::default();
        let may = |peer: &Peer, name: &str| peer.may_be_called(name);
        assert_eq!(may(&peer, "anything"), Ok(()), "without certificates, names are free");
        let peer = peer.with_names(Some(vec!["rig".into(), "gpu.example.org".into()]));
        for good in ["rig", "rig-2", "rig-wgpu0", "gpu.example.org"] {
            assert_eq!(may(&peer, good), Ok(()), "{good}");
        }
        for bad in ["rig2", "ri", "other", "gpu", "x-rig"] {
            assert!(may(&peer, bad).unwrap_err().contains("[rig, gpu.example.org]"), "{bad}");
        }
    }

    /// The probation ends with the connection, whether or not something ever kept it open.
    #[tokio::test]
    async fn the_probation_of_a_connection_ends_with_it() {
        for has_stayed in [false, true] {
            let peer = Peer::default();
            if has_stayed {
                drop(peer.keep_open());
            }
            let probation = tokio::spawn(peer.probation(Instant::now()));
            drop(peer);
            tokio::time::timeout(STRANGER_TIMEOUT / 2, probation).await.expect("its end").unwrap();
        }
    }
}
