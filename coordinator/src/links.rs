//! Measures how fast vectors arrive, one at a time and several together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ata_scheduler::Exchange;

/// What remains of earlier measurements after each step: a rate is that of the last five steps or so, so that it follows a link that
/// others use, and bears a stall.
const KEPT: f64 = 0.8;

/// Vectors that arrive together this much faster than one at a time are limited by their senders' links, and not by the
/// coordinator's. Half of the vectors would have to wait for a link to come in below this.
const WIDE: f64 = 0.75;

/// The time that vectors take on the links.
#[derive(Debug, Default)]
pub(crate) struct MeasuredLinks {
    /// As measured last.
    pub(crate) now: Option<Exchange>,
    /// As recorded last.
    pub(crate) recorded: Option<Exchange>,
}

/// Measures the vectors that arrive. Clones measure together.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkMeter(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Vectors that arrive, and those of them that wait for others: they are not read, and what was sent of them ahead still fills
    /// the link.
    open: usize,
    waiting: usize,
    /// Bytes that have arrived since…
    arrived: u64,
    /// …that many began to, or ended.
    since: Instant,
    /// Bytes of whole vectors, and how many these were.
    vectors: (u64, u64),
    alone: Throughput,
    together: Throughput,
}

/// Bytes that arrived in some time.
#[derive(Clone, Copy, Debug, Default)]
struct Throughput {
    bytes: f64,
    seconds: f64,
    /// Seconds, each as often as vectors arrived in it.
    vector_seconds: f64,
}

impl Throughput {
    fn per_s(&self) -> Option<f64> {
        (self.bytes > 0.0 && self.seconds > 0.0).then(|| self.bytes / self.seconds)
    }

    fn fade(&mut self) {
        for sum in [&mut self.bytes, &mut self.seconds, &mut self.vector_seconds] {
            *sum *= KEPT;
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            open: 0,
            waiting: 0,
            arrived: 0,
            since: Instant::now(),
            vectors: (0, 0),
            alone: Throughput::default(),
            together: Throughput::default(),
        }
    }
}

impl State {
    /// Enters what has arrived by now. Time in which all wait does not count.
    fn enter(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.since).as_secs_f64();
        let throughput = if self.open > 1 { &mut self.together } else { &mut self.alone };
        if self.open > self.waiting {
            throughput.bytes += self.arrived as f64;
            throughput.seconds += seconds;
            throughput.vector_seconds += self.open as f64 * seconds;
        }
        (self.arrived, self.since) = (0, now);
    }

    /// The time that vectors take, with parameters of `down_bytes`.
    fn exchange(&self, down_bytes: u64) -> Option<Exchange> {
        let (bytes, vectors) = self.vectors;
        if vectors == 0 {
            return None;
        }
        let (up_bytes, down_bytes) = (bytes as f64 / vectors as f64, down_bytes as f64);
        let alone = self.alone.per_s();
        let together = self.together.per_s().map(|per_s| (per_s, self.together.vector_seconds / self.together.seconds));
        // Without vectors that arrived alone, the coordinator's link may be the limit: fewer workers are tried, until it is known.
        let own = alone.or(together.map(|(per_s, _)| per_s))?;
        let head = together.filter(|(per_s, vectors)| *per_s < WIDE * vectors * own).map(|(per_s, _)| per_s.max(own));
        let on_head = |bytes: f64| head.map_or(0.0, |per_s| bytes / per_s);
        Some(Exchange {
            up_s: on_head(up_bytes),
            down_s: on_head(down_bytes),
            own_up_s: up_bytes / own,
            own_down_s: down_bytes / own,
            ..Exchange::default()
        })
    }
}

impl LinkMeter {
    /// A vector begins to arrive.
    pub(crate) fn begin(&self) -> Transfer {
        let mut state = self.state();
        state.enter(Instant::now());
        state.open += 1;
        Transfer { meter: self.clone(), bytes: 0, is_waiting: false }
    }

    /// The time that vectors take on the links, with parameters of `down_bytes`, as measured in the last steps.
    pub(crate) fn stepped(&self, down_bytes: u64) -> Option<Exchange> {
        let mut state = self.state();
        state.enter(Instant::now());
        let exchange = state.exchange(down_bytes);
        state.alone.fade();
        state.together.fade();
        exchange
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A vector that arrives.
pub(crate) struct Transfer {
    meter: LinkMeter,
    bytes: u64,
    is_waiting: bool,
}

impl Transfer {
    /// Bytes have arrived.
    pub(crate) fn receive(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.meter.state().arrived += bytes as u64;
    }

    /// Whether it waits for others from now on.
    pub(crate) fn wait(&mut self, is_waiting: bool) {
        if self.is_waiting != is_waiting {
            self.is_waiting = is_waiting;
            let mut state = self.meter.state();
            state.enter(Instant::now());
            state.waiting = if is_waiting { state.waiting + 1 } else { state.waiting - 1 };
        }
    }

    /// It has arrived whole.
    pub(crate) fn finish(self) {
        let mut state = self.meter.state();
        let (bytes, vectors) = &mut state.vectors;
        // The last ones count most.
        if *vectors >= 16 {
            (*bytes, *vectors) = (*bytes / 2, *vectors / 2);
        }
        (*bytes, *vectors) = (*bytes + self.bytes, *vectors + 1);
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.wait(false);
        let mut state = self.meter.state();
        state.enter(Instant::now());
        state.open -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// What is measured of vectors of 10 bytes: in each second, so many were open, so many of them waited, and so many bytes arrived.
    fn measured(seconds: &[(usize, usize, u64)]) -> Exchange {
        let (mut state, began) = (State::default(), Instant::now());
        state.since = began;
        for (at, &(open, waiting, arrived)) in (1..).zip(seconds) {
            (state.open, state.waiting, state.arrived) = (open, waiting, arrived);
            state.enter(began + Duration::from_secs(at));
        }
        state.vectors = (30, 3);
        state.exchange(5).unwrap()
    }

    #[test]
    fn the_narrower_link_is_found() {
        let shared = Exchange { up_s: 0.1, down_s: 0.05, own_up_s: 0.1, own_down_s: 0.05, ..Exchange::default() };
        assert_eq!(measured(&[(1, 0, 100), (3, 0, 100)]), shared, "all share the coordinator's");
        let own = Exchange { up_s: 0.0, down_s: 0.0, ..shared };
        assert_eq!(measured(&[(1, 0, 100), (3, 0, 300)]), own, "each has its own");
        assert_eq!(measured(&[(1, 0, 100), (3, 0, 200)]).up_s, 0.05, "two fill it");
    }

    /// Senders are held back until others have come as far, and what they sent ahead fills the link meanwhile.
    #[test]
    fn who_waits_is_not_alone() {
        let shared = Exchange { up_s: 0.1, down_s: 0.05, own_up_s: 0.1, own_down_s: 0.05, ..Exchange::default() };
        assert_eq!(measured(&[(1, 1, 0), (3, 2, 100), (3, 3, 0), (3, 0, 100)]), shared);
        assert_eq!(measured(&[(1, 0, 100), (2, 1, 100)]), shared);
    }

    #[test]
    fn nothing_is_known_before_a_vector_has_arrived() {
        let meter = LinkMeter::default();
        assert_eq!(meter.stepped(5), None);
        let mut transfer = meter.begin();
        transfer.receive(10);
        std::thread::sleep(Duration::from_millis(2));
        transfer.finish();
        let own_s = meter.stepped(5).expect("a vector arrived").own_up_s;
        assert!((0.001..1.0).contains(&own_s), "{own_s}");
    }
}
