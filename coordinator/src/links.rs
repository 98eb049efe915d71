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

/// Measures the vectors that arrive. Clones measure together.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkMeter(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Vectors that arrive.
    active: usize,
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
            active: 0,
            arrived: 0,
            since: Instant::now(),
            vectors: (0, 0),
            alone: Throughput::default(),
            together: Throughput::default(),
        }
    }
}

impl State {
    /// Enters what has arrived by now, and changes how many vectors arrive.
    fn change(&mut self, now: Instant, active: usize) {
        let seconds = now.saturating_duration_since(self.since).as_secs_f64();
        let throughput = if self.active > 1 { &mut self.together } else { &mut self.alone };
        if self.active > 0 {
            throughput.bytes += self.arrived as f64;
            throughput.seconds += seconds;
            throughput.vector_seconds += self.active as f64 * seconds;
        }
        (self.arrived, self.since, self.active) = (0, now, active);
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
        // Without vectors that arrived alone, each had its share.
        let own = alone.or(together.map(|(per_s, vectors)| per_s / vectors))?;
        let head = together.filter(|(per_s, vectors)| *per_s < WIDE * vectors * own).map(|(per_s, _)| per_s.max(own));
        let on_head = |bytes: f64| head.map_or(0.0, |per_s| bytes / per_s);
        Some(Exchange { up_s: on_head(up_bytes), down_s: on_head(down_bytes), own_s: up_bytes.max(down_bytes) / own })
    }
}

impl LinkMeter {
    /// A vector begins to arrive.
    pub(crate) fn begin(&self) -> Transfer {
        let transfer = Transfer { meter: self.clone(), bytes: 0, is_counted: false };
        transfer.counted(true)
    }

    /// The time that vectors take on the links, with parameters of `down_bytes`, as measured in the last steps.
    pub(crate) fn stepped(&self, down_bytes: u64) -> Option<Exchange> {
        let mut state = self.state();
        let active = state.active;
        state.change(Instant::now(), active);
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
    is_counted: bool,
}

impl Transfer {
    /// Bytes have arrived.
    pub(crate) fn receive(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.meter.state().arrived += bytes as u64;
    }

    /// Whether it arrives from now on, or waits for others.
    pub(crate) fn counted(mut self, is_counted: bool) -> Self {
        self.count(is_counted);
        self
    }

    /// The same in place.
    pub(crate) fn count(&mut self, is_counted: bool) {
        if self.is_counted != is_counted {
            self.is_counted = is_counted;
            let mut state = self.meter.state();
            let active = if is_counted { state.active + 1 } else { state.active - 1 };
            state.change(Instant::now(), active);
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
        self.count(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// What is measured of vectors of 10 bytes that arrive at these rates, alone for a second, and three together for another one.
    fn measured(alone: u64, together: u64) -> Exchange {
        let (mut state, began) = (State::default(), Instant::now());
        state.change(began, 1);
        for (at, (arrived, active)) in [(1, (alone, 3)), (2, (together, 0))] {
            state.arrived = arrived;
            state.change(began + Duration::from_secs(at), active);
        }
        state.vectors = (30, 3);
        state.exchange(5).unwrap()
    }

    #[test]
    fn the_narrower_link_is_found() {
        assert_eq!(measured(100, 100), Exchange { up_s: 0.1, down_s: 0.05, own_s: 0.1 }, "all share the coordinator's");
        assert_eq!(measured(100, 300), Exchange { up_s: 0.0, down_s: 0.0, own_s: 0.1 }, "each has its own");
        assert_eq!(measured(100, 200).up_s, 0.05, "two fill it");
    }

    #[test]
    fn nothing_is_known_before_a_vector_has_arrived() {
        let meter = LinkMeter::default();
        assert_eq!(meter.stepped(5), None);
        let mut transfer = meter.begin();
        transfer.receive(10);
        std::thread::sleep(Duration::from_millis(2));
        transfer.finish();
        let own_s = meter.stepped(5).expect("a vector arrived").own_s;
        assert!((0.001..1.0).contains(&own_s), "{own_s}");
    }
}
