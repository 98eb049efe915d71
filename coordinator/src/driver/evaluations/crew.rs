//! Chooses which members measure the batches of an evaluation.

use std::collections::HashSet;

use ata_types::{MachineId, WorkerId};

/// A process that measures batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::driver) enum CrewMember {
    /// The coordinator itself.
    Head,
    Worker(WorkerId),
}

/// A worker that is present.
#[derive(Clone, Copy, Debug)]
pub(in crate::driver) struct CrewCandidate {
    pub(in crate::driver) worker: WorkerId,
    pub(in crate::driver) machine: MachineId,
    /// Whether the worker had no task in this iteration and the one before.
    pub(in crate::driver) is_idle: bool,
    /// The mean time of the worker's tasks in seconds, if any was timed.
    pub(in crate::driver) mean_s: Option<f64>,
}

/// The maximum number of members at a time. Each of them fetches the parameters over the coordinator's link.
const MOST_MEMBERS: usize = 8;

/// The rank of workers with tasks, after all others.
const BUSY: u8 = 4;

/// The time in seconds after which another member joins an unfinished evaluation. Unless the link is slow, the other members have received
/// the data and the parameters by then.
const REINFORCEMENT_S: f64 = 10.0;

/// Chooses the members that measure, the preferred ones first, `elapsed_s` after the evaluation began. Usually this is a single member,
/// since each costs a transfer of the parameters.
///
/// During a run, workers without tasks come first, since no step waits for them. Among them, those that have measured before are preferred,
/// since they already have the test data. The coordinator itself comes next. Workers with tasks are chosen only if there is no other
/// member, the slowest first, since it has the fewest tasks. At the end of a run no worker has tasks, and the coordinator's thread is
/// preferred to a worker that lacks the test data. One more member is chosen for each of the `confirming` members that have measured the
/// same batch, which others have to confirm.
pub(super) fn choose(
    candidates: &[CrewCandidate],
    has_head: bool,
    experienced: &HashSet<WorkerId>,
    is_ending: bool,
    elapsed_s: f64,
    confirming: usize,
) -> Vec<CrewMember> {
    let rank = |candidate: &CrewCandidate| match (experienced.contains(&candidate.worker), is_ending) {
        (true, _) => 0,
        (false, false) => 1,
        (false, true) => 3,
    };
    let time_s = |candidate: &CrewCandidate| candidate.mean_s.unwrap_or(f64::INFINITY);
    let idle = candidates.iter().filter(|candidate| candidate.is_idle || is_ending);
    let mut members: Vec<(u8, f64, CrewMember)> = idle
        .map(|candidate| (rank(candidate), time_s(candidate), CrewMember::Worker(candidate.worker)))
        .chain(has_head.then_some((2, 0.0, CrewMember::Head)))
        .collect();
    if members.len() <= confirming {
        let busy = candidates.iter().filter(|candidate| !candidate.is_idle && !is_ending);
        members.extend(busy.map(|busy| (BUSY + rank(busy), -time_s(busy), CrewMember::Worker(busy.worker))));
    }
    members.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
    let wanted = (1.0 + elapsed_s / REINFORCEMENT_S) as usize + confirming;
    members.into_iter().take(wanted.min(MOST_MEMBERS)).map(|(_, _, member)| member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(number: u32) -> WorkerId {
        WorkerId::new(number).unwrap()
    }

    fn candidate(number: u32, is_idle: bool, mean_s: Option<f64>) -> CrewCandidate {
        CrewCandidate { worker: worker(number), machine: MachineId(number.into()), is_idle, mean_s }
    }

    fn chosen(candidates: &[CrewCandidate], has_head: bool, experienced: &[u32], is_ending: bool) -> Vec<u32> {
        let experienced = experienced.iter().copied().map(worker).collect();
        let members = choose(candidates, has_head, &experienced, is_ending, 1e9, 0);
        let number = |member: CrewMember| match member {
            CrewMember::Head => 0,
            CrewMember::Worker(worker) => worker.number(),
        };
        members.into_iter().map(number).collect()
    }

    #[test]
    fn workers_without_tasks_come_first_and_those_with_tasks_last() {
        let fleet = [
            candidate(1, false, Some(1.0)),
            candidate(2, true, Some(8.0)),
            candidate(3, true, None),
            candidate(4, true, Some(4.0)),
        ];
        assert_eq!(chosen(&fleet, true, &[], false), [4, 2, 3, 0]);
        assert_eq!(chosen(&fleet, true, &[3], false), [3, 4, 2, 0]);
        assert_eq!(chosen(&fleet[..1], true, &[], false), [0]);
        let busy = [candidate(1, false, Some(1.0)), candidate(5, false, Some(3.0))];
        assert_eq!(chosen(&busy, false, &[], false), [5, 1], "the slowest has the fewest tasks");
        assert_eq!(chosen(&busy, false, &[1], false), [1, 5], "it has the data");
    }

    #[test]
    fn at_the_end_nobody_has_tasks_and_data_that_are_there_decide() {
        let fleet = [candidate(1, false, Some(1.0)), candidate(2, false, Some(8.0))];
        assert_eq!(chosen(&fleet, true, &[2], true), [2, 0, 1]);
        assert_eq!(chosen(&fleet, false, &[], true), [1, 2]);
    }

    #[test]
    fn one_member_is_the_rule() {
        let fleet: Vec<CrewCandidate> = (1..=20).map(|number| candidate(number, true, None)).collect();
        let count = |elapsed_s, confirming, fleet: &[CrewCandidate]| {
            choose(fleet, true, &HashSet::new(), false, elapsed_s, confirming).len()
        };
        assert_eq!(
            [0.0, 9.9, 10.0, 25.0, 1e300].map(|elapsed_s| count(elapsed_s, 0, &fleet)),
            [1, 1, 2, 3, MOST_MEMBERS]
        );
        let busy: Vec<CrewCandidate> = (1..=2).map(|number| candidate(number, false, None)).collect();
        assert_eq!(
            [0, 1, 2].map(|confirming| count(0.0, confirming, &busy)),
            [1, 2, 3],
            "the second confirms the first"
        );
    }
}
