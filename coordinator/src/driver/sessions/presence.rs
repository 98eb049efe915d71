//! Signs of life of a session's worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio_util::sync::CancellationToken;

/// A handle that the gRPC handlers share with a session, so that a sign of life costs no command.
#[derive(Clone, Debug)]
pub(crate) struct Presence {
    pub(super) liveness: Arc<Liveness>,
    pub(super) ended: CancellationToken,
}

/// Liveness flags, shared with the gRPC handlers.
#[derive(Debug)]
pub(super) struct Liveness {
    /// Whether the worker was heard from since the driver last checked.
    pub(super) heard: AtomicBool,
    /// Whether the worker's last heartbeat said that it has no work.
    pub(super) is_idle: AtomicBool,
    /// Bytes of gradients that have arrived.
    pub(super) arrived: AtomicU64,
}

impl Presence {
    pub(crate) fn new() -> Self {
        let (heard, is_idle) = (AtomicBool::new(false), AtomicBool::new(true));
        let liveness = Arc::new(Liveness { heard, is_idle, arrived: AtomicU64::new(0) });
        Self { liveness, ended: CancellationToken::new() }
    }

    /// Records a sign of life.
    pub(crate) fn hear(&self) {
        self.liveness.heard.store(true, Ordering::Relaxed);
    }

    /// Records that bytes of a gradient have arrived.
    pub(crate) fn receive(&self, bytes: usize) {
        self.liveness.arrived.fetch_add(bytes as u64, Ordering::Relaxed);
        self.hear();
    }

    /// Records a heartbeat. An idle worker sends its next one later.
    pub(crate) fn hear_heartbeat(&self, is_idle: bool) {
        self.liveness.is_idle.store(is_idle, Ordering::Relaxed);
        self.hear();
    }

    /// Resolves when the session has ended.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    #[cfg(test)]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }
}
