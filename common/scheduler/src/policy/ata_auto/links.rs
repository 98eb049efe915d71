//! How many workers are worth the time that their vectors take on the links.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::plan::Member;
use crate::exchange::{Exchange, Topology};
use ata_types::MAX_SHARDS;

/// Numbers of workers are tried one by one up to this one, and then in steps of a quarter: near the best number, a quarter more
/// changes the predicted time by a few per cent at most.
const ALL_UP_TO: usize = 16;

/// Shares `budget` tasks among so many of the fastest members that the step is predicted to end the soonest, given how long
/// vectors travel, and notes in each member's pace how long before the end it must be done.
///
/// The members are in the order of their index for one task. RAS over prefixes: with n workers, the j-th fastest must be done
/// w(j, n) before the end ([`Exchange::window_s`]).
pub(super) fn share_with_links(members: &mut [Member], exchange: Exchange, budget: u64, caution: f64) {
    let mut best: Option<(f64, Vec<Member>)> = None;
    let mut worse = 0;
    for workers in prefixes(members.len()) {
        let mut fastest = members[..workers].to_vec();
        let end_s = share(&mut fastest, exchange, budget, caution);
        if best.as_ref().is_none_or(|(best_s, _)| end_s < *best_s) {
            best = Some((end_s, fastest));
            worse = 0;
        } else {
            worse += 1;
            // In a star, the time falls and then rises with the number of workers, but for whole tasks. With shards, it hardly rises,
            // and whole tasks make the most of it.
            let may_be_sharded = exchange.topology == Topology::Shards && workers < MAX_SHARDS;
            if worse >= 3 && !may_be_sharded {
                break;
            }
        }
    }
    let Some((_, fastest)) = best else { return };
    let workers = fastest.len();
    members[..workers].copy_from_slice(&fastest);
    for member in &mut members[workers..] {
        // It would be one more.
        (member.share, member.pace.window_s) = (0, exchange.window_s(workers + 1, workers + 1));
    }
}

fn prefixes(members: usize) -> impl Iterator<Item = usize> {
    let next = move |last: &usize| {
        let next = if *last < ALL_UP_TO { last + 1 } else { last + last / 4 };
        (*last < members).then_some(next.min(members))
    };
    std::iter::successors((members > 0).then_some(1), next)
}

/// RAS for these members, all of which send a vector. Returns the predicted end of the step.
fn share(members: &mut [Member], exchange: Exchange, budget: u64, caution: f64) -> f64 {
    let workers = members.len();
    for (rank, member) in (1..).zip(members.iter_mut()) {
        (member.share, member.pace.window_s) = (0, exchange.window_s(rank, workers));
    }
    let next = |member: &Member| member.pace.index_s(member.share + 1, caution).to_bits();
    let mut offers: BinaryHeap<Reverse<(u64, usize)>> =
        members.iter().enumerate().map(|(at, member)| Reverse((next(member), at))).collect();
    let mut end_s = 0.0;
    for _ in 0..budget {
        let Some(mut offer) = offers.peek_mut() else { break };
        let Reverse((index, at)) = *offer;
        end_s = f64::from_bits(index);
        members[at].share += 1;
        *offer = Reverse((next(&members[at]), at));
    }
    end_s
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::ata_auto::pace::Pace;
    use crate::policy::ata_auto::pace::tests::pace;
    use ata_types::WorkerId;

    /// Shares of 23 tasks among workers of constant times, in milliseconds.
    fn shares(times_ms: &[f64], exchange: Exchange) -> Vec<u64> {
        shares_of(23, times_ms, exchange)
    }

    fn shares_of(budget: u64, times_ms: &[f64], exchange: Exchange) -> Vec<u64> {
        let member = |(slot, ms): (usize, &f64)| {
            let pace = Pace { mean_s: ms / 1e3, overhead_s: 0.0, doubt: 0.0, ..pace(0.0) };
            Member { worker: WorkerId::from_slot(slot), pace, share: 0 }
        };
        let mut members: Vec<Member> = times_ms.iter().enumerate().map(member).collect();
        share_with_links(&mut members, exchange, budget, 1.0);
        members.iter().map(|member| member.share).collect()
    }

    #[test]
    fn a_narrow_link_is_worth_fewer_workers() {
        let times_ms = [20.0, 40.0, 80.0, 160.0];
        let link = |up_s| Exchange {
            up_s,
            down_s: up_s / 2.0,
            own_up_s: up_s,
            own_down_s: up_s / 2.0,
            topology: Topology::Star,
        };
        assert_eq!(shares(&times_ms, Exchange::default()), [13, 6, 3, 1]);
        assert_eq!(shares(&times_ms, link(0.001)), [13, 6, 3, 1], "as good as without links");
        assert_eq!(shares(&times_ms, link(0.178)), [18, 5, 0, 0]);
        assert_eq!(shares(&times_ms, link(2.0)), [23, 0, 0, 0]);
        let wide_head = Exchange { up_s: 0.0178, down_s: 0.0089, ..link(0.178) };
        assert!(shares(&times_ms, wide_head).iter().all(|share| *share > 0));
    }

    /// Workers of 20 ms on links of the same rate: a gradient takes 178 ms, and parameters 89 ms.
    #[test]
    fn shards_are_worth_more_workers() {
        let star =
            Exchange { up_s: 0.178, down_s: 0.089, own_up_s: 0.178, own_down_s: 0.089, topology: Topology::Star };
        let shards = Exchange { topology: Topology::Shards, ..star };
        for (workers, budget, in_star, in_shards) in
            [(16, 23, 2, 12), (16, 64, 3, 16), (40, 23, 2, 23), (40, 64, 3, 25)]
        {
            let employed = |exchange| {
                let shares = shares_of(budget, &vec![20.0; workers], exchange);
                assert_eq!(shares.iter().sum::<u64>(), budget);
                shares.iter().filter(|share| **share > 0).count()
            };
            assert_eq!([employed(star), employed(shards)], [in_star, in_shards], "{workers} workers, {budget} tasks");
        }
    }

    #[test]
    fn numbers_of_workers_are_tried_up_to_all() {
        assert_eq!(prefixes(4).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(prefixes(30).skip(14).collect::<Vec<_>>(), [15, 16, 20, 25, 30]);
    }
}
