//! Measures the transfers from the other members of an exchange.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ata_wire::{MemberReport, PairFault};

/// Counts the bytes from each member, and the time spent waiting for it. Clones share the counts.
#[derive(Clone, Debug)]
pub(super) struct WayTally(Arc<Mutex<Vec<Way>>>);

/// The parts of an exchange that a member sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Sum,
    Parameters,
}

#[derive(Clone, Debug, Default)]
struct Way {
    bytes: u64,
    seconds: f64,
    /// The time since which the next chunk of each part is awaited.
    since: [Option<Instant>; 2],
    fault: Option<(PairFault, String)>,
}

impl WayTally {
    pub(super) fn new(members: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![Way::default(); members])))
    }

    pub(super) fn wait(&self, place: usize, part: Part, now: Instant) {
        self.ways()[place].since[part as usize] = Some(now);
    }

    pub(super) fn came(&self, place: usize, part: Part, bytes: usize, now: Instant) {
        let way = &mut self.ways()[place];
        way.bytes += bytes as u64;
        let waited = way.since[part as usize].take().map(|since| now.duration_since(since));
        way.seconds += waited.unwrap_or_default().as_secs_f64();
    }

    /// Stops waiting, since it is unknown whether the member owes a chunk.
    pub(super) fn stop(&self, place: usize, part: Part) {
        self.ways()[place].since[part as usize] = None;
    }

    /// Records a fault of a member. Only the first one is kept.
    pub(super) fn fault(&self, place: usize, fault: PairFault, reason: String) {
        self.ways()[place].fault.get_or_insert((fault, reason));
    }

    /// Returns the report on each member that is not at place `own`.
    pub(super) fn report(&self, own: usize, now: Instant) -> Vec<MemberReport> {
        let report = |(place, way): (usize, &Way)| {
            let waits = way.since.iter().flatten().map(|since| now.duration_since(*since).as_secs_f64());
            let waiting_s = waits.fold(0.0, f64::max);
            let (bytes, seconds, fault) = (way.bytes, way.seconds, way.fault.clone());
            MemberReport { place, bytes, seconds, waiting_s, fault }
        };
        self.ways().iter().enumerate().filter(|(place, _)| *place != own).map(report).collect()
    }

    fn ways(&self) -> MutexGuard<'_, Vec<Way>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_the_time_in_which_a_chunk_is_owed_counts() {
        let (tally, begin) = (WayTally::new(3), Instant::now());
        let at = |s| begin + Duration::from_secs(s);
        tally.wait(0, Part::Sum, at(0));
        tally.came(0, Part::Sum, 100, at(3));
        tally.came(0, Part::Sum, 100, at(8));
        tally.wait(0, Part::Parameters, at(9));
        tally.wait(2, Part::Sum, at(1));
        tally.wait(2, Part::Parameters, at(4));
        tally.fault(2, PairFault::Late, "late".into());
        tally.fault(2, PairFault::Broken, "it broke off".into());
        let member = |place, bytes, seconds, waiting_s, fault| MemberReport { place, bytes, seconds, waiting_s, fault };
        let late = Some((PairFault::Late, "late".into()));
        tally.wait(0, Part::Sum, at(9));
        tally.stop(0, Part::Sum);
        assert_eq!(tally.report(1, at(10)), [member(0, 200, 3.0, 1.0, None), member(2, 0, 0.0, 9.0, late)]);
    }
}
