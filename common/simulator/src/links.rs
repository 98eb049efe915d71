//! The links between workers and coordinator, and the vectors that travel on them.

use ata_scheduler::{LinkSetting, LinkTimes, Observed, OwnTimes, Seen, Topology};
use ata_types::{CollectionId, WorkerId};

/// Bytes that a machine's link carries in a unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// What the machine sends.
    pub up: f64,
    /// What the machine receives.
    pub down: f64,
}

impl Bandwidth {
    /// Returns that of a link that carries as much in each direction.
    pub const fn both(rate: f64) -> Self {
        Self { up: rate, down: rate }
    }

    /// Returns that of a link that is so many times as fast.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { up: self.up * factor, down: self.down * factor }
    }
}

/// The links of a cluster: one for each worker, and one for the coordinator. In a star, the workers share the coordinator's link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Links {
    /// What a worker's link carries.
    pub worker: Bandwidth,
    /// What the coordinator's link carries.
    pub head: Bandwidth,
    /// The time that a message takes from a worker to the coordinator, or back, however short it is.
    pub latency: f64,
    /// The size of a gradient, in bytes.
    pub up_bytes: f64,
    /// The size of the parameters, in bytes.
    pub down_bytes: f64,
    /// The ways in which the workers may exchange vectors.
    pub topology: Topology,
    /// Whether a step waits until vectors have arrived whole, as after local steps. Otherwise parameters follow the last one chunk by chunk.
    pub whole: bool,
    /// The share of a vector that one chunk is, for the end of an exchange in shards. 0 if that makes no difference.
    pub chunk: f64,
}

/// The current links, where those of workers may differ, and the running uploads. Workers with fast links evenly share what the others
/// leave of the coordinator's link. A worker sends one upload at a time.
#[derive(Debug)]
pub(crate) struct CurrentLinks {
    pub(crate) links: Links,
    /// What each worker's own link carries, by slot.
    own: Vec<Bandwidth>,
    /// The time of the state of the uploads.
    at: f64,
    under_way: Vec<LinkUpload>,
    /// The uploads that their workers send next.
    waiting: Vec<LinkUpload>,
}

impl CurrentLinks {
    pub(crate) fn new(links: Links, workers: usize) -> Self {
        let own = vec![links.worker; workers];
        Self { links, own, at: 0.0, under_way: Vec::new(), waiting: Vec::new() }
    }

    fn of(&self, worker: WorkerId) -> Bandwidth {
        self.own[worker.slot()]
    }

    /// Returns the links that the engine assumes.
    pub(crate) fn setting(&self) -> LinkSetting {
        let Links { head, up_bytes, down_bytes, topology, chunk, .. } = self.links;
        let own = |own: Bandwidth| OwnTimes { up_s: up_bytes / own.up, down_s: down_bytes / own.down };
        let fastest = |of: fn(&Bandwidth) -> f64| self.own.iter().map(of).fold(f64::MIN_POSITIVE, f64::max);
        let times = LinkTimes {
            up_s: up_bytes / head.down,
            down_s: down_bytes / head.up,
            own: self.own.iter().map(|each| Some(own(*each))).collect(),
            others: own(Bandwidth { up: fastest(|own| own.up), down: fastest(|own| own.down) }),
            topology,
            chunk,
        };
        LinkSetting { times, up_bytes, down_bytes }
    }

    /// Returns how long the parameters take to one worker, alone on the coordinator's link.
    pub(crate) fn download(&self, worker: WorkerId) -> f64 {
        self.links.down_bytes / self.of(worker).down.min(self.links.head.up)
    }

    /// Returns how long the parameters take to these workers at once, on their own links and as `sets` sets on the coordinator's.
    pub(crate) fn downloads(&self, sets: usize, workers: impl Iterator<Item = WorkerId>) -> f64 {
        let slowest = workers.map(|worker| self.of(worker).down).fold(f64::INFINITY, f64::min);
        (sets as f64 * self.links.down_bytes / self.links.head.up).max(self.links.down_bytes / slowest)
    }

    /// Advances the time, during which no upload begins or ends.
    fn advance(&mut self, now: f64) {
        let passed = now - self.at;
        for upload in &mut self.under_way {
            let bytes = upload.rate * passed;
            upload.left -= bytes;
            let seen =
                if upload.rate < self.own[upload.worker.slot()].up { &mut upload.at_less } else { &mut upload.at_own };
            (seen.0, seen.1) = (seen.0 + bytes, seen.1 + passed);
        }
        self.at = now;
    }

    /// Shares the coordinator's link (max-min fairness): each upload gets the same part, unless its worker's link carries less.
    fn share(&mut self) {
        let mut order: Vec<usize> = (0..self.under_way.len()).collect();
        let own = |at: usize| self.of(self.under_way[at].worker).up;
        order.sort_by(|a, b| own(*a).total_cmp(&own(*b)));
        let mut left = self.links.head.down;
        for (done, &at) in order.iter().enumerate() {
            let upload = &mut self.under_way[at];
            upload.rate = self.own[upload.worker.slot()].up.min(left / (order.len() - done) as f64);
            left -= upload.rate;
        }
    }

    pub(crate) fn begin(&mut self, now: f64, worker: WorkerId, parcel: Parcel, bytes: f64) {
        self.advance(now);
        let (at_own, at_less) = ((0.0, 0.0), (0.0, 0.0));
        self.waiting.push(LinkUpload { worker, parcel, began: now, bytes, left: bytes, rate: 0.0, at_own, at_less });
        self.begin_next(worker);
        self.share();
    }

    fn begin_next(&mut self, worker: WorkerId) {
        if self.under_way.iter().any(|upload| upload.worker == worker) {
            return;
        }
        if let Some(next) = self.waiting.iter().position(|upload| upload.worker == worker) {
            let next = self.waiting.remove(next);
            self.under_way.push(LinkUpload { began: self.at, ..next });
        }
    }

    /// Makes a worker's uploads take this many times as long from now on.
    pub(crate) fn change(&mut self, now: f64, worker: WorkerId, factor: f64) {
        self.advance(now);
        let own = &mut self.own[worker.slot()];
        *own = own.times(1.0 / factor);
        self.share();
    }

    /// Returns the time at which the next upload ends, and its index.
    fn next(&self) -> Option<(f64, usize)> {
        let ends = self.under_way.iter().map(|upload| self.at + (upload.left / upload.rate).max(0.0));
        ends.zip(0..).min_by(|(a, _), (b, _)| a.total_cmp(b))
    }

    pub(crate) fn next_at(&self) -> Option<f64> {
        self.next().map(|(at, _)| at)
    }

    pub(crate) fn end(&mut self) -> Option<(f64, LinkUpload)> {
        let (at, next) = self.next()?;
        self.advance(at);
        let ended = self.under_way.remove(next);
        self.begin_next(ended.worker);
        self.share();
        Some((at, ended))
    }

    /// Returns what was observed about running uploads since the last call, except for probes.
    pub(crate) fn observe(&mut self, now: f64) -> Vec<Observed> {
        self.advance(now);
        self.under_way
            .iter_mut()
            .filter(|upload| upload.parcel != Parcel::Probe)
            .flat_map(LinkUpload::observe)
            .collect()
    }

    /// Cancels the upload of a parcel, or all uploads of a worker.
    pub(crate) fn cancel(&mut self, now: f64, worker: WorkerId, parcel: Option<Parcel>) {
        self.advance(now);
        let is_kept =
            |upload: &LinkUpload| upload.worker != worker || parcel.is_some_and(|parcel| upload.parcel != parcel);
        self.waiting.retain(is_kept);
        self.under_way.retain(is_kept);
        self.begin_next(worker);
        self.share();
    }

    /// Returns whether a worker sends this, or will send it.
    pub(crate) fn has(&self, worker: WorkerId, parcel: Parcel) -> bool {
        self.under_way.iter().chain(&self.waiting).any(|upload| upload.worker == worker && upload.parcel == parcel)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Parcel {
    Collection(CollectionId),
    /// Bytes that measure the link.
    Probe,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LinkUpload {
    pub(crate) worker: WorkerId,
    pub(crate) parcel: Parcel,
    /// The time at which it started; until then, it waits for earlier uploads of its worker.
    pub(crate) began: f64,
    pub(crate) bytes: f64,
    left: f64,
    /// The present rate, in bytes per unit of time.
    rate: f64,
    /// The bytes and the time since the last observation, at the rate of its worker's link and at less than that.
    at_own: (f64, f64),
    at_less: (f64, f64),
}

impl LinkUpload {
    pub(crate) fn observe(&mut self) -> impl Iterator<Item = Observed> + use<> {
        let worker = self.worker;
        let seen = [(std::mem::take(&mut self.at_own), Seen::Alone), (std::mem::take(&mut self.at_less), Seen::Among)];
        let observed = seen.into_iter().filter(|((bytes, _), _)| *bytes > 0.0);
        observed.map(move |((bytes, seconds), seen)| Observed::Gradient { worker, bytes, seconds, seen })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(number: u32) -> WorkerId {
        WorkerId::new(number).unwrap()
    }

    fn parcel(number: u64) -> Parcel {
        Parcel::Collection(CollectionId(number))
    }

    /// Two links of rate 10 and one of rate 2 share one of 20: the fast ones get 9 each.
    #[test]
    fn a_slow_link_leaves_its_part_to_others() {
        let bytes = Links {
            worker: Bandwidth::both(10.0),
            head: Bandwidth { up: 1.0, down: 20.0 },
            latency: 0.0,
            up_bytes: 100.0,
            down_bytes: 50.0,
            topology: Topology::Star,
            whole: false,
            chunk: 0.0,
        };
        let mut links = CurrentLinks::new(bytes, 3);
        links.own[2].up = 2.0;
        (1..=3).for_each(|number| links.begin(0.0, worker(number), parcel(number.into()), 90.0));
        let observed = links.observe(5.0);
        let gradient = |number, bytes, seen| Observed::Gradient { worker: worker(number), bytes, seconds: 5.0, seen };
        let expected = [gradient(1, 45.0, Seen::Among), gradient(2, 45.0, Seen::Among), gradient(3, 10.0, Seen::Alone)];
        assert_eq!(observed, expected);
        assert_eq!(links.end().map(|(at, upload)| (at, upload.parcel)), Some((10.0, parcel(1))));
        assert_eq!(links.end().map(|(at, upload)| (at, upload.parcel)), Some((10.0, parcel(2))));
        links.change(20.0, worker(3), 0.2);
        assert!(links.has(worker(3), parcel(3)) && !links.has(worker(3), parcel(2)));
        let (at, mut last) = links.end().unwrap();
        assert_eq!(at, 25.0);
        let rest = Observed::Gradient { worker: worker(3), bytes: 80.0, seconds: 20.0, seen: Seen::Alone };
        assert_eq!(last.observe().collect::<Vec<_>>(), [rest]);
    }
}
