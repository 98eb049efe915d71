//! The workers that ATA-Auto considers in an iteration, with their shares.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::AtaAuto;
use super::links::share_with_links;
use super::pace::Pace;
use super::plan::PlannedWorker;
use crate::policy::Round;
use ata_types::WorkerId;

/// The number of workers beyond those in use that may help within an iteration: the fastest ones.
const SPARE: usize = 8;

/// Workers in ascending order of some time, so that the time of a decision does not grow with the number of idle workers. The
/// bits of non-negative numbers have the order of the numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranking {
    order: BTreeSet<(u64, u32)>,
    times_s: Vec<Option<f64>>,
}

impl Ranking {
    /// Sets a worker's time; `None` removes the worker.
    pub(super) fn set(&mut self, slot: usize, time_s: Option<f64>) {
        if self.times_s.len() <= slot {
            self.times_s.resize(slot + 1, None);
        }
        let before = std::mem::replace(&mut self.times_s[slot], time_s);
        if before == time_s {
            return;
        }
        if let Some(before_s) = before {
            self.order.remove(&(before_s.to_bits(), slot as u32));
        }
        if let Some(time_s) = time_s {
            self.order.insert((time_s.to_bits(), slot as u32));
        }
    }

    pub(super) fn ascending(&self) -> impl Iterator<Item = (WorkerId, f64)> + '_ {
        self.order.iter().map(|&(bits, slot)| (WorkerId::from_slot(slot as usize), f64::from_bits(bits)))
    }
}

/// A plan that ends earlier by this factor, beyond 1, is tried however little is known: while noise is unknown, chance could explain anything.
const WORTH_A_TRY: f64 = 0.5;

impl AtaAuto {
    /// Returns the workers to use with their shares, and a few more that could help; none if no worker was ever observed.
    pub(super) fn candidates(&self, round: &Round<'_>, caution: f64) -> Vec<PlannedWorker> {
        let newcomers = self.newcomers(round);
        let budget = round.budget - newcomers.len() as u64;
        let mut candidates = self.share(round, budget, caution);
        let equal = if newcomers.is_empty() { self.equal_shares(round, caution, &candidates) } else { None };
        let has_all = equal.is_some();
        candidates = equal.unwrap_or(candidates);
        if !round.links.is_free() {
            let first_s = |candidate: &PlannedWorker| candidate.pace.index_s(1, caution);
            candidates.sort_by(|a, b| first_s(a).total_cmp(&first_s(b)));
            share_with_links(&mut candidates, round.links, budget, caution);
        }
        let times_s = candidates.iter().map(|candidate| candidate.pace.time_s(candidate.share));
        let longest_s = times_s.fold(0.0, f64::max);
        let unknown = |position: usize, mean_s: f64, share: u64| {
            let pace = Pace::unknown(mean_s, self.noise.pooled().variation, self.hazard());
            let worker = round.workers[position];
            PlannedWorker { position, worker, pace, share, own: round.links.own(worker) }
        };
        if !has_all && !candidates.is_empty() && candidates.iter().all(|candidate| candidate.share > 0) {
            // The speed of these workers is unknown, but they may help if all others hang.
            let present = |(worker, censored_s)| Some((position(round, worker)?, censored_s));
            let others = self.unknown.ascending().filter_map(present).filter(|(i, _)| !newcomers.contains(i));
            candidates.extend(others.take(SPARE).map(|(i, censored_s)| unknown(i, censored_s + longest_s, 0)));
        }
        candidates.extend(newcomers.into_iter().map(|i| unknown(i, longest_s, 1)));
        // Of the workers without a share, only those that are most likely to help are kept.
        let index = |candidate: &PlannedWorker| (candidate.pace.index_s(1, caution).to_bits(), candidate.position);
        let mut rest: Vec<_> = candidates.iter().filter(|candidate| candidate.share == 0).map(index).collect();
        if rest.len() > SPARE {
            let last = *rest.select_nth_unstable(SPARE - 1).1;
            candidates.retain(|candidate| candidate.share > 0 || index(candidate) <= last);
        }
        candidates
    }

    /// Returns the observed workers to use with their shares, and a few more, the fastest first: RAS for the index U. Since U(1) is more
    /// than the time by which workers are ordered, those beyond are no better.
    fn share(&self, round: &Round<'_>, budget: u64, caution: f64) -> Vec<PlannedWorker> {
        let pooled = self.noise.pooled();
        let mut order =
            self.observed.ascending().filter_map(|(worker, least_s)| Some((position(round, worker)?, least_s)));
        let mut next = order.next();
        let mut candidates: Vec<PlannedWorker> = Vec::with_capacity(4 * SPARE);
        let mut offers: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut left = budget;
        let mut used = 0;
        while left > 0 || candidates.len() < used + SPARE {
            let best_s = offers.peek().map_or(f64::INFINITY, |Reverse((bits, _))| f64::from_bits(*bits));
            if let Some((i, least_s)) = next
                && (least_s <= best_s || left == 0)
            {
                next = order.next();
                let model = &self.models[round.workers[i].slot()];
                if let Some(pace) = model.pace(pooled, self.hazard(), round.fuses(i)) {
                    let candidate = with_link(round, i, pace);
                    offers.push(Reverse((candidate.pace.index_s(1, caution).to_bits(), candidates.len())));
                    candidates.push(candidate);
                }
            } else if left > 0
                && let Some(mut offer) = offers.peek_mut()
            {
                let at = offer.0.1;
                let member = &mut candidates[at];
                used += usize::from(member.share == 0);
                member.share += 1;
                offer.0.0 = member.pace.index_s(member.share + 1, caution).to_bits();
                left -= 1;
            } else {
                break;
            }
        }
        candidates
    }

    /// Returns all workers with equal shares, unless the planned ones end earlier by more than chance explains. If n workers are equally
    /// fast, the largest of their estimated times is about √(2 ln n) standard errors above the mean: what looks slow is bad luck, and leaving
    /// it out would keep it looking so.
    fn equal_shares(&self, round: &Round<'_>, caution: f64, planned: &[PlannedWorker]) -> Option<Vec<PlannedWorker>> {
        let (budget, n) = (round.budget, round.workers.len() as u64);
        if budget < n || planned.is_empty() {
            return None;
        }
        let (pooled, hazard) = (self.noise.pooled(), self.hazard());
        let known = self.observed.ascending().filter(|(worker, _)| position(round, *worker).is_some());
        let (count, sum_s) = known.fold((0.0, 0.0), |(count, sum_s), (_, least_s)| (count + 1.0, sum_s + least_s));
        let of_worker = |(position, &worker): (usize, &WorkerId)| {
            let model = &self.models[worker.slot()];
            // A worker that was only overtaken so far may be as fast as others, but not faster than it has shown to be.
            let unknown = || Pace::unknown(model.censored_s.max(sum_s / count), pooled.variation, hazard);
            let pace = model.pace(pooled, hazard, round.fuses(position)).unwrap_or_else(unknown);
            PlannedWorker { share: budget / n, ..with_link(round, position, pace) }
        };
        let mut equal: Vec<PlannedWorker> = round.workers.iter().enumerate().map(of_worker).collect();
        equal.sort_by(|a, b| a.pace.index_s(1, caution).total_cmp(&b.pace.index_s(1, caution)));
        equal.iter_mut().take((budget % n) as usize).for_each(|member| member.share += 1);
        let end_s = |members: &[PlannedWorker]| {
            let used = members.iter().filter(|member| member.share > 0);
            used.map(|member| member.pace.time_s(member.share)).fold(0.0, f64::max)
        };
        let doubt = equal.iter().map(|member| member.pace.doubt).sum::<f64>() / n as f64;
        let chance = (2.0 * (n as f64).ln() * doubt).sqrt().min(WORTH_A_TRY);
        (end_s(&equal) <= end_s(planned) * (1.0 + chance)).then_some(equal)
    }

    /// Returns the [`Decision::finish_s`](crate::policy::Decision::finish_s) of the candidates whose speed was observed: their indices.
    /// Over a link, a worker without a share is not expected to get a task, because one more vector would delay all.
    pub(super) fn finish_s(&self, of: &[PlannedWorker], caution: f64, is_free: bool) -> Vec<(usize, [f64; 3])> {
        let index_s = |PlannedWorker { pace, share, .. }: &PlannedWorker, tasks: u64| match tasks {
            0 => 0.0,
            _ if pace.most.is_some_and(|most| tasks > most) || *share == 0 && !is_free => f64::INFINITY,
            _ => pace.index_s(tasks, caution).max(0.0),
        };
        let observed = of.iter().filter(|member| self.models[member.worker.slot()].least_s().is_some());
        let times = observed.map(|member| {
            let finish_s =
                [member.share.saturating_sub(1), member.share, member.share + 1].map(|tasks| index_s(member, tasks));
            (member.position, finish_s)
        });
        times.collect()
    }

    /// Returns the positions of workers that have never begun a task. Each gets one at once, since its time is only certain to be measured
    /// if the step waits for it. In the first iteration nothing is known about any worker.
    fn newcomers(&self, round: &Round<'_>) -> Vec<usize> {
        let is_first = !self.observed.ascending().any(|(worker, _)| position(round, worker).is_some());
        if is_first {
            return Vec::new();
        }
        let untried = self.unknown.ascending().take_while(|(_, censored_s)| *censored_s == 0.0);
        let present = untried.filter_map(|(worker, _)| position(round, worker));
        present.take(SPARE.min(round.budget as usize - 1)).collect()
    }
}

/// Returns a worker without a share. Its pace has the extra time of its vector, so that a slow link counts as much as slow tasks.
fn with_link(round: &Round<'_>, position: usize, mut pace: Pace) -> PlannedWorker {
    let worker = round.workers[position];
    let own = round.links.own(worker);
    pace.window_s = own.longest_s() - round.links.others.longest_s();
    PlannedWorker { position, worker, pace, share: 0, own }
}

pub(super) fn position(round: &Round<'_>, worker: WorkerId) -> Option<usize> {
    // Usually all workers are available.
    let guess = worker.slot();
    if round.workers.get(guess) == Some(&worker) { Some(guess) } else { round.workers.binary_search(&worker).ok() }
}
