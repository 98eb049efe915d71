//! Room for vectors that are used whole.
//!
//! Such a vector is assembled before it is used, so the number of these vectors at a time is limited. The others wait, which takes no more
//! memory than a flow-control window. The next place goes to the worker that occupies the fewest and, in a tie, to the one that waits
//! longest. A worker that sends too slowly while others wait gives way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ata_sums::Units;
use ata_types::{VectorId, WorkerId};
use ata_wire::GradientHeader;
use ata_wire::limits::{LEAST_UPLOAD_BYTES_PER_S, LEAST_UPLOAD_SHARE, UPLOAD_GUARD_WINDOW};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Reduction;
use super::vector::{Vector, VectorState};

/// The bytes and chunks of a vector that have arrived.
#[derive(Debug, Default)]
struct Received {
    bytes: AtomicU64,
    chunks: AtomicU64,
}

/// The service's side of a vector that is being assembled.
#[derive(Debug)]
pub(crate) struct Whole {
    received: Arc<Received>,
    /// Cancelled when the vector is no longer needed.
    pub(crate) ended: CancellationToken,
    _place: OwnedSemaphorePermit,
}

impl Whole {
    pub(crate) fn receive(&self, bytes: usize) {
        self.received.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn receive_chunk(&self) {
        self.received.chunks.fetch_add(1, Ordering::Relaxed);
    }
}

/// The driver's side of a vector that is being assembled. Dropping it ends the call that sends the vector.
#[derive(Debug)]
pub(super) struct Filling {
    pub(super) header: GradientHeader,
    pub(super) units: Units,
    received: Arc<Received>,
    /// The time in seconds since which the rate is measured, and the bytes that had arrived then; `None` while no vector waits for room.
    window: Option<(f64, u64)>,
    _ends: DropGuard,
}

impl Filling {
    pub(super) fn chunks(&self) -> u64 {
        self.received.chunks.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.received.bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes per second since the start of the measurement, and whether the measurement is long enough.
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

/// The places for vectors that are being assembled.
#[derive(Debug)]
pub(super) struct Room {
    places: Arc<Semaphore>,
    /// The maximum number of places of one worker. It is half of all places, so that one worker never makes all others wait.
    share: usize,
}

impl Room {
    pub(super) fn new(places: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(places)), share: (places / 2).max(1) }
    }

    /// Returns a place for a vector with this header, if one is free.
    pub(super) fn fill(&self, header: GradientHeader, units: Units) -> Option<(Filling, Whole)> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let (received, ended) = (Arc::new(Received::default()), CancellationToken::new());
        let whole = Whole { received: received.clone(), ended: ended.clone(), _place: place };
        Some((Filling { header, units, received, window: None, _ends: ended.drop_guard() }, whole))
    }
}

impl Reduction {
    /// Returns the waiting vector that gets the next place, if a place is free.
    pub(super) fn next_whole(&self) -> Option<VectorId> {
        if self.room.places.available_permits() == 0 {
            return None;
        }
        let waiting = self.vectors.iter().filter(|(_, vector)| waits(vector) && self.is_computed(vector));
        let (filled, id) = waiting.map(|(id, vector)| (self.filled_by(vector.worker), *id)).min()?;
        (filled < self.room.share).then_some(id)
    }

    /// Returns the number of a worker's vectors that have a place.
    fn filled_by(&self, worker: WorkerId) -> usize {
        let of_worker = self.vectors.values().filter(|vector| vector.worker == worker);
        of_worker.filter(|vector| matches!(vector.state, VectorState::Filling(_))).count()
    }

    /// Returns the vectors of the slowest worker that has a place while others wait, if it is too slow.
    pub(crate) fn give_way(&mut self, now_s: f64) -> Vec<(WorkerId, VectorId)> {
        let others_wait = self.room.places.available_permits() == 0 && self.vectors.values().any(waits);
        // For each worker, the total rate of its vectors, and whether each was measured for long enough.
        let mut rates: BTreeMap<WorkerId, (f64, bool)> = BTreeMap::new();
        for vector in self.vectors.values_mut() {
            let VectorState::Filling(filling) = &mut vector.state else { continue };
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
        let filling = self.vectors.iter().filter(|(_, vector)| matches!(vector.state, VectorState::Filling(_)));
        filling.map(|(id, vector)| (vector.worker, *id)).filter(|(worker, _)| Some(*worker) == slowest).collect()
    }
}

/// Returns whether a vector that is used whole waits for a place.
fn waits(vector: &Vector) -> bool {
    vector.is_own() && vector.announcement().is_some()
}
