//! Decides how many workers are worth the time that their vectors take on the links.

use super::plan::PlannedWorker;
use crate::allocation::cost_of_last_task;
use crate::topology::{LinkTimes, OwnTimes, Topology};
use ata_types::MAX_SHARDS;

/// The number of workers up to which every number is tried. Beyond it, steps are a quarter each: near the best number, a quarter more
/// changes the predicted time by a few per cent at most.
const ALL_UP_TO: usize = 16;

/// Shares `budget` tasks among the number of the fastest members with which the step is predicted to end the soonest, given how long
/// vectors travel, and notes in each member's pace how long before the end it must be done.
///
/// The members are in the order of their index for one task, with the time on their own links. RAS over prefixes: with n workers, the
/// j-th fastest must be done w(j, n) before the end ([`LinkTimes::windows_s`]).
pub(super) fn share_with_links(members: &mut [PlannedWorker], links: &LinkTimes, budget: u64, caution: f64) {
    let mut best: Option<(f64, Vec<PlannedWorker>)> = None;
    let mut worse = 0;
    let next = |last: &usize| {
        let next = if *last < ALL_UP_TO { last + 1 } else { last + last / 4 };
        (*last < members.len()).then_some(next.min(members.len()))
    };
    for workers in std::iter::successors((!members.is_empty()).then_some(1), next) {
        let mut fastest = members[..workers].to_vec();
        let end_s = share(&mut fastest, links, budget, caution);
        if best.as_ref().is_none_or(|(best_s, _)| end_s < *best_s) {
            best = Some((end_s, fastest));
            worse = 0;
        } else {
            worse += 1;
            // In a star, the time first falls and then rises with the number of workers, except for the effect of whole tasks. With
            // shards, it hardly rises, and whole tasks have the larger effect.
            let may_be_sharded = links.topology == Topology::Shards && workers < MAX_SHARDS;
            if worse >= 3 && !may_be_sharded {
                break;
            }
        }
    }
    let Some((_, fastest)) = best else { return };
    let workers = fastest.len();
    members[..workers].copy_from_slice(&fastest);
    let mut own: Vec<OwnTimes> = fastest.iter().map(|member| member.own).collect();
    for member in &mut members[workers..] {
        // The worker would be one more.
        own.push(member.own);
        (member.share, member.pace.window_s) = (0, links.windows_s(&own)[workers]);
        own.pop();
    }
}

/// Applies RAS to these members, all of which send a vector. Returns the predicted end of the step.
fn share(members: &mut [PlannedWorker], links: &LinkTimes, budget: u64, caution: f64) -> f64 {
    let own: Vec<OwnTimes> = members.iter().map(|member| member.own).collect();
    for (window_s, member) in links.windows_s(&own).into_iter().zip(members.iter_mut()) {
        member.pace.window_s = window_s;
    }
    let mut shares = vec![0; members.len()];
    let end_s = cost_of_last_task(&mut shares, budget, &|at, tasks| members[at].pace.index_s(tasks, caution));
    members.iter_mut().zip(shares).for_each(|(member, share)| member.share = share);
    end_s
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::ata_auto::pace::Pace;
    use crate::policy::ata_auto::tests::pace;
    use ata_types::WorkerId;

    /// Returns links, of workers and coordinator, on which a gradient takes `up_s` and parameters half of that.
    fn links(up_s: f64) -> LinkTimes {
        let others = OwnTimes { up_s, down_s: up_s / 2.0 };
        LinkTimes { up_s, down_s: up_s / 2.0, others, ..LinkTimes::default() }
    }

    /// Returns the shares of 23 tasks of workers with constant times, in milliseconds.
    fn shares(times_ms: &[f64], links: &LinkTimes) -> Vec<u64> {
        let member = |(slot, ms): (usize, &f64)| {
            let pace = Pace { mean_s: ms / 1e3, overhead_s: 0.0, doubt: 0.0, ..pace(0.0) };
            let worker = WorkerId::from_slot(slot);
            PlannedWorker { position: slot, worker, pace, share: 0, own: links.own(worker) }
        };
        let mut members: Vec<PlannedWorker> = times_ms.iter().enumerate().map(member).collect();
        share_with_links(&mut members, links, 23, 1.0);
        members.iter().map(|member| member.share).collect()
    }

    #[test]
    fn a_narrow_link_is_worth_fewer_workers() {
        let times_ms = [20.0, 40.0, 80.0, 160.0];
        assert_eq!(shares(&times_ms, &LinkTimes::default()), [13, 6, 3, 1]);
        assert_eq!(shares(&times_ms, &links(0.001)), [13, 6, 3, 1], "as good as without links");
        assert_eq!(shares(&times_ms, &links(0.178)), [18, 5, 0, 0]);
        assert_eq!(shares(&times_ms, &links(2.0)), [23, 0, 0, 0]);
        let wide_head = LinkTimes { up_s: 0.0178, down_s: 0.0089, ..links(0.178) };
        assert!(shares(&times_ms, &wide_head).iter().all(|share| *share > 0));
    }
}
