//! Decides when a link that is not in use is measured again.

use std::collections::BTreeMap;

use super::times::OwnTimes;
use ata_types::WorkerId;

/// The multiple of the fastest link's time from which a link is slow: its worker may have been excluded because of it.
const SLOW: f64 = 1.5;

/// The most steps between two probes of a link: a link that recovers is used again this many steps later.
const LONGEST_WAIT: u64 = 64;

/// The number of steps between the probes of any two links. A probe has at most about as many bytes as a vector, so all probes together
/// are about a quarter of a worker's load on the coordinator's link.
const GAP: u64 = 4;

/// The range for the bytes of a probe, for small and for large vectors. More bytes would reveal nothing more, and fewer would pass an
/// idle link in one burst.
const BYTES: std::ops::RangeInclusive<u64> = 16_384..=262_144;

/// The slow links, which are probed more and more rarely while they remain slow: after 1, 2, 4, … steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Probing {
    links: BTreeMap<WorkerId, Slow>,
    /// The step from which on the next probe may be sent.
    resumes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slow {
    /// The step from which on the link is probed.
    due: u64,
    /// The number of steps until the probe after that.
    wait: u64,
    /// The number of vectors in a row that were as fast as others.
    fast: u64,
}

/// Returns whether a worker with these times may have been excluded because of its link.
pub(super) fn is_slow(own: OwnTimes, fastest: OwnTimes) -> bool {
    own.longest_s() > SLOW * fastest.longest_s()
}

impl Probing {
    pub(super) fn bytes(up_bytes: f64) -> u64 {
        (up_bytes as u64).clamp(*BYTES.start(), *BYTES.end())
    }

    pub(super) fn observed(&mut self, worker: WorkerId, step: u64, is_slow: bool) {
        match self.links.get_mut(&worker) {
            Some(slow) if is_slow => {
                // The link looked better than it is: a lasting recovery is found after as many probes as before.
                slow.due = step + slow.wait;
                slow.fast = 0;
            }
            Some(slow) => {
                slow.fast += 1;
                if slow.fast >= slow.wait {
                    self.links.remove(&worker);
                }
            }
            None if is_slow => {
                self.links.insert(worker, Slow { due: step + 1, wait: 1, fast: 0 });
            }
            None => {}
        }
    }

    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.links.remove(&worker);
    }

    /// Returns the link among the candidates to probe after a step.
    pub(super) fn next(&mut self, step: u64, is_candidate: impl Fn(WorkerId) -> bool) -> Option<WorkerId> {
        if step < self.resumes {
            return None;
        }
        let due = self.links.iter_mut().filter(|(worker, slow)| slow.due <= step && is_candidate(**worker));
        let (worker, slow) = due.min_by_key(|(_, slow)| slow.due)?;
        slow.wait = (2 * slow.wait).min(LONGEST_WAIT);
        slow.due = step + slow.wait;
        self.resumes = step + GAP;
        Some(*worker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> WorkerId {
        WorkerId::from_slot(3)
    }

    fn probes(probing: &mut Probing, steps: std::ops::Range<u64>) -> Vec<u64> {
        steps.filter(|step| probing.next(*step, |_| true).is_some()).collect()
    }

    #[test]
    fn probes_become_rarer_and_never_end() {
        let mut probing = Probing::default();
        assert!(probes(&mut probing, 0..10).is_empty());
        probing.observed(link(), 10, true);
        assert_eq!(probes(&mut probing, 10..400), [11, 15, 19, 27, 43, 75, 139, 203, 267, 331, 395]);
        assert_eq!(probing.next(1000, |_| false), None, "it is away, or fast again");
    }

    #[test]
    fn a_link_that_is_slow_again_is_probed_as_rarely_as_before() {
        let mut probing = Probing::default();
        probing.observed(link(), 0, true);
        assert_eq!(probes(&mut probing, 0..12), [1, 5, 9]);
        probing.observed(link(), 12, false);
        probing.observed(link(), 13, true);
        assert_eq!(probes(&mut probing, 13..40), [21, 37]);
        (40..72).for_each(|step| probing.observed(link(), step, false));
        probing.observed(link(), 72, true);
        assert_eq!(probes(&mut probing, 72..80), [73, 77], "it was fast for long");
    }

    #[test]
    fn links_take_turns() {
        let mut probing = Probing::default();
        (0..3).for_each(|slot| probing.observed(WorkerId::from_slot(slot), 0, true));
        let turns: Vec<usize> = (1..25).filter_map(|step| Some(probing.next(step, |_| true)?.slot())).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
        assert_eq!([1.0, 1e5, 1e9].map(Probing::bytes), [16_384, 100_000, 262_144]);
    }
}
