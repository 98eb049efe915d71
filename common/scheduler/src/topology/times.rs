//! The time that vectors take on the links: the part of an iteration that more workers make longer.

use ata_types::{MAX_SHARDS, WorkerId};

/// The most that shards may take, relative to a star: a star recovers more simply when a worker is lost. In simulations of 2,160 clusters,
/// a value of 1 makes a difference of less than a thousandth on average, but more clusters take over 1 % longer than in a star.
const SHARDS_TO_STAR: f64 = 0.9;

/// The ways in which workers may exchange vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// All vectors go through the coordinator's link.
    #[default]
    Star,
    /// Each of the n workers of a step may sum a stripe, which is 1/n of the values, for all others, if that takes less time
    /// ([`LinkTimes::is_sharded`]).
    Shards,
}

/// The time that vectors take on a worker's own link, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OwnTimes {
    /// Seconds that a gradient takes.
    pub up_s: f64,
    /// Seconds that parameters take.
    pub down_s: f64,
}

impl OwnTimes {
    /// Returns the longer of both times.
    pub fn longest_s(&self) -> f64 {
        self.up_s.max(self.down_s)
    }

    fn max(self, other: Self) -> Self {
        Self { up_s: self.up_s.max(other.up_s), down_s: self.down_s.max(other.down_s) }
    }
}

/// The time that gradients and parameters take on the links, in seconds. The default is a network that takes no time.
/// docs/explanation/links.md says what travels in a star and with shards, and derives the formulas.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkTimes {
    /// Seconds that a gradient takes on the coordinator's link, on the way to the coordinator.
    pub up_s: f64,
    /// Seconds that parameters take on the coordinator's link, on the way from the coordinator.
    pub down_s: f64,
    /// The times on the own link of each worker whose link was measured, by slot.
    pub own: Vec<Option<OwnTimes>>,
    /// The expected times of the other workers: the shortest known ones, because a worker must be tried to be measured.
    pub others: OwnTimes,
    /// The ways in which the workers may exchange vectors.
    pub topology: Topology,
    /// The share of a vector that one chunk is: nothing is done with less. 0 if that makes no difference.
    pub chunk: f64,
}

impl LinkTimes {
    /// Returns the times on a worker's own link.
    pub fn own(&self, worker: WorkerId) -> OwnTimes {
        self.own.get(worker.slot()).copied().flatten().unwrap_or(self.others)
    }

    /// Returns the times on the own links of some workers.
    pub fn of(&self, workers: impl IntoIterator<Item = WorkerId>) -> Vec<OwnTimes> {
        workers.into_iter().map(|worker| self.own(worker)).collect()
    }

    /// Returns the seconds from the end of a worker's last task to the end of the step, for each contributing worker, the fastest first, in
    /// a star or in shards as [`is_sharded`](Self::is_sharded) determines.
    pub fn windows_s(&self, members: &[OwnTimes]) -> Vec<f64> {
        if self.is_sharded(members) {
            return vec![self.shards_s(members); members.len()];
        }
        (1..).zip(members).map(|(rank, own)| self.star_s(rank, members.len(), own.longest_s())).collect()
    }

    /// Returns whether these workers exchange their vectors in shards: it must be possible, and take at least a tenth less than a star on
    /// average over their ranks.
    pub fn is_sharded(&self, members: &[OwnTimes]) -> bool {
        let workers = members.len();
        if self.topology != Topology::Shards || !(2..=MAX_SHARDS).contains(&workers) {
            return false;
        }
        let of_both_ends_s = |own: &OwnTimes| {
            let own_s = own.longest_s();
            f64::midpoint(self.star_s(1, workers, own_s), self.star_s(workers, workers, own_s))
        };
        let star_s = members.iter().map(of_both_ends_s).sum::<f64>() / workers as f64;
        self.shards_s(members) < SHARDS_TO_STAR * star_s
    }

    /// Returns the seconds by which the window of these workers grows if they began an exchange in shards and one of them leaves it: the
    /// others then fall back to a star.
    pub fn fallback_s(&self, members: &[OwnTimes]) -> f64 {
        if !self.is_sharded(members) {
            return 0.0;
        }
        let workers = members.len();
        self.star_s(workers, workers, slowest(members).longest_s()) - self.shards_s(members)
    }

    /// Returns the seconds that the parameters take to a worker while this many workers receive them.
    pub fn sets_s(&self, worker: WorkerId, workers: usize) -> f64 {
        (workers as f64 * self.down_s).max(self.own(worker).down_s)
    }

    /// Returns whether vectors take no time.
    pub fn is_free(&self) -> bool {
        let own = self.own.iter().flatten().chain([&self.others]);
        [self.up_s, self.down_s] == [0.0; 2] && own.copied().all(|own| own == OwnTimes::default())
    }

    /// Returns max(j·u, n·d, o): the slower workers send first, one after the other, and the fastest computes the longest.
    fn star_s(&self, rank: usize, workers: usize, own_s: f64) -> f64 {
        (rank as f64 * self.up_s).max(workers as f64 * self.down_s).max(own_s)
    }

    /// Returns w(n) of docs/explanation/links.md, the seconds from the end of the last computation to the end of the step, on the slowest
    /// of their links.
    pub fn shards_s(&self, members: &[OwnTimes]) -> f64 {
        let OwnTimes { up_s, down_s } = slowest(members);
        let workers = members.len() as f64;
        let others = (workers - 1.0) / workers;
        let between_s = (up_s + others * down_s).max(others * up_s + down_s);
        let last = (workers * self.chunk).min(1.0);
        let (last_up_s, last_down_s) = (last * self.up_s, last * self.down_s);
        (between_s + last_up_s + last_down_s).max(self.up_s + last_down_s).max(last_up_s + self.down_s)
    }
}

fn slowest(members: &[OwnTimes]) -> OwnTimes {
    members.iter().copied().fold(OwnTimes::default(), OwnTimes::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_part_of_the_way_counts() {
        let links = LinkTimes { up_s: 2.0, down_s: 1.0, ..LinkTimes::default() };
        for own in [OwnTimes { up_s: 3.0, down_s: 1.5 }, OwnTimes { up_s: 1.5, down_s: 3.0 }] {
            assert_eq!(links.windows_s(&[own]), [3.0]);
            assert_eq!(links.windows_s(&[own; 4]), [4.0, 4.0, 6.0, 8.0]);
        }
    }

    /// A slow uplink makes only its own worker's window longer; in shards, it makes all windows longer.
    #[test]
    fn a_slow_link_is_its_workers_alone_in_a_star() {
        let fast = OwnTimes { up_s: 1.0, down_s: 0.5 };
        let members = [fast, fast, OwnTimes { up_s: 20.0, down_s: 0.5 }];
        let star = LinkTimes { up_s: 1.0, down_s: 0.5, ..LinkTimes::default() };
        assert_eq!(star.windows_s(&members), [1.5, 2.0, 20.0]);
        let may_share = LinkTimes { topology: Topology::Shards, ..star };
        assert!(may_share.is_sharded(&members[..2]) && !may_share.is_sharded(&members));
        assert!((may_share.shards_s(&members) - (20.0 + 0.5 * 2.0 / 3.0)).abs() < 1e-12);
    }

    /// Returns links of equal rates for the workers and the coordinator.
    fn equal(up_s: f64, down_s: f64) -> (LinkTimes, OwnTimes) {
        (LinkTimes { up_s, down_s, topology: Topology::Shards, ..LinkTimes::default() }, OwnTimes { up_s, down_s })
    }

    #[test]
    fn shards_spread_the_load_of_the_coordinators_link() {
        let (links, own) = equal(1.0, 1.0);
        for ((links, own), workers, expected) in [
            (equal(1.0, 1.0), 2, 1.5),
            (equal(1.0, 1.0), 4, 1.75),
            (equal(1.0, 1.0), 8, 1.875),
            (equal(1.0, 1.0), 16, 1.9375),
            (equal(1.0, 0.5), 4, 1.375),
            (equal(0.5, 1.0), 4, 1.375),
            // The coordinator's link is narrower than a worker's.
            ((LinkTimes { up_s: 5.0, ..links.clone() }, own), 4, 5.0),
            ((LinkTimes { down_s: 6.0, ..links.clone() }, own), 4, 6.0),
        ] {
            let members = vec![own; workers];
            assert!(links.is_sharded(&members), "{links:?}, {workers}");
            // The window is the same for every rank.
            assert_eq!(links.windows_s(&members), vec![expected; workers], "{links:?}, {workers}");
            let star = LinkTimes { topology: Topology::Star, ..links };
            assert!(!star.is_sharded(&members) && star.windows_s(&members)[workers - 1] > expected);
        }
    }

    /// With four chunks, two workers' last ones are half of a vector: it passes the coordinator's link up, then down.
    #[test]
    fn the_last_chunks_pass_the_coordinators_link_when_all_else_is_sent() {
        let (links, own) = equal(1.0, 0.5);
        for ((up_s, down_s), chunk, workers, expected) in [
            ((1.0, 0.5), 0.25, 2, 1.25 + 0.75),
            ((1.0, 0.5), 0.25, 4, 1.375 + 1.5),
            ((1.0, 0.5), 0.25, 8, 1.4375 + 1.5),
            ((0.25, 0.125), 0.125, 4, 1.375 + 0.1875),
            // The coordinator's link is narrower than a worker's.
            ((5.0, 2.0), 0.125, 4, 5.0 + 1.0),
            ((2.0, 6.0), 0.125, 4, 6.0 + 1.0),
        ] {
            let links = LinkTimes { up_s, down_s, chunk, ..links.clone() };
            assert_eq!(links.shards_s(&vec![own; workers]), expected, "{links:?}, {workers}");
        }
    }

    #[test]
    fn a_step_that_falls_back_takes_as_long_as_a_star() {
        let (links, own) = equal(1.0, 0.5);
        assert_eq!(links.fallback_s(&[own; 4]), 4.0 - 1.375);
        assert_eq!([1, MAX_SHARDS + 1].map(|workers| links.fallback_s(&vec![own; workers])), [0.0; 2], "it is one");
        assert_eq!(LinkTimes { topology: Topology::Star, ..links }.fallback_s(&[own; 4]), 0.0);
    }

    #[test]
    fn a_star_is_used_unless_shards_are_shorter_by_a_tenth() {
        let (even, own) = equal(1.0, 1.0);
        let head = |up_s, down_s| LinkTimes { up_s, down_s, ..even.clone() };
        let half = OwnTimes { up_s: 1.0, down_s: 0.5 };
        for (links, own, workers) in [
            (even.clone(), own, vec![(0, false), (1, false), (2, true), (MAX_SHARDS, true), (MAX_SHARDS + 1, false)]),
            // The times are 1.9375 against 1.6, 1.95 against 2.0, and 1.9545 against 2.2.
            (head(0.1, 0.1), own, vec![(16, false), (20, false), (22, true)]),
            // The times are 1.475 against 1.0 for the fastest and 2.0 for the slowest, and 1.479 against 1.2 and 2.4.
            (head(0.1, 0.05), half, vec![(20, false), (24, true)]),
            (head(0.0, 0.0), own, vec![(8, false)]),
            (head(0.0, 0.0), OwnTimes::default(), vec![(8, false)]),
        ] {
            for (workers, is_sharded) in workers {
                assert_eq!(links.is_sharded(&vec![own; workers]), is_sharded, "{links:?}, {workers}");
            }
        }
        assert_eq!(head(0.1, 0.1).windows_s(&[own; 20])[0], 2.0, "a star's");
    }
}
