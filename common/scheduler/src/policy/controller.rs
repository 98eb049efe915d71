//! Controller: a policy that moves shares until all workers take the same time.
//!
//! Source: Tyagi, Sharma, "OmniLearn: A Framework for Distributed Deep Learning Over Heterogeneous Clusters", IEEE
//! TPDS 2025 (arXiv 2503.17469): a proportional controller with a dead band.

use serde::{Deserialize, Serialize};

use super::shares::{LEAST_S, Tally, in_proportion, new_workers_first};
use super::{
    Decision, Policy, PolicyEntry, PolicyKind, PolicyState, Round, SchedulerRng, from_state, save_trimmed, to_state,
};
use crate::allocation::Rule;
use ata_types::WorkerId;

/// The policy's entry in the registry.
pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "controller",
    about: "shares move until all workers take the same time for theirs (OmniLearn); no exploration",
    parameters: "gain=SHARE of the error (default: 0.5), dead_band=SHARE of the time (default: 0.05)",
    kind: PolicyKind::Barrier,
    build: |arguments| {
        let gain = arguments.fraction("gain")?.unwrap_or(0.5);
        let dead_band = arguments.positive("dead_band")?.unwrap_or(0.05);
        Ok(Box::new(Controller { gain, dead_band, ..Controller::default() }))
    },
};

/// The largest relative error of a time that is too short: one lucky task does not multiply a share.
const LARGEST_ERROR: f64 = 2.0;

/// The smallest share, in tasks: far too little for a task, but enough for calculations.
const LEAST_SHARE: f64 = 1e-9;

/// Gives each worker an exact share b_i, which moves after an iteration by −gain·(b_i/t_i)(t_i − t̄), where t_i is the seconds of
/// its tasks in it and t̄ their mean, if they differ by more than the dead band. Then the shares are scaled to sum B, and rounded
/// by largest remainder.
///
/// Each worker is tried once first, and then begins with an equal share. One whose share rounds to 0 has no time, so its share only
/// moves with the scale.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Controller {
    #[serde(skip)]
    gain: f64,
    #[serde(skip)]
    dead_band: f64,
    /// Exact shares in tasks, by slot; `None` until a worker was tried.
    #[serde(serialize_with = "save_trimmed")]
    shares: Vec<Option<f64>>,
    done: Tally,
}

impl Controller {
    /// Returns the new share after an iteration in which its tasks took `time_s` seconds and those of all workers `mean_s` on average.
    fn moved(&self, share: f64, time_s: f64, mean_s: f64) -> f64 {
        let error = (mean_s - time_s) / time_s;
        if error.abs() <= self.dead_band { share } else { share * (1.0 + self.gain * error.min(LARGEST_ERROR)) }
    }

    fn follow(&mut self, round: &Round<'_>) {
        let equal = round.budget as f64 / round.workers.len() as f64;
        self.shares.resize(self.shares.len().max(round.statistics.len()), None);
        let mut times = Vec::new();
        for (i, &worker) in round.workers.iter().enumerate().filter(|(i, _)| round.of(*i).observed > 0) {
            let share = &mut self.shares[worker.slot()];
            let was_tried = share.is_none();
            *share = share.or(Some(equal));
            if let Some((tasks, busy_s)) = self.done.of(worker) {
                // A trial is one task, regardless of the share.
                let scale = if was_tried { equal.max(1.0) / tasks as f64 } else { 1.0 };
                times.push((i, (busy_s * scale).max(LEAST_S)));
            }
        }
        self.done = Tally::default();
        let mean_s = times.iter().map(|(_, time_s)| time_s).sum::<f64>() / times.len().max(1) as f64;
        for (i, time_s) in times {
            let slot = round.workers[i].slot();
            self.shares[slot] = self.shares[slot].map(|share| self.moved(share, time_s, mean_s));
        }
        // The shares are scaled to sum B. While some workers are new, an equal share of B is left for each of them.
        let shares = &mut self.shares;
        let present = || round.workers.iter().map(|worker| worker.slot());
        let known: Vec<f64> = present().filter_map(|slot| shares[slot]).collect();
        let scale = equal * known.len() as f64 / known.iter().sum::<f64>();
        for slot in present() {
            shares[slot] = shares[slot].map(|share| (share * scale).max(LEAST_SHARE));
        }
    }
}

impl Policy for Controller {
    fn name(&self) -> &'static str {
        "controller"
    }

    fn observe(&mut self, worker: WorkerId, busy_s: f64) {
        self.done.add(worker, 1, busy_s);
    }

    fn observe_batch(&mut self, worker: WorkerId, tasks: u64, busy_s: f64) {
        self.done.add(worker, tasks, busy_s);
    }

    fn forget(&mut self, worker: WorkerId) {
        self.done.forget(worker);
        if let Some(share) = self.shares.get_mut(worker.slot()) {
            *share = None;
        }
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        self.follow(round);
        let (allocation, rule) = new_workers_first(round, Rule::Named("controller"), rng, |known, budget, rng| {
            let share = |&i: &usize| self.shares[round.workers[i].slot()].unwrap_or(LEAST_SHARE);
            let shares: Vec<f64> = known.iter().map(share).collect();
            in_proportion(&shares, budget, rng)
        });
        Decision::barrier(allocation, Vec::new(), rule)
    }

    fn save(&self) -> PolicyState {
        to_state(self)
    }

    fn restore(&mut self, state: PolicyState) -> Result<(), String> {
        let state: Self = from_state(state)?;
        let possible = LEAST_SHARE..=1e15;
        if !state.done.is_valid() || !state.shares.iter().flatten().all(|share| possible.contains(share)) {
            return Err("a task time is negative, or a share is not positive".into());
        }
        (self.shares, self.done) = (state.shares, state.done);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::{built, decide};

    fn controller(gain: f64, dead_band: f64, shares: &[f64]) -> Controller {
        let shares = shares.iter().copied().map(Some).collect();
        Controller { gain, dead_band, shares, done: Tally::default() }
    }

    /// Runs an iteration in which the workers' shares took these seconds; returns the exact shares after it.
    fn shares_after(controller: &mut Controller, budget: u64, times_s: &[f64]) -> Vec<f64> {
        for (slot, &time_s) in times_s.iter().enumerate().filter(|(_, time_s)| **time_s > 0.0) {
            controller.observe_batch(WorkerId::from_slot(slot), 3, time_s);
        }
        decide(controller, 9, budget, &vec![(1, 1.0); times_s.len()]);
        controller.shares.iter().map(|share| share.unwrap()).collect()
    }

    /// OmniLearn (arXiv 2503.17469): b_i moves by −gain·(b_i/t_i)(t_i − t̄); then the shares are scaled to sum B again.
    #[test]
    fn shares_move_towards_equal_times() {
        for (dead_band, shares, times_s, ratio) in [
            // With t̄ = 3: 6 + 0.5·6/2·1 = 7.5, and 6 − 0.5·6/4·1 = 5.25.
            (0.05, [6.0, 6.0], [2.0, 4.0], 7.5 / 5.25),
            // The dead band leaves small differences alone.
            (0.05, [6.0, 6.0], [2.0, 2.1], 1.0),
            (0.01, [6.0, 6.0], [2.0, 2.1], (1.0 + 0.5 * 0.025) / (1.0 - 0.5 * 0.05 / 2.1)),
            // A time much shorter than the mean, such as a clock's zero, at most doubles a share.
            (0.05, [6.0, 6.0], [1e-200, 1.0], 2.0 / 0.75),
            // There is no exploration: a share that rounds to 0 has no time, and only moves with the scale.
            (0.05, [11.6, 0.4], [5.0, 0.0], 29.0),
        ] {
            let shares = shares_after(&mut controller(0.5, dead_band, &shares), 12, &times_s);
            assert!((shares[0] / shares[1] - ratio).abs() < 1e-9 && (shares[0] + shares[1] - 12.0).abs() < 1e-9);
        }
    }

    #[test]
    fn converges_to_equal_times() {
        let mut policy = built("controller");
        let mut allocation = decide(&mut *policy, 1, 70, &[(0, 0.0); 3]).allocation;
        assert!(allocation.iter().all(|tasks| [23, 24].contains(tasks)));
        for iteration in 2..60 {
            for (slot, (&tasks, time_s)) in allocation.iter().zip([1.0, 2.0, 4.0]).enumerate() {
                (0..tasks).for_each(|_| policy.observe(WorkerId::from_slot(slot), time_s));
            }
            allocation = decide(&mut *policy, iteration, 70, &[(1, 1.0); 3]).allocation;
        }
        let times_s = [allocation[0], 2 * allocation[1], 4 * allocation[2]];
        assert!(times_s.iter().all(|time_s| (36..=44).contains(time_s)), "{allocation:?}");
    }

    /// A worker that was tried begins with an equal share; its one task stands for all tasks of that share.
    #[test]
    fn a_newcomer_begins_with_an_equal_share() {
        let mut policy = controller(0.5, 0.05, &[8.0, 4.0]);
        let with_new = [(9, 9.0), (9, 18.0), (0, 0.0)];
        assert_eq!(decide(&mut policy, 9, 12, &with_new).allocation.iter().sum::<u64>(), 12);
        for (slot, tasks, time_s) in [(0, 7, 8.0), (1, 4, 8.0), (2, 1, 2.0)] {
            policy.observe_batch(WorkerId::from_slot(slot), tasks, time_s);
        }
        decide(&mut policy, 10, 12, &[(16, 17.0), (13, 26.0), (1, 2.0)]);
        let shares: Vec<f64> = policy.shares.iter().flatten().copied().collect();
        let expected = [16.0 / 3.0, 8.0 / 3.0, 4.0];
        assert!(shares.iter().zip(expected).all(|(share, expected)| (share - expected).abs() < 1e-9), "{shares:?}");
    }
}
