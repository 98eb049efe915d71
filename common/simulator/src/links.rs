//! The links between workers and coordinator, and the vectors that travel on them.

use std::collections::VecDeque;

use ata_scheduler::{Exchange, Topology};
use ata_types::WorkerId;

/// Each worker and the coordinator have a link. In a star, the workers share the coordinator's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Links {
    /// Bytes that a worker's link carries in a unit of time, in each direction.
    pub worker_rate: f64,
    /// Bytes that the coordinator's link carries in a unit of time, in each direction.
    pub head_rate: f64,
    /// Bytes of a gradient.
    pub up_bytes: f64,
    /// Bytes of the parameters.
    pub down_bytes: f64,
    /// How the workers may exchange vectors.
    pub topology: Topology,
}

impl Links {
    /// The time that vectors take on these links, as the engine counts with it.
    pub fn exchange(&self) -> Exchange {
        Exchange {
            up_s: self.up_bytes / self.head_rate,
            down_s: self.down_bytes / self.head_rate,
            own_up_s: self.up_bytes / self.worker_rate,
            own_down_s: self.down_bytes / self.worker_rate,
            topology: self.topology,
        }
    }

    /// How long the parameters take to one worker, alone on the coordinator's link.
    pub(crate) fn download(&self) -> f64 {
        self.down_bytes / self.worker_rate.min(self.head_rate)
    }

    /// How long the parameters take to so many workers at once.
    pub(crate) fn downloads(&self, workers: usize) -> f64 {
        (workers as f64 * self.down_bytes / self.head_rate).max(self.down_bytes / self.worker_rate)
    }
}

/// A gradient that travels to the coordinator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Upload<K> {
    pub(crate) worker: WorkerId,
    pub(crate) key: K,
    /// When it set off; until then, it waits for those that its worker sends before it.
    pub(crate) began: f64,
    /// How many bytes every upload under way has received when this one ends, counted as [`Uploads::received`] is.
    ends_at: f64,
}

/// Uploads under way: all have the same size, and the same part of the coordinator's link, so that the first to begin is the
/// first to end. A worker sends one at a time.
#[derive(Debug)]
pub(crate) struct Uploads<K> {
    links: Links,
    /// Bytes that an upload would have received if it had been under way from the start.
    received: f64,
    /// When that was.
    at: f64,
    under_way: VecDeque<Upload<K>>,
    /// Those that their workers send next.
    waiting: VecDeque<(WorkerId, K)>,
}

impl<K: Copy + PartialEq> Uploads<K> {
    pub(crate) fn new(links: Links) -> Self {
        Self { links, received: 0.0, at: 0.0, under_way: VecDeque::new(), waiting: VecDeque::new() }
    }

    /// Bytes in a unit of time that each upload receives now.
    fn rate(&self) -> f64 {
        self.links.worker_rate.min(self.links.head_rate / self.under_way.len() as f64)
    }

    fn advance(&mut self, now: f64) {
        if !self.under_way.is_empty() {
            self.received += self.rate() * (now - self.at);
        }
        self.at = now;
    }

    /// A worker sends a gradient.
    pub(crate) fn begin(&mut self, now: f64, worker: WorkerId, key: K) {
        self.advance(now);
        self.waiting.push_back((worker, key));
        self.begin_next(worker);
    }

    fn begin_next(&mut self, worker: WorkerId) {
        if self.under_way.iter().any(|upload| upload.worker == worker) {
            return;
        }
        let next = self.waiting.iter().position(|(sender, _)| *sender == worker);
        if let Some((_, key)) = next.and_then(|next| self.waiting.remove(next)) {
            let ends_at = self.received + self.links.up_bytes;
            self.under_way.push_back(Upload { worker, key, began: self.at, ends_at });
        }
    }

    /// When the next upload ends.
    pub(crate) fn next_at(&self) -> Option<f64> {
        let first = self.under_way.front()?;
        Some(self.at + ((first.ends_at - self.received) / self.rate()).max(0.0))
    }

    /// The upload that ends next, which it now does.
    pub(crate) fn end(&mut self) -> Option<(f64, Upload<K>)> {
        let at = self.next_at()?;
        self.advance(at);
        let ended = self.under_way.pop_front()?;
        self.begin_next(ended.worker);
        Some((at, ended))
    }

    /// An upload is no longer needed; returns whether there was one.
    pub(crate) fn cancel(&mut self, now: f64, worker: WorkerId, key: K) -> bool {
        self.remove(now, worker, |other| *other == key)
    }

    /// A worker is gone.
    pub(crate) fn lose(&mut self, now: f64, worker: WorkerId) {
        self.remove(now, worker, |_| true);
    }

    fn remove(&mut self, now: f64, worker: WorkerId, is_removed: impl Fn(&K) -> bool) -> bool {
        self.advance(now);
        let before = self.under_way.len() + self.waiting.len();
        self.waiting.retain(|(sender, key)| *sender != worker || !is_removed(key));
        self.under_way.retain(|upload| upload.worker != worker || !is_removed(&upload.key));
        let is_found = self.under_way.len() + self.waiting.len() < before;
        self.begin_next(worker);
        is_found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKS: Links =
        Links { worker_rate: 10.0, head_rate: 20.0, up_bytes: 100.0, down_bytes: 50.0, topology: Topology::Star };

    fn worker(number: u32) -> WorkerId {
        WorkerId::new(number).unwrap()
    }

    fn ends(uploads: &mut Uploads<u32>) -> Vec<(f64, u32)> {
        std::iter::from_fn(|| uploads.end().map(|(at, upload)| (at, upload.key))).collect()
    }

    /// When uploads of different workers end that begin at these times.
    fn ends_of(begins: &[f64]) -> Vec<f64> {
        let mut uploads = Uploads::new(LINKS);
        let mut found = Vec::new();
        for (number, begins) in (1..).zip(begins) {
            while uploads.next_at().is_some_and(|at| at <= *begins) {
                found.extend(uploads.end().map(|(at, _)| at));
            }
            uploads.begin(*begins, worker(number), number);
        }
        found.extend(ends(&mut uploads).into_iter().map(|(at, _)| at));
        found
    }

    #[test]
    fn uploads_share_the_coordinators_link() {
        for (begins, expected) in [
            (&[0.0][..], &[10.0][..]),
            (&[0.0, 0.0], &[10.0, 10.0]),
            (&[0.0, 0.0, 0.0, 0.0], &[20.0, 20.0, 20.0, 20.0]),
            (&[0.0, 10.0, 20.0], &[10.0, 20.0, 30.0]),
            // At 4, the first two have 60 left, which take 9 at 20/3; the third then has 40 left.
            (&[0.0, 0.0, 4.0], &[13.0, 13.0, 17.0]),
        ] {
            let found = ends_of(begins);
            let is_close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
            assert!(found.len() == expected.len() && found.iter().zip(expected).all(is_close), "{begins:?}: {found:?}");
        }
    }

    #[test]
    fn a_worker_sends_one_gradient_at_a_time() {
        let mut uploads = Uploads::new(LINKS);
        uploads.begin(0.0, worker(1), 1);
        uploads.begin(0.0, worker(1), 2);
        assert_eq!(ends(&mut uploads), [(10.0, 1), (20.0, 2)]);
    }

    #[test]
    fn what_a_lost_worker_sends_vanishes() {
        let mut uploads = Uploads::new(LINKS);
        (1..=4).for_each(|number| uploads.begin(0.0, worker(number), number));
        uploads.begin(0.0, worker(1), 5);
        uploads.lose(10.0, worker(1));
        assert!(uploads.cancel(10.0, worker(2), 2) && !uploads.cancel(10.0, worker(2), 2));
        assert_eq!(ends(&mut uploads), [(15.0, 3), (15.0, 4)], "half was received at 5 a second");
    }

    #[test]
    fn the_engine_counts_with_the_slowest_part() {
        let own = Exchange { own_up_s: 10.0, own_down_s: 5.0, ..Exchange::default() };
        assert_eq!(LINKS.exchange(), Exchange { up_s: 5.0, down_s: 2.5, ..own });
        assert_eq!((LINKS.download(), LINKS.downloads(1), LINKS.downloads(4)), (5.0, 5.0, 10.0));
    }
}
