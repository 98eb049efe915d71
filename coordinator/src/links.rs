//! Measures the vectors that arrive: how many bytes each worker sends, in what time, and how many others send meanwhile. `recorded` selects
//! the times that are written to the journal.

mod recorded;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ata_scheduler::{Observed, Seen};
use ata_types::WorkerId;

pub(crate) use recorded::RecordedLinks;

/// The size of the burst with which a vector begins. The burst passes an idle link at once, and says nothing about the link's rate. It ends
/// after this many bytes, a quarter of the vector, or [`BURST_TIME`], whichever comes first.
const BURST_BYTES: f64 = 524_288.0;
const BURST_TIME: Duration = Duration::from_millis(50);

/// The resolution of the clock in seconds. A difference below it is a rounding error.
const CLOCK_S: f64 = 1e-9;

/// Measures the vectors that arrive. Clones share their measurements.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkMeter(Arc<Mutex<MeterState>>);

#[derive(Debug, Default)]
struct MeterState {
    /// The vectors that are arriving. `waiting` counts the ones that wait for others: they are not read, while data that was already sent
    /// still fills the link.
    open: HashMap<u64, Open>,
    waiting: usize,
    /// The number of vectors so far, from which their names are drawn.
    named: u64,
    /// The time since which `open` and `waiting` are unchanged.
    since: Option<Instant>,
    /// The total time in seconds during which exactly one vector was open, and was read, and no shards arrived.
    alone_s: f64,
    senders: BTreeMap<WorkerId, Sender>,
    together: Together,
    vectors: (u64, u64),
    /// The step's exchange in shards: the number of its vectors that are arriving, when the first began, and when the last ended.
    shards: Option<(usize, Instant, Instant)>,
}

/// A vector that is arriving.
#[derive(Clone, Copy, Debug)]
struct Open {
    worker: WorkerId,
    is_waiting: bool,
    /// Whether it has waited: from then on, it is read from a buffer that may have been filled before.
    is_held_back: bool,
    /// The time up to which it is accounted for, and the value of [`MeterState::alone_s`] then.
    since: (Instant, f64),
    /// The same of the time at which the last piece of it had arrived, before it waited.
    received: (Instant, f64),
    /// The time at which the vector began, and the bytes that have arrived, while it is in its burst.
    burst: Option<(Instant, f64)>,
}

/// The data that a worker sent since the last step.
#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    /// The bytes and seconds until the vector first waited, while it was the only one (`alone`), or was read with others open (`among`).
    alone: (f64, f64),
    among: (f64, f64),
    /// The bytes and seconds from then on, in which the link may have been idle.
    held_back: (f64, f64),
}

impl Sender {
    fn observed(self, worker: WorkerId) -> impl Iterator<Item = Observed> {
        let seen = [(Seen::Alone, self.alone), (Seen::Among, self.among), (Seen::HeldBack, self.held_back)];
        seen.into_iter()
            .filter(|(seen, (bytes, seconds))| *seconds > CLOCK_S && (*bytes > 0.0 || *seen != Seen::HeldBack))
            .map(move |(seen, (bytes, seconds))| Observed::Gradient { worker, bytes, seconds, seen })
    }
}

/// The transfers while more than one vector was open. Time during which all of them wait does not count.
#[derive(Clone, Copy, Debug, Default)]
struct Together {
    bytes: f64,
    seconds: f64,
    /// The sum of the open times of all vectors, in seconds.
    vector_seconds: f64,
}

impl MeterState {
    /// Accounts for the time that has passed. Must be called before a vector begins, ends, or waits.
    fn pass(&mut self, now: Instant) {
        let since = self.since.replace(now).unwrap_or(now);
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        let open = self.open.len();
        if self.is_exchanging() {
            return;
        }
        if open > 1 && open > self.waiting {
            self.together.seconds += seconds;
            self.together.vector_seconds += open as f64 * seconds;
        } else if open == 1 && self.waiting == 0 {
            self.alone_s += seconds;
        }
    }

    /// Returns whether shards arrive. They share the coordinator's link, but their rate is that of the exchange.
    fn is_exchanging(&self) -> bool {
        self.shards.is_some_and(|(open, ..)| open > 0)
    }

    /// Accounts for the time of a vector since the last call.
    fn settle(&mut self, now: Instant, name: u64) {
        let total_alone_s = self.alone_s;
        let Some(open) = self.open.get_mut(&name) else { return };
        if open.burst.is_some_and(|(began, _)| now.saturating_duration_since(began) < BURST_TIME) {
            open.since = (now, total_alone_s);
            return;
        }
        open.burst = None;
        open.is_held_back |= open.is_waiting;
        let (since, alone_before_s) = std::mem::replace(&mut open.since, (now, total_alone_s));
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        let sender = self.senders.entry(open.worker).or_default();
        if open.is_held_back {
            sender.held_back.1 += seconds;
        } else {
            let alone_s = total_alone_s - alone_before_s;
            sender.alone.1 += alone_s;
            sender.among.1 += (seconds - alone_s).max(0.0);
        }
    }

    fn begin(&mut self, now: Instant, worker: WorkerId) -> u64 {
        self.pass(now);
        self.named += 1;
        let (since, burst) = ((now, self.alone_s), Some((now, 0.0)));
        let open = Open { worker, is_waiting: false, is_held_back: false, since, received: since, burst };
        self.open.insert(self.named, open);
        self.named
    }

    fn receive(&mut self, now: Instant, name: u64, bytes: f64) {
        self.pass(now);
        let is_exchanging = self.is_exchanging();
        let (is_alone, alone_s) = (self.open.len() == 1 && !is_exchanging, self.alone_s);
        let Some(Open { worker, is_held_back, received, burst, .. }) = self.open.get_mut(&name) else { return };
        // A piece may have travelled while other vectors came and went.
        let (since, alone_before_s) = *received;
        if !*is_held_back {
            *received = (now, alone_s);
        }
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        let alone = if seconds > 0.0 { ((alone_s - alone_before_s) / seconds).min(1.0) } else { f64::from(is_alone) };
        if !is_exchanging {
            self.together.bytes += (1.0 - alone) * bytes;
        }
        if let Some((began, arrived)) = burst {
            *arrived += bytes;
            let quarter = mean(self.vectors) / 4.0;
            if *arrived >= BURST_BYTES.min(quarter) || now.saturating_duration_since(*began) >= BURST_TIME {
                self.end_burst(now, name);
            }
            return;
        }
        let sender = self.senders.entry(*worker).or_default();
        if *is_held_back {
            sender.held_back.0 += bytes;
        } else {
            sender.alone.0 += alone * bytes;
            sender.among.0 += (1.0 - alone) * bytes;
        }
    }

    /// Ends a vector's burst, so that the rest of the vector counts.
    fn end_burst(&mut self, now: Instant, name: u64) {
        self.pass(now);
        if let Some(open) = self.open.get_mut(&name)
            && open.burst.take().is_some()
        {
            open.since = (now, self.alone_s);
        }
    }

    fn wait(&mut self, now: Instant, name: u64, is_waiting: bool) {
        self.pass(now);
        self.settle(now, name);
        if let Some(open) = self.open.get_mut(&name)
            && open.is_waiting != is_waiting
        {
            // A wait within the burst is a part of it.
            open.is_held_back |= open.burst.is_none();
            open.is_waiting = is_waiting;
            self.waiting = if is_waiting { self.waiting + 1 } else { self.waiting - 1 };
        }
    }

    fn end(&mut self, now: Instant, name: u64) {
        self.wait(now, name, false);
        self.open.remove(&name);
    }

    fn finished(&mut self, bytes: u64) {
        let (all_bytes, vectors) = &mut self.vectors;
        // Halving gives recent vectors more weight.
        if *vectors >= 16 {
            (*all_bytes, *vectors) = (*all_bytes / 2, *vectors / 2);
        }
        (*all_bytes, *vectors) = (*all_bytes + bytes, *vectors + 1);
    }

    /// Returns the measurements since the last step, including vectors that are still arriving.
    fn stepped(&mut self, now: Instant, predicted_s: Option<f64>) -> Option<(Vec<Observed>, f64)> {
        self.pass(now);
        for name in self.open.keys().copied().collect::<Vec<_>>() {
            self.settle(now, name);
        }
        let shards = self.shards.take().filter(|(open, ..)| *open == 0);
        let exchange = shards.zip(predicted_s).map(|((_, began, ended), predicted_s)| Observed::Shards {
            seconds: ended.saturating_duration_since(began).as_secs_f64(),
            predicted_s,
        });
        if self.vectors.1 == 0 {
            return None;
        }
        let mut observed: Vec<Observed> = exchange.into_iter().collect();
        let senders = std::mem::take(&mut self.senders);
        observed.extend(senders.into_iter().flat_map(|(worker, sender)| sender.observed(worker)));
        let Together { bytes: together, seconds, vector_seconds } = std::mem::take(&mut self.together);
        if seconds > 0.0 {
            observed.push(Observed::Together { bytes: together, seconds, vector_seconds });
        }
        Some((observed, mean(self.vectors)))
    }
}

/// Returns the mean size of the vectors in bytes, or NaN if there are none.
fn mean((bytes, vectors): (u64, u64)) -> f64 {
    bytes as f64 / vectors as f64
}

impl LinkMeter {
    /// Starts to measure a worker's vector. Shards have waited for other links, so only the time of their whole exchange counts.
    pub(crate) fn begin(&self, worker: WorkerId, is_whole: bool) -> Transfer {
        let now = Instant::now();
        let mut state = self.state();
        let name = is_whole.then(|| state.begin(now, worker));
        if !is_whole {
            state.pass(now);
            state.shards.get_or_insert((0, now, now)).0 += 1;
        }
        drop(state);
        Transfer { meter: self.clone(), name, bytes: 0 }
    }

    /// Returns the measurements since the last step and the mean size of the last vectors in bytes, once one has arrived. `predicted_s` is
    /// the predicted time of the step's exchange in shards, if there was one.
    pub(crate) fn stepped(&self, predicted_s: Option<f64>) -> Option<(Vec<Observed>, f64)> {
        self.state().stepped(Instant::now(), predicted_s)
    }

    fn state(&self) -> MutexGuard<'_, MeterState> {
        // No code panics while it holds the lock, so the lock is never poisoned.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Transfer {
    meter: LinkMeter,
    /// The vector's name in the meter; `None` if the vector comes in shards.
    name: Option<u64>,
    bytes: u64,
}

impl Transfer {
    pub(crate) fn receive(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if let Some(name) = self.name {
            self.meter.state().receive(Instant::now(), name, bytes as f64);
        }
    }

    /// Records whether the vector waits for others from now on.
    pub(crate) fn wait(&mut self, is_waiting: bool) {
        if let Some(name) = self.name {
            self.meter.state().wait(Instant::now(), name, is_waiting);
        }
    }

    pub(crate) fn finish(self) {
        if self.name.is_some() {
            self.meter.state().finished(self.bytes);
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut state = self.meter.state();
        if let Some(name) = self.name {
            return state.end(now, name);
        }
        state.pass(now);
        if let Some((open, _, ended)) = &mut state.shards {
            (*open, *ended) = (open.saturating_sub(1), now);
        }
    }
}

#[cfg(test)]
mod tests;
