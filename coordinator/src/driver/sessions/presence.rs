//! Tracks whether a session's worker is alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

/// A handle that the gRPC handlers share with a session, so that a heartbeat needs no command to the driver.
#[derive(Clone, Debug)]
pub(crate) struct Presence {
    pub(super) liveness: Arc<Liveness>,
    /// Cancelled when the session has ended.
    pub(crate) ended: CancellationToken,
}

/// Liveness flags, shared with the gRPC handlers.
#[derive(Debug)]
pub(super) struct Liveness {
    /// Whether the worker was heard from since the driver last checked.
    pub(super) heard: AtomicBool,
    /// Whether the worker's last heartbeat said that it has no work.
    pub(super) is_idle: AtomicBool,
}

impl Presence {
    pub(crate) fn new() -> Self {
        let (heard, is_idle) = (AtomicBool::new(false), AtomicBool::new(true));
        let liveness = Arc::new(Liveness { heard, is_idle });
        Self { liveness, ended: CancellationToken::new() }
    }

    /// Records that the worker was heard from.
    pub(crate) fn hear(&self) {
        self.liveness.heard.store(true, Ordering::Relaxed);
    }

    /// Records a heartbeat. An idle worker sends its next one later.
    pub(crate) fn hear_heartbeat(&self, is_idle: bool) {
        self.liveness.is_idle.store(is_idle, Ordering::Relaxed);
        self.hear();
    }
}
