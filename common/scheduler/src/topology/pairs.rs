//! The speed of the paths between workers, and the blame for exchanges that fail.
//!
//! A member of an exchange reports how long it waited for each other member. This time is compared with the earlier time of the path, and
//! with the times that the member waited for the others, since all of them send it equally much at the same time. A pair is bad if either
//! end reports it. No member is believed about pairs that it is not part of, so a member that accuses all others is the one that leaves.

use std::collections::{BTreeMap, BTreeSet};

use ata_types::{Iteration, MachineId, WorkerId};

use super::Reach;

/// The multiple of its predicted time from which a transfer is late.
const LATE: f64 = 4.0;

/// The weight that earlier measurements keep after each exchange, as for the coordinator's own link.
const KEPT: f64 = 0.8;

/// The rate of a path in bytes per second as long as none is known: a chunk may then take 8 s.
const FIRST_RATE: f64 = (64 << 10) as f64;

/// The shortest timeout of a chunk, in seconds: it covers three packets lost in a row, or a machine that is otherwise busy. Half as much
/// would exclude healthy workers, and all members wait this long for one that is stopped.
const LEAST_TIMEOUT_S: f64 = 1.0;

/// The longest timeout of a chunk, in seconds. A path that needs a quarter of it for a chunk carries less than 9 kB/s.
const MOST_TIMEOUT_S: f64 = 60.0;

/// The report of a member of an exchange about another one. The timeout that the exchange gave a chunk is added to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// The bytes of the other member's chunks.
    pub bytes: u64,
    /// Seconds that the member waited for the chunks that arrived.
    pub seconds: f64,
    /// Seconds that the member has been waiting for the next chunk.
    pub waiting_s: f64,
    /// Whether the member has another complaint about it.
    pub is_faulty: bool,
}

/// What a member of an exchange reports of each other one, which sends to it.
pub type Senders = BTreeMap<WorkerId, Evidence>;

/// The measured speed of the paths between workers.
#[derive(Debug, Default)]
pub struct WorkerPairs {
    /// The bytes and seconds, by sender and receiver.
    rates: BTreeMap<(WorkerId, WorkerId), (f64, f64)>,
    /// The pairs of workers that may exchange vectors.
    pub reach: Reach,
    /// The workers that received undecodable data, by its sender.
    accusers: BTreeMap<WorkerId, BTreeSet<(MachineId, WorkerId)>>,
}

impl WorkerPairs {
    /// Returns the timeout of a chunk in an exchange of these members, in seconds. `star_s` is the time that all chunks that arrive at the
    /// same time take on a worker's link, as far as it is known.
    pub fn chunk_timeout_s(&self, members: &[WorkerId], chunk_bytes: u64, star_s: Option<f64>) -> f64 {
        let is_between = |(from, to): &(WorkerId, WorkerId)| members.contains(from) && members.contains(to);
        let known = self.rates.iter().filter(|(pair, _)| is_between(pair));
        let slowest_s = known.map(|(_, (bytes, seconds))| seconds / bytes * chunk_bytes as f64).reduce(f64::max);
        let chunk_s = slowest_s.or(star_s).unwrap_or(chunk_bytes as f64 / FIRST_RATE);
        (LATE * chunk_s).clamp(LEAST_TIMEOUT_S, MOST_TIMEOUT_S)
    }

    /// Handles the report of a member of an exchange whose chunks had a timeout of `timeout_s`. Returns the workers with which it
    /// forms a bad pair; these pairs are separated.
    pub fn heard(&mut self, iteration: Iteration, to: WorkerId, senders: &Senders, timeout_s: f64) -> Vec<WorkerId> {
        let is_bad = |from: &WorkerId, said: &Evidence| {
            let is_late =
                self.predicted_s(*from, to, senders).is_some_and(|s| said.seconds > LATE * s + timeout_s / 2.0);
            said.is_faulty || is_late || said.waiting_s > timeout_s / 2.0
        };
        let bad: Vec<WorkerId> =
            senders.iter().filter(|(from, said)| is_bad(from, said)).map(|(from, _)| *from).collect();
        for (&from, said) in senders {
            if bad.contains(&from) {
                self.separate(iteration, from, to);
            } else if said.bytes > 0 {
                let (bytes, seconds) = self.rates.entry((from, to)).or_default();
                (*bytes, *seconds) = (KEPT * *bytes + said.bytes as f64, KEPT * *seconds + said.seconds);
            }
        }
        bad
    }

    /// Keeps two workers from exchanging vectors for a while. Earlier measurements between them no longer count.
    pub fn separate(&mut self, iteration: Iteration, one: WorkerId, other: WorkerId) {
        self.reach.fail(iteration, one, other);
        self.rates.remove(&(one, other));
        self.rates.remove(&(other, one));
    }

    /// Records that a worker received undecodable data from another one. Returns whether this is proven: two workers must report it, on two
    /// machines if the others that the accused works with are on more than one.
    pub fn accuse(&mut self, accused: WorkerId, accuser: (MachineId, WorkerId), others: &[MachineId]) -> bool {
        let accusers = self.accusers.entry(accused).or_default();
        accusers.insert(accuser);
        let is_on_several = others.iter().any(|machine| machine != &others[0]);
        let machines: BTreeSet<MachineId> = accusers.iter().map(|(machine, _)| *machine).collect();
        let is_proven = accusers.len() > 1 && (machines.len() > 1 || !is_on_several);
        if is_proven {
            self.accusers.remove(&accused);
        }
        is_proven
    }

    /// Forgets a worker that is gone. If it comes back, others may reach it.
    pub fn forget(&mut self, worker: WorkerId) {
        self.reach.forget(worker);
        self.rates.retain(|(from, to), _| *from != worker && *to != worker);
        self.accusers.remove(&worker);
    }

    /// Returns the seconds that a path was expected to take: as many as it took before for the same number of bytes, but at most the median
    /// of the other paths into the same worker.
    fn predicted_s(&self, from: WorkerId, to: WorkerId, senders: &Senders) -> Option<f64> {
        let before = self.rates.get(&(from, to)).map(|(bytes, seconds)| seconds / bytes * senders[&from].bytes as f64);
        let mut others: Vec<f64> =
            senders.iter().filter(|(other, _)| **other != from).map(|(_, said)| said.seconds).collect();
        others.sort_by(f64::total_cmp);
        // Half of the others may be slow, too.
        let middle = others.get(others.len().saturating_sub(1) / 2).copied();
        before.into_iter().chain(middle).reduce(f64::min)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn worker(slot: usize) -> WorkerId {
        WorkerId::from_slot(slot)
    }

    fn reachable(workers: usize) -> (WorkerPairs, Vec<WorkerId>) {
        let (mut pairs, all) = (WorkerPairs::default(), (0..workers).map(worker).collect::<Vec<_>>());
        while let Some((from, to)) = pairs.reach.next(Iteration(1), &all, |_, _| true) {
            pairs.reach.answered(Iteration(1), from, to, true);
        }
        (pairs, all)
    }

    fn waited(seconds: f64) -> Evidence {
        Evidence { bytes: 1_000_000, seconds, waiting_s: 0.0, is_faulty: false }
    }

    /// Returns the report of member `to`, where `seconds` is the time that each path takes.
    fn evidence(to: usize, workers: usize, seconds: impl Fn(usize, usize) -> f64) -> Senders {
        (0..workers).filter(|from| *from != to).map(|from| (worker(from), waited(seconds(from, to)))).collect()
    }

    #[test]
    fn a_chunk_is_given_four_times_what_it_takes() {
        let (mut pairs, all) = reachable(3);
        let timeout_s = |pairs: &WorkerPairs, star_s| pairs.chunk_timeout_s(&all, 1 << 17, star_s);
        assert_eq!(timeout_s(&pairs, None), 8.0, "nothing is known");
        assert_eq!(timeout_s(&pairs, Some(0.01)), LEAST_TIMEOUT_S, "a wide link");
        assert_eq!(timeout_s(&pairs, Some(4.0)), 16.0);
        let slow = Evidence { bytes: 1 << 18, seconds: 1.0, ..waited(0.0) };
        assert_eq!(pairs.heard(Iteration(2), worker(0), &[(worker(1), slow)].into(), 8.0), []);
        assert_eq!(timeout_s(&pairs, Some(4.0)), 2.0, "the slowest known");
        let slower = Evidence { bytes: 1, ..slow };
        pairs.heard(Iteration(2), worker(2), &[(worker(1), slower)].into(), 8.0);
        assert_eq!(timeout_s(&pairs, None), MOST_TIMEOUT_S);
        pairs.forget(worker(1));
        assert_eq!(timeout_s(&pairs, None), 8.0);
    }

    /// The path from one worker to the others is slow from the first exchange on, or becomes slow.
    #[test]
    fn whoever_is_slow_to_all_others_leaves() {
        // Worker 9 is no member: links that are all slow are nobody's fault.
        for (culprit, before) in [(0, 0), (2, 0), (3, 5), (9, 0)] {
            let (mut pairs, all) = reachable(4);
            for _ in 0..before {
                for to in 0..4 {
                    assert_eq!(pairs.heard(Iteration(2), worker(to), &evidence(to, 4, |_, _| 0.1), 1.0), []);
                }
            }
            for to in 0..4 {
                let slow = |from: usize, _| if [from, 9].contains(&culprit) { 3.0 } else { 0.1 };
                let bad = pairs.heard(Iteration(9), worker(to), &evidence(to, 4, slow), 1.0);
                assert_eq!(bad, if [to, 9].contains(&culprit) { vec![] } else { vec![worker(culprit)] });
            }
            let others: Vec<WorkerId> = all.iter().copied().filter(|one| *one != worker(culprit)).collect();
            assert_eq!(pairs.reach.members(&all), others);
        }
    }

    /// With two members, only earlier measurements are available for comparison.
    #[test]
    fn a_lone_pair_is_separated_and_each_of_it_works_with_others() {
        let (mut pairs, all) = reachable(3);
        let two = |seconds| [(worker(1), waited(seconds))].into();
        assert_eq!(pairs.heard(Iteration(2), worker(0), &two(5.0), 1.0), [], "nothing is predicted");
        let before = Evidence { bytes: 100_000_000, ..waited(1.0) };
        pairs.heard(Iteration(3), worker(0), &[(worker(1), before)].into(), 1.0);
        assert_eq!(pairs.heard(Iteration(4), worker(0), &two(5.0), 1.0), [worker(1)]);
        assert_eq!(pairs.reach.members(&all), [0, 2].map(worker));
        assert_eq!(pairs.reach.members(&all[1..]), [1, 2].map(worker));
    }

    #[test]
    fn what_cannot_be_decoded_is_proven_by_two_of_two_machines() {
        let mut pairs = WorkerPairs::default();
        let (one, two) = (MachineId(1), MachineId(2));
        assert!(!pairs.accuse(worker(0), (one, worker(1)), &[one, one]));
        assert!(!pairs.accuse(worker(0), (one, worker(1)), &[one, one]), "the same again");
        assert!(pairs.accuse(worker(0), (one, worker(2)), &[one, one]), "there is but one machine");
        assert!(!pairs.accuse(worker(0), (one, worker(1)), &[one, one, two]), "it begins anew");
        assert!(!pairs.accuse(worker(0), (one, worker(2)), &[one, one, two]));
        assert!(!pairs.accuse(worker(3), (two, worker(5)), &[one, one, two]), "of another one");
        assert!(pairs.accuse(worker(0), (two, worker(5)), &[one, one, two]));
    }

    proptest! {
        /// Whatever a single member reports and however it behaves, no other member is excluded if all of its own paths work.
        #[test]
        fn whoever_is_common_to_the_bad_pairs_is_left_out_first(
            workers in 3_usize..8,
            culprit in 0_usize..8,
            accuses in prop::collection::vec(any::<bool>(), 8),
            accused_by in prop::collection::vec(any::<bool>(), 8),
        ) {
            let culprit = culprit % workers;
            let (mut pairs, all) = reachable(workers);
            let is_faulty = |from: usize, to: usize| {
                to == culprit && accuses[from] || from == culprit && accused_by[to]
            };
            for to in 0..workers {
                let said = (0..workers).filter(|from| *from != to);
                let said = said.map(|from| (worker(from), Evidence { is_faulty: is_faulty(from, to), ..waited(0.1) }));
                pairs.heard(Iteration(2), worker(to), &said.collect(), 1.0);
            }
            let members = pairs.reach.members(&all);
            let bad = (0..workers).filter(|other| *other != culprit && (accuses[*other] || accused_by[*other])).count();
            prop_assert!(members.len() + 1 >= workers, "{members:?}");
            prop_assert!(bad < 2 || !members.contains(&worker(culprit)), "{members:?}");
            prop_assert!(bad > 0 || members.len() == workers);
        }
    }
}
