//! Whoever is at the other end of a connection.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::Extensions;
use tokio_util::sync::CancellationToken;

use super::warnings::Warnings;
use crate::message::WorkerName;

/// What is known about the other end; every request of the connection carries it.
#[derive(Clone, Debug)]
pub struct Peer {
    address: SocketAddr,
    /// The DNS names of its certificate, if it has shown one.
    names: Option<Arc<[String]>>,
    standing: Arc<Standing>,
    warnings: Arc<Warnings>,
}

/// Whether a connection may stay, and what is under way on it.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    is_known: AtomicBool,
    closed: CancellationToken,
    /// Gradients that are arriving.
    uploads: AtomicUsize,
}

impl Standing {
    /// Whether it belongs to a session.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// Closes the connection, whatever it waits for.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }

    /// Cancelled when the connection must be closed.
    pub(crate) fn closed(&self) -> &CancellationToken {
        &self.closed
    }
}

impl Peer {
    pub(crate) fn new(address: SocketAddr, warnings: Arc<Warnings>) -> Self {
        Self { address, names: None, standing: Arc::default(), warnings }
    }

    /// The other end of the connection that a request came on.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    pub(crate) fn with_names(self, names: Option<Vec<String>>) -> Self {
        Self { names: names.map(Arc::from), ..self }
    }

    pub(crate) fn standing(&self) -> &Arc<Standing> {
        &self.standing
    }

    /// Records that its connection belongs to a session. Those that do not are closed after
    /// [`crate::limits::STRANGER_TIMEOUT`], or sooner if others need their place.
    pub fn mark_known(&self) {
        self.standing.is_known.store(true, Ordering::Relaxed);
    }

    /// Whether it may take part under a name: a certificate for `rig` is good for `rig`, and for `rig-2` or `rig-wgpu0` of the
    /// same machine. An error says what it is good for.
    pub fn may_be_called(&self, name: &WorkerName) -> Result<(), String> {
        let Some(names) = &self.names else { return Ok(()) };
        let name = name.to_string();
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

    /// Identifies the machine at the other end, within this process: by its certificate or, without one, by its address. Both
    /// are facts, and not what a worker says of itself; but machines behind one router, or with copies of one certificate,
    /// are not told apart.
    pub fn machine(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        match &self.names {
            Some(names) => names.hash(&mut hasher),
            None => self.address.ip().to_canonical().hash(&mut hasher),
        }
        hasher.finish()
    }

    /// Closes its connection, with all of its calls: none can be ended from within while it waits for its peer.
    pub fn close(&self) {
        self.standing.close();
    }

    /// Whether gradients are arriving, behind which other data may have to wait.
    pub(crate) fn is_busy(&self) -> bool {
        self.standing.uploads.load(Ordering::Relaxed) > 0
    }

    /// Counts a gradient that is arriving, until the result is dropped.
    pub(crate) fn upload(&self) -> Upload {
        self.standing.uploads.fetch_add(1, Ordering::Relaxed);
        Upload(self.standing.clone())
    }

    /// Logs what it did, but not too often.
    pub(crate) fn warn(&self, what: fmt::Arguments<'_>) {
        self.warnings.warn(self.address.ip(), what);
    }
}

/// One of whom nothing is known, as if the request had come by no connection.
impl Default for Peer {
    fn default() -> Self {
        Self::new((Ipv4Addr::UNSPECIFIED, 0).into(), Arc::default())
    }
}

/// A gradient that is arriving on a connection.
#[derive(Debug)]
pub(crate) struct Upload(Arc<Standing>);

impl Drop for Upload {
    fn drop(&mut self) {
        self.0.uploads.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_its_certificate_or_its_address() {
        let peer = |address: &str| Peer::new(address.parse().unwrap(), Arc::default());
        let machine = |address: &str| peer(address).machine();
        assert_eq!(machine("10.0.0.1:1"), machine("10.0.0.1:2"), "whatever the port");
        assert_eq!(machine("10.0.0.1:1"), machine("[::ffff:10.0.0.1]:1"), "of a socket for both protocols");
        assert_ne!(machine("10.0.0.1:1"), machine("10.0.0.2:1"));
        let certified = |address: &str, name: &str| peer(address).with_names(Some(vec![name.into()])).machine();
        assert_eq!(certified("10.0.0.1:1", "rig"), certified("10.0.0.2:1", "rig"), "it was given another address");
        assert_ne!(certified("10.0.0.1:1", "rig"), certified("10.0.0.1:1", "rog"));
    }

    #[test]
    fn a_certificate_is_good_for_its_own_names() {
        let peer = Peer::new("127.0.0.1:1".parse().unwrap(), Arc::default());
        let may = |peer: &Peer, name: &str| peer.may_be_called(&name.parse().unwrap());
        assert_eq!(may(&peer, "anything"), Ok(()), "without certificates, names are free");
        let peer = peer.with_names(Some(vec!["rig".into(), "gpu.example.org".into()]));
        for good in ["rig", "rig-2", "rig-wgpu0", "gpu.example.org"] {
            assert_eq!(may(&peer, good), Ok(()), "{good}");
        }
        for bad in ["rig2", "ri", "other", "gpu", "x-rig"] {
            assert!(may(&peer, bad).unwrap_err().contains("[rig, gpu.example.org]"), "{bad}");
        }
    }
}
