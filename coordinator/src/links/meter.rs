//! Measures the vectors that arrive: how many bytes of whom, in which time, and what else arrived meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ata_scheduler::{Observed, Seen};
use ata_types::WorkerId;

/// A vector begins with a burst, which passes an idle link at once and tells nothing of its rate: this many bytes, a quarter of the vector,
/// or this time, whichever ends first.
const BURST_BYTES: f64 = 524_288.0;
const BURST_TIME: Duration = Duration::from_millis(50);

/// What was observed since the last step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Metered {
    /// Of the links.
    pub(crate) observed: Vec<Observed>,
    /// Mean bytes of the last vectors.
    pub(crate) up_bytes: f64,
}

/// Measures the vectors that arrive. Clones measure together.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkMeter(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Vectors that arrive, and those of them that wait for others: they are not read, and what was sent of them ahead still fills
    /// the link.
    open: HashMap<u64, Open>,
    waiting: usize,
    /// Names of vectors so far.
    named: u64,
    /// Since when this many are open and waiting.
    since: Instant,
    /// Seconds so far in which one vector was open, and was read.
    alone_s: f64,
    /// What each worker sent since the last step.
    senders: BTreeMap<WorkerId, Sender>,
    together: Together,
    /// Bytes of whole vectors, and how many these were.
    vectors: (u64, u64),
    /// The step's exchange in shards: vectors of it that arrive, when the first began, and when the last ended.
    shards: Option<(usize, Instant, Instant)>,
}

/// A vector that arrives.
#[derive(Clone, Copy, Debug)]
struct Open {
    worker: WorkerId,
    is_waiting: bool,
    since: Instant,
    /// [`State::alone_s`] then.
    alone_s: f64,
    /// When it began, and how much has arrived, while that is its burst.
    burst: Option<(Instant, f64)>,
}

/// What a worker sent since the last step.
#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    /// Bytes and seconds in which it was alone, and in which it was read while others were open.
    alone: (f64, f64),
    among: (f64, f64),
    /// Seconds in which it waited for others.
    waited_s: f64,
}

impl Sender {
    /// What it sent, and in which time. If it waited most of the time, what had been sent ahead was then read from a buffer, so that
    /// its link has had all of the time.
    fn seen(self) -> Vec<(Seen, (f64, f64))> {
        let Self { alone, among, waited_s } = self;
        let (bytes, read_s) = (alone.0 + among.0, alone.1 + among.1);
        match waited_s > read_s {
            true if bytes > 0.0 => vec![(Seen::HeldBack, (bytes, read_s + waited_s))],
            true => Vec::new(),
            false => vec![(Seen::Alone, alone), (Seen::Among, among)],
        }
    }
}

/// While more than one was open. Time in which all wait does not count.
#[derive(Clone, Copy, Debug, Default)]
struct Together {
    bytes: f64,
    seconds: f64,
    /// Seconds, each as often as vectors were open in it.
    vector_seconds: f64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            open: HashMap::new(),
            waiting: 0,
            named: 0,
            since: Instant::now(),
            alone_s: 0.0,
            senders: BTreeMap::new(),
            together: Together::default(),
            vectors: (0, 0),
            shards: None,
        }
    }
}

impl State {
    /// Enters the time that has passed. To be called before vectors begin, end, or wait.
    fn pass(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.since).as_secs_f64();
        self.since = now;
        let open = self.open.len();
        if open > 1 && open > self.waiting {
            self.together.seconds += seconds;
            self.together.vector_seconds += open as f64 * seconds;
        } else if open == 1 && self.waiting == 0 {
            self.alone_s += seconds;
        }
    }

    /// Enters the time of a vector since this was last called.
    fn settle(&mut self, now: Instant, name: u64) {
        let total_alone_s = self.alone_s;
        let Some(open) = self.open.get_mut(&name) else { return };
        if open.burst.is_some_and(|(began, _)| now.saturating_duration_since(began) < BURST_TIME) {
            (open.since, open.alone_s) = (now, total_alone_s);
            return;
        }
        open.burst = None;
        let seconds = now.saturating_duration_since(open.since).as_secs_f64();
        let sender = self.senders.entry(open.worker).or_default();
        if open.is_waiting {
            sender.waited_s += seconds;
        } else {
            let alone_s = total_alone_s - open.alone_s;
            sender.alone.1 += alone_s;
            sender.among.1 += (seconds - alone_s).max(0.0);
        }
        (open.since, open.alone_s) = (now, total_alone_s);
    }

    fn begin(&mut self, now: Instant, worker: WorkerId) -> u64 {
        self.pass(now);
        self.named += 1;
        let open = Open { worker, is_waiting: false, since: now, alone_s: self.alone_s, burst: Some((now, 0.0)) };
        self.open.insert(self.named, open);
        self.named
    }

    fn receive(&mut self, now: Instant, name: u64, bytes: f64) {
        let is_among = self.open.len() > 1;
        if is_among {
            self.together.bytes += bytes;
        }
        let Some(Open { worker, burst, .. }) = self.open.get_mut(&name) else { return };
        if let Some((began, arrived)) = burst {
            *arrived += bytes;
            let quarter = mean(self.vectors) / 4.0;
            if *arrived >= BURST_BYTES.min(quarter) || now.saturating_duration_since(*began) >= BURST_TIME {
                self.end_burst(now, name);
            }
            return;
        }
        let sender = self.senders.entry(*worker).or_default();
        let sent = if is_among { &mut sender.among.0 } else { &mut sender.alone.0 };
        *sent += bytes;
    }

    /// What comes of a vector from now on counts.
    fn end_burst(&mut self, now: Instant, name: u64) {
        self.pass(now);
        if let Some(open) = self.open.get_mut(&name)
            && open.burst.take().is_some()
        {
            (open.since, open.alone_s) = (now, self.alone_s);
        }
    }

    fn wait(&mut self, now: Instant, name: u64, is_waiting: bool) {
        self.pass(now);
        self.settle(now, name);
        if let Some(open) = self.open.get_mut(&name)
            && open.is_waiting != is_waiting
        {
            open.burst = None;
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
        // The last ones count most.
        if *vectors >= 16 {
            (*all_bytes, *vectors) = (*all_bytes / 2, *vectors / 2);
        }
        (*all_bytes, *vectors) = (*all_bytes + bytes, *vectors + 1);
    }

    /// What was observed, vectors that still arrive included.
    fn stepped(&mut self, now: Instant, predicted_s: Option<f64>) -> Option<Metered> {
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
        for (worker, sender) in std::mem::take(&mut self.senders) {
            let seen = sender.seen().into_iter().filter(|(_, (_, seconds))| *seconds > 0.0);
            observed.extend(seen.map(|(seen, (bytes, seconds))| Observed::Gradient { worker, bytes, seconds, seen }));
        }
        let Together { bytes: together, seconds, vector_seconds } = std::mem::take(&mut self.together);
        if seconds > 0.0 {
            observed.push(Observed::Together { bytes: together, seconds, vector_seconds });
        }
        Some(Metered { observed, up_bytes: mean(self.vectors) })
    }
}

/// Mean bytes of vectors; NaN if there are none.
fn mean((bytes, vectors): (u64, u64)) -> f64 {
    bytes as f64 / vectors as f64
}

impl LinkMeter {
    /// Measures what a worker sends.
    pub(crate) fn of(&self, worker: WorkerId) -> WorkerMeter {
        WorkerMeter { meter: self.clone(), worker }
    }

    /// What was observed since the last step, in which an exchange in shards was predicted to take `predicted_s`. Nothing, before the
    /// first vector has arrived.
    pub(crate) fn stepped(&self, predicted_s: Option<f64>) -> Option<Metered> {
        self.state().stepped(Instant::now(), predicted_s)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Measures what a worker sends.
#[derive(Clone, Debug)]
pub(crate) struct WorkerMeter {
    meter: LinkMeter,
    worker: WorkerId,
}

impl WorkerMeter {
    /// A vector begins to arrive, whole or in shards. What comes in shards has waited for other links, so that only the time of all of it
    /// together counts.
    pub(crate) fn begin(self, is_whole: bool) -> Transfer {
        let now = Instant::now();
        let mut state = self.meter.state();
        let name = is_whole.then(|| state.begin(now, self.worker));
        if !is_whole {
            state.shards.get_or_insert((0, now, now)).0 += 1;
        }
        drop(state);
        Transfer { meter: self.meter, name, bytes: 0, is_waiting: false }
    }
}

/// A vector that arrives.
pub(crate) struct Transfer {
    meter: LinkMeter,
    /// `None` if it comes in shards.
    name: Option<u64>,
    bytes: u64,
    is_waiting: bool,
}

impl Transfer {
    /// Bytes have arrived.
    pub(crate) fn receive(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if let Some(name) = self.name {
            self.meter.state().receive(Instant::now(), name, bytes as f64);
        }
    }

    /// Whether it waits for others from now on.
    pub(crate) fn wait(&mut self, is_waiting: bool) {
        if let Some(name) = self.name
            && self.is_waiting != is_waiting
        {
            self.is_waiting = is_waiting;
            self.meter.state().wait(Instant::now(), name, is_waiting);
        }
    }

    /// It has arrived whole.
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
        match self.name {
            Some(name) => state.end(now, name),
            None => {
                if let Some((open, _, ended)) = &mut state.shards {
                    *open = open.saturating_sub(1);
                    *ended = now;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
