//! Room for vectors that are used whole.
//!
//! Such a vector is put together before it is used, so their number at a time is bounded. Those that find no room wait, which costs
//! only what fits into a window of flow control. Room goes to the worker that fills the least of it, and among equals to the one that
//! waits longest. A worker that sends too slowly while others wait gives way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ata_sums::Units;
use ata_types::{VectorId, WorkerId};
use ata_wire::limits::{LEAST_UPLOAD_BYTES_PER_S, LEAST_UPLOAD_SHARE, UPLOAD_GUARD_WINDOW};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Reduction;
use super::vector::{State, Vector};
use crate::training::Magnitudes;

/// How much of a vector has arrived.
#[derive(Debug, Default)]
struct Received {
    bytes: AtomicU64,
    chunks: AtomicU64,
}

/// The service's side of a vector that is put together.
#[derive(Debug)]
pub(crate) struct Whole {
    received: Arc<Received>,
    ended: CancellationToken,
    _place: OwnedSemaphorePermit,
}

impl Whole {
    /// Records that bytes of the vector have arrived.
    pub(crate) fn receive(&self, bytes: usize) {
        self.received.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Records that a chunk of it has arrived.
    pub(crate) fn receive_chunk(&self) {
        self.received.chunks.fetch_add(1, Ordering::Relaxed);
    }

    /// Resolves when the vector is not needed any more.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }
}

/// The driver's side of it. Dropping it ends the call that sends the vector.
#[derive(Debug)]
pub(super) struct Filling {
    magnitudes: Magnitudes,
    units: Units,
    received: Arc<Received>,
    /// Since when its rate is measured, and how much had arrived then; `None` while no vector waits for room.
    window: Option<(f64, u64)>,
    _ends: DropGuard,
}

impl Filling {
    /// Chunks that have arrived.
    pub(super) fn chunks(&self) -> u64 {
        self.received.chunks.load(Ordering::Relaxed)
    }

    /// Bytes that have arrived.
    pub(super) fn bytes(&self) -> u64 {
        self.received.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn into_header(self) -> (Magnitudes, Units) {
        (self.magnitudes, self.units)
    }

    /// The bytes per second that have arrived since it is measured, and whether that is long enough.
    fn rate(&mut self, now_s: f64) -> (f64, bool) {
        let received = self.bytes();
        let (since_s, before) = *self.window.get_or_insert((now_s, received));
        let passed_s = now_s - since_s;
        let is_due = passed_s >= UPLOAD_GUARD_WINDOW.as_secs_f64();
        if is_due {
            self.window = Some((now_s, received));
        }
        ((received - before) as f64 / passed_s.max(f64::MIN_POSITIVE), is_due)
    }
}

/// The room of a run.
#[derive(Debug)]
pub(super) struct Room {
    places: Arc<Semaphore>,
    /// How many vectors of one worker may have room at a time: half of all, so that one worker never makes all others wait.
    share: usize,
}

impl Room {
    /// Room for so many vectors.
    pub(super) fn new(places: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(places)), share: (places / 2).max(1) }
    }

    /// Room for a vector with this header, if there is some.
    pub(super) fn fill(&self, magnitudes: Magnitudes, units: Units) -> Option<(Filling, Whole)> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let (received, ended) = (Arc::new(Received::default()), CancellationToken::new());
        let whole = Whole { received: received.clone(), ended: ended.clone(), _place: place };
        Some((Filling { magnitudes, units, received, window: None, _ends: ended.drop_guard() }, whole))
    }
}

impl Reduction {
    /// The next vector that gets room, of those that are used whole and wait for it.
    pub(super) fn next_whole(&self) -> Option<VectorId> {
        if self.room.places.available_permits() == 0 {
            return None;
        }
        let waiting = self.vectors.iter().filter(|(_, vector)| waits(vector) && self.is_computed(vector));
        let (filled, id) = waiting.map(|(id, vector)| (self.filled_by(vector.worker), *id)).min()?;
        (filled < self.room.share).then_some(id)
    }

    /// How many vectors of a worker have room.
    fn filled_by(&self, worker: WorkerId) -> usize {
        let of_worker = self.vectors.values().filter(|vector| vector.worker == worker);
        of_worker.filter(|vector| matches!(vector.state, State::Filling(_))).count()
    }

    /// The vectors of the slowest of the workers that have room while others wait for it, if it is too slow.
    pub(crate) fn give_way(&mut self, now_s: f64) -> Vec<(WorkerId, VectorId)> {
        let others_wait = self.room.places.available_permits() == 0 && self.vectors.values().any(waits);
        // By worker: the rate of all of its vectors, and whether each was measured for long enough.
        let mut rates: BTreeMap<WorkerId, (f64, bool)> = BTreeMap::new();
        for vector in self.vectors.values_mut() {
            let State::Filling(filling) = &mut vector.state else { continue };
            if others_wait {
                let (rate, is_due) = filling.rate(now_s);
                let of_worker = rates.entry(vector.worker).or_insert((0.0, true));
                *of_worker = (of_worker.0 + rate, of_worker.1 && is_due);
            } else {
                filling.window = None;
            }
        }
        let mean = rates.values().map(|(rate, _)| rate).sum::<f64>() / rates.len() as f64;
        let is_slow = |rate: f64| rate < LEAST_UPLOAD_BYTES_PER_S as f64 && rate < LEAST_UPLOAD_SHARE * mean;
        let slow = rates.into_iter().filter(|(_, (rate, is_due))| *is_due && is_slow(*rate));
        let slowest = slow.min_by(|(_, one), (_, other)| one.0.total_cmp(&other.0)).map(|(worker, _)| worker);
        let filling = self.vectors.iter().filter(|(_, vector)| matches!(vector.state, State::Filling(_)));
        filling.map(|(id, vector)| (vector.worker, *id)).filter(|(worker, _)| Some(*worker) == slowest).collect()
    }
}

/// Whether a vector waits to be read whole.
fn waits(vector: &Vector) -> bool {
    vector.is_own() && vector.announcement().is_some()
}
