//! Probes of workers without a share.
//!
//! A policy asks for a probe to learn how fast an idle worker is now. An engine gives the worker one more task, which no step waits
//! for, and cancels it once the step has its tasks. Workers that step together cannot be cancelled. So a probe is a share of one
//! task, taken from the largest share. Since the step waits for it, it must not cost too much.

use serde::{Deserialize, Serialize};

use ata_types::Iteration;

/// The most by which probes may lengthen a run, as a share of it. At half this value, a worker that has become fast again is found
/// half as soon; at twice, the slowest worker may cost twice as much.
const MOST: f64 = 0.01;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct ProbeBudget {
    /// The cost in iterations.
    spent: f64,
}

impl ProbeBudget {
    /// Gives the workers at these positions a share of one task each, if that is not too expensive. `expected_s` returns the
    /// seconds that a worker is expected to need for some tasks, if it was observed.
    pub(super) fn grant(
        &mut self,
        probes: &[usize],
        shares: &mut [u64],
        iteration: Iteration,
        expected_s: impl Fn(usize, u64) -> Option<f64>,
    ) {
        if probes.is_empty() {
            return;
        }
        let of_share_s = |(i, tasks): (usize, &u64)| if *tasks > 0 { expected_s(i, *tasks) } else { None };
        let longest_s = shares.iter().enumerate().filter_map(of_share_s).fold(0.0, f64::max);
        for &probe in probes.iter().filter(|&&probe| shares[probe] == 0).collect::<Vec<_>>() {
            let later_s = expected_s(probe, 1).map_or(0.0, |probe_s| (probe_s - longest_s).max(0.0));
            let cost = if later_s > 0.0 { later_s / longest_s } else { 0.0 };
            let Some(largest) = shares.iter_mut().max_by_key(|tasks| **tasks).filter(|tasks| **tasks > 1) else {
                return;
            };
            // An infinite or unknown cost is too much.
            if self.spent + cost <= MOST * iteration.number() as f64 {
                self.spent += cost;
                *largest -= 1;
                shares[probe] = 1;
            }
        }
    }

    pub(super) fn is_valid(self) -> bool {
        (0.0..=crate::batches::MOST).contains(&self.spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that would make the step three times as long is probed once in 200 iterations; one that would not, always.
    #[test]
    fn probes_cost_a_hundredth() {
        let mut budget = ProbeBudget::default();
        let mut probed = [0; 2];
        for k in 1..=10_000 {
            let mut shares = [10, 5, 0, 0];
            budget.grant(&[2, 3], &mut shares, Iteration(k), |i, tasks| Some([0.1, 0.2, 3.0, 0.5][i] * tasks as f64));
            assert_eq!(shares.iter().sum::<u64>(), 15);
            probed = [probed[0] + shares[2], probed[1] + shares[3]];
        }
        assert_eq!(probed, [50, 10_000]);
        let mut shares = [1, 1, 0];
        ProbeBudget::default().grant(&[2], &mut shares, Iteration(1), |_, _| Some(1.0));
        assert_eq!(shares, [1, 1, 0], "nobody loses its only task");
    }
}
