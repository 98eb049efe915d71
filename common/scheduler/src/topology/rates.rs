//! The rates of links, learned from observations.

use super::probing::{Probing, is_slow};
use super::throughput::Throughput;
use super::times::{LinkTimes, OwnTimes, Topology};
use ata_types::WorkerId;

/// The tolerance when rates are compared. Below this share of a single vector's rate, or above this share of the sum of their single rates,
/// vectors that arrive together are limited by their senders' links and not the coordinator's: for a rate to fall below this, half of the
/// vectors would have to wait for a link. A link with at least this share of the usual rate is like the others.
const WIDE: f64 = 0.75;

/// The number of bytes that can show that a link has changed, or a quarter of a vector if that is less: fewer pass an idle link in one
/// burst.
const MEASURABLE_BYTES: f64 = 262_144.0;

/// The multiple of its predicted time from which an exchange in shards is suspicious: it is limited by a link that is not known to be slow.
const SUSPICIOUS: f64 = 3.0;

/// The least excess over the predicted time of a suspicious exchange, in seconds: less is due to busy processors.
const SUSPICIOUS_S: f64 = 0.05;

/// The most steps in a star in a row after suspicious exchanges.
const MOST_STARS: u64 = 64;

/// The other traffic while bytes of a gradient arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing else arrived.
    Alone,
    /// Other gradients arrived, so the coordinator's link may have been full.
    Among,
    /// The gradient has waited for slower ones. The seconds include those waits.
    HeldBack,
}

/// An observation of the links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Observed {
    /// Bytes of a worker's gradients arrived, of complete vectors or not. The seconds are those in which only the sender delayed
    /// them.
    Gradient {
        /// The worker.
        worker: WorkerId,
        /// The number of bytes.
        bytes: f64,
        /// The number of seconds.
        seconds: f64,
        /// The other traffic.
        seen: Seen,
    },
    /// A worker has sent bytes that no step waited for, because of [`crate::Effect::ProbeLink`].
    Probed {
        /// The worker.
        worker: WorkerId,
        /// The number of bytes.
        bytes: f64,
        /// The seconds that they took.
        seconds: f64,
    },
    /// Several gradients arrived at the same time.
    Together {
        /// The number of bytes of all of them.
        bytes: f64,
        /// Seconds in which at least two gradients arrived.
        seconds: f64,
        /// The integral over those seconds of the number of gradients that arrived.
        vector_seconds: f64,
    },
    /// The gradients of a step were exchanged in shards.
    Shards {
        /// Seconds from the end of the last member's computation until all sums had arrived.
        seconds: f64,
        /// The seconds that [`LinkTimes::shards_s`] predicted.
        predicted_s: f64,
    },
    /// A step was taken, to which the earlier observations belong.
    Step {
        /// The size of a gradient, in bytes.
        up_bytes: f64,
        /// The size of the parameters, in bytes.
        down_bytes: f64,
        /// The ways in which workers may exchange vectors.
        topology: Topology,
        /// The share of a vector that one chunk is.
        chunk: f64,
    },
}

/// Links whose rates are known from the start, as in a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSetting {
    /// The time that vectors take on the links.
    pub times: LinkTimes,
    /// The size of a gradient, in bytes.
    pub up_bytes: f64,
    /// The size of the parameters, in bytes.
    pub down_bytes: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct OwnLink {
    /// The throughput of gradients that only the worker's own link delayed.
    alone: Throughput,
    /// The throughput of gradients that shared the coordinator's link: their rate is a lower bound on that of the worker's own link.
    among: Throughput,
    /// Seconds that the parameters take, if known from the start. Otherwise the link is assumed to have the same rate in both
    /// directions.
    down_s: Option<f64>,
    /// The observations since the last step, by [`Seen`].
    fresh: [Throughput; 3],
    /// The number of steps of the run up to the last one in which the link was observed.
    steps: u64,
}

/// The rates of the links of a run, learned from observations.
#[derive(Clone, Debug, Default)]
pub struct LinkRates {
    up_bytes: f64,
    down_bytes: f64,
    /// The links of the workers, by slot.
    workers: Vec<OwnLink>,
    /// The workers that were observed since the last step.
    fresh: Vec<WorkerId>,
    together: Throughput,
    /// The number of those gradients, in place of bytes.
    vectors: Throughput,
    /// Both values since the last step.
    fresh_together: (Throughput, Throughput),
    /// Seconds that a gradient and the parameters take on the coordinator's link, if known from the start.
    head: Option<(f64, f64)>,
    steps: u64,
    /// The number of further steps that are stars because exchanges in shards were suspicious, and the number after the next
    /// suspicious one.
    stars: u64,
    next_stars: u64,
    probing: Probing,
    times: LinkTimes,
}

impl LinkRates {
    /// Creates the links of a run whose rates are all known, until observations contradict them.
    pub fn known(setting: LinkSetting) -> Self {
        let LinkSetting { times, up_bytes, down_bytes } = setting;
        let link = |own: &Option<OwnTimes>| {
            let OwnTimes { up_s, down_s } = own.unwrap_or(times.others);
            OwnLink { alone: Throughput { bytes: up_bytes, seconds: up_s }, down_s: Some(down_s), ..OwnLink::default() }
        };
        let workers = times.own.iter().map(link).collect();
        Self { up_bytes, down_bytes, workers, head: Some((times.up_s, times.down_s)), times, ..Self::default() }
    }

    /// Returns the time that vectors take, as far as it is known.
    pub fn times(&self) -> &LinkTimes {
        &self.times
    }

    /// Returns whether steps are currently stars because exchanges in shards took too long.
    pub fn are_shards_suspended(&self) -> bool {
        self.stars > 0
    }

    /// Returns the least rate at which a worker's gradients arrive, in bytes per second, if they were observed.
    pub fn up_per_s(&self, worker: WorkerId) -> Option<f64> {
        let link = self.workers.get(worker.slot())?;
        link.alone.per_s().into_iter().chain(link.among.per_s()).reduce(f64::max)
    }

    /// Records an observation.
    pub fn observe(&mut self, observed: Observed) {
        match observed {
            Observed::Gradient { worker, bytes, seconds, seen } => {
                let link = self.link(worker);
                let is_first = link.fresh == [Throughput::default(); 3];
                link.fresh[seen as usize].add(Throughput { bytes, seconds });
                if is_first {
                    self.fresh.push(worker);
                }
            }
            Observed::Probed { worker, bytes, seconds } => self.probed(worker, Throughput { bytes, seconds }),
            Observed::Together { bytes, seconds, vector_seconds } => {
                self.fresh_together.0.add(Throughput { bytes, seconds });
                self.fresh_together.1.add(Throughput { bytes: vector_seconds, seconds });
            }
            Observed::Shards { seconds, predicted_s } => self.exchanged(seconds, predicted_s),
            Observed::Step { up_bytes, down_bytes, topology, chunk } => {
                (self.up_bytes, self.down_bytes, self.times.chunk) = (up_bytes, down_bytes, chunk);
                self.stepped(topology);
            }
        }
    }

    /// Forgets a worker whose number is given to another one.
    pub fn forget(&mut self, worker: WorkerId) {
        if let Some(link) = self.workers.get_mut(worker.slot()) {
            *link = OwnLink::default();
            self.times.own[worker.slot()] = None;
            self.probing.forget(worker);
        }
    }

    /// Returns which of these workers, in ascending order, to probe now, and with how many bytes: one whose link was slow, and was not
    /// observed for some time. There is at most one in a few steps.
    pub fn next_probe(&mut self, present: &[WorkerId]) -> Option<(WorkerId, u64)> {
        let times = &self.times;
        let is_candidate =
            |worker: WorkerId| present.binary_search(&worker).is_ok() && is_slow(times.own(worker), times.others);
        let worker = self.probing.next(self.steps, is_candidate)?;
        Some((worker, Probing::bytes(self.up_bytes)))
    }

    fn link(&mut self, worker: WorkerId) -> &mut OwnLink {
        let slots = self.workers.len().max(worker.slot() + 1);
        self.workers.resize(slots, OwnLink::default());
        self.times.own.resize(slots, None);
        &mut self.workers[worker.slot()]
    }

    /// Handles the result of a probe. It may pass an idle link in one burst, so it shows at most that the link is as fast as others; whether it
    /// is, the next vector shows. Vectors may have filled the coordinator's link, so it is a lower bound.
    fn probed(&mut self, worker: WorkerId, mut throughput: Throughput) {
        if throughput.per_s().is_none() {
            return;
        }
        throughput.seconds = throughput.seconds.max(throughput.bytes / self.up_bytes * self.times.others.up_s);
        throughput.scale((self.measured_bytes() / throughput.bytes).max(1.0));
        let known = self.workers.get(worker.slot()).and_then(|link| self.alone_per_s(link));
        let link = self.link(worker);
        if known.is_none() {
            link.among.renew(throughput, 0.0);
        } else if throughput.per_s() > known {
            link.alone = throughput;
        }
        self.refresh();
    }

    /// Handles the time of an exchange in shards. As long as it is unknown which link is slow, steps are stars, in which each link
    /// is measured. Their number grows each time, since the cause may be none of these links.
    fn exchanged(&mut self, seconds: f64, predicted_s: f64) {
        if seconds > SUSPICIOUS * predicted_s && seconds > predicted_s + SUSPICIOUS_S {
            self.next_stars = (2 * self.next_stars).clamp(1, MOST_STARS);
            self.stars = self.next_stars + 1;
        } else {
            self.next_stars = 0;
        }
    }

    fn stepped(&mut self, topology: Topology) {
        self.steps += 1;
        let kept = self.together.fade(1, self.measured_bytes());
        self.vectors.scale(kept);
        let (together, vectors) = std::mem::take(&mut self.fresh_together);
        let fresh = std::mem::take(&mut self.fresh);
        let is_shared = together.per_s().is_none_or(|per_s| self.may_be_heads(per_s, &fresh));
        if is_shared {
            self.together.add(together);
            self.vectors.add(vectors);
        }
        let (steps, least_bytes, measured) = (self.steps, self.least_bytes(), self.measured_bytes());
        for worker in &fresh {
            let link = &mut self.workers[worker.slot()];
            let passed = steps - std::mem::replace(&mut link.steps, steps);
            let [mut alone, mut among, held_back] = std::mem::take(&mut link.fresh);
            link.alone.fade(passed, measured);
            link.among.fade(passed, measured);
            if !is_shared {
                alone.add(std::mem::take(&mut among));
            }
            among.add(held_back);
            if alone.bytes >= least_bytes {
                // The earlier lower bound says nothing about the present rate.
                link.among = Throughput::default();
            }
            link.alone.renew(alone, least_bytes);
            link.among.renew(among, least_bytes);
        }
        self.stars = self.stars.saturating_sub(1);
        self.times.topology = if self.stars > 0 { Topology::Star } else { topology };
        self.refresh();
        for worker in fresh {
            self.probing.observed(worker, self.steps, is_slow(self.times.own(worker), self.times.others));
        }
    }

    /// Returns whether the coordinator's link may be the limit for workers whose gradients arrived at this rate together. It
    /// carries at least as much as one of them alone did before; if all together were slower than that, their own links were the
    /// limit.
    fn may_be_heads(&self, together_per_s: f64, workers: &[WorkerId]) -> bool {
        let is_reached = |alone: f64| together_per_s >= WIDE * alone;
        let known: Vec<f64> =
            workers.iter().filter_map(|worker| self.alone_per_s(&self.workers[worker.slot()])).collect();
        if known.is_empty() {
            return self.workers.iter().filter_map(|link| self.alone_per_s(link)).all(is_reached);
        }
        known.into_iter().any(is_reached)
    }

    /// Returns the rate of a worker's gradients that only its own link delayed, if it was measured: for a quarter of a vector or,
    /// on a slow link, for as long as a whole vector takes on the fastest one. Less would be the burst that passes an idle link, or
    /// the first round trips of a connection.
    fn alone_per_s(&self, link: &OwnLink) -> Option<f64> {
        let whole_s = self.times.others.up_s;
        let is_long = whole_s > 0.0 && link.alone.seconds >= whole_s && link.alone.bytes >= self.least_bytes();
        // The kept part of a rate may be rounded.
        link.alone.per_s().filter(|_| is_long || link.alone.bytes >= 0.999 * self.measured_bytes())
    }

    /// Returns the number of bytes after which a rate counts, which is also the weight that it keeps while nothing is measured.
    fn measured_bytes(&self) -> f64 {
        self.up_bytes / 4.0
    }

    fn least_bytes(&self) -> f64 {
        MEASURABLE_BYTES.min(self.measured_bytes())
    }

    fn refresh(&mut self) {
        let mut all_alone: Vec<f64> = self.workers.iter().filter_map(|link| self.alone_per_s(link)).collect();
        let middle = all_alone.len() / 2;
        let usual = (!all_alone.is_empty()).then(|| *all_alone.select_nth_unstable_by(middle, f64::total_cmp).1);
        // Until a vector has arrived alone, the workers' links are taken to be like the coordinator's.
        let likely = usual.or_else(|| self.together.per_s());
        let own: Vec<Option<OwnTimes>> = self.workers.iter().map(|link| self.own(link, likely)).collect();
        let known = || own.iter().flatten();
        let least = |of: fn(&OwnTimes) -> f64| known().map(of).reduce(f64::min).unwrap_or(0.0);
        self.times.others = OwnTimes { up_s: least(|own| own.up_s), down_s: least(|own| own.down_s) };
        self.times.own = own;
        (self.times.up_s, self.times.down_s) = self.head.unwrap_or_else(|| {
            let per_s = self.head_per_s(usual);
            (per_s.map_or(0.0, |per_s| self.up_bytes / per_s), per_s.map_or(0.0, |per_s| self.down_bytes / per_s))
        });
    }

    /// Returns the times on a worker's own link; `likely` is the usual rate.
    fn own(&self, link: &OwnLink, likely: Option<f64>) -> Option<OwnTimes> {
        let (alone, likely) = (self.alone_per_s(link), likely.unwrap_or(0.0));
        let least = alone.into_iter().chain(link.among.per_s()).reduce(f64::max)?;
        // The links of most clusters are alike: a small difference is noise, and among others the coordinator's link was full.
        let is_like_others = alone.is_none_or(|alone| alone >= WIDE * likely);
        let up_per_s = if is_like_others { least.max(likely) } else { least };
        let down_s = link.down_s.unwrap_or(self.down_bytes / up_per_s);
        Some(OwnTimes { up_s: self.up_bytes / up_per_s, down_s })
    }

    /// Returns the rate of the coordinator's link, if it is less than the sum of the rates of all that send at the same time.
    fn head_per_s(&self, usual: Option<f64>) -> Option<f64> {
        let (together, vectors) = (self.together.per_s()?, self.vectors.per_s()?);
        match usual {
            // Without vectors that arrived alone, it may be the limit: fewer workers are tried until it is known.
            None => Some(together),
            Some(usual) => (together < WIDE * vectors * usual).then_some(together.max(usual)),
        }
    }
}

#[cfg(test)]
mod tests;
