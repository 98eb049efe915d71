//! Tracks how far a peer has read a download.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ata_net::Peer;
use ata_types::Iteration;

/// Tracks a download's progress. Clones track the same download; the default one never advances.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    peer: Peer,
    /// The iteration whose parameters are being sent; 0 if there is none.
    iteration: Arc<AtomicU64>,
    /// Whether their next piece has not been produced yet.
    waits: Arc<AtomicBool>,
    taken: Arc<AtomicU64>,
}

impl Reader {
    pub(super) fn new(peer: Peer) -> Self {
        Self { peer, ..Self::default() }
    }

    /// Returns the other end of the connection.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the iteration whose parameters are being sent, and which the call holds in memory.
    pub fn sending(&self) -> Option<Iteration> {
        Some(self.iteration.load(Ordering::Relaxed)).filter(|iteration| *iteration > 0).map(Iteration)
    }

    /// Returns the iteration whose parameters are being sent, or `None` if the call waits for their next piece to be produced. If
    /// [`Self::taken`] does not grow while this returns an iteration, the peer is not reading.
    pub fn reading(&self) -> Option<Iteration> {
        self.sending().filter(|_| !self.waits.load(Ordering::Relaxed))
    }

    /// Returns how many pieces the peer has taken, of all sets together.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Records which set is being sent, if any.
    pub(super) fn sends(&self, iteration: Option<Iteration>) {
        self.iteration.store(iteration.map_or(0, Iteration::number), Ordering::Relaxed);
    }

    /// Records whether the next piece of the set has not been produced yet.
    pub(super) fn waits(&self, waits: bool) {
        self.waits.store(waits, Ordering::Relaxed);
    }

    pub(super) fn takes_a_piece(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }
}
