//! Exponentially weighted means of the workers' task times.

use super::shares::LEAST_S;
use super::{Arguments, PolicyError, PolicyState, Round, from_state, to_state, trimmed};
use ata_types::WorkerId;

/// The default weight of the newest task time.
const WEIGHT: f64 = 0.2;

/// The means of the workers, each of which moves by a share of the difference towards each new task time.
#[derive(Clone, Debug)]
pub(super) struct MovingMeans {
    weight: f64,
    /// Seconds per task, by slot.
    means_s: Vec<Option<f64>>,
}

impl MovingMeans {
    pub(super) fn from_arguments(arguments: &mut Arguments<'_>) -> Result<Self, PolicyError> {
        Ok(Self { weight: arguments.fraction("weight")?.unwrap_or(WEIGHT), means_s: Vec::new() })
    }

    /// Updates the mean: m ← (1 − w)·m + w·x. The first time is taken as the mean.
    pub(super) fn observe(&mut self, worker: WorkerId, busy_s: f64) {
        let weight = self.weight;
        let mean_s = self.slot(worker);
        *mean_s = Some(mean_s.map_or(busy_s, |mean_s| (1.0 - weight) * mean_s + weight * busy_s));
    }

    pub(super) fn set(&mut self, worker: WorkerId, mean_s: f64) {
        *self.slot(worker) = Some(mean_s);
    }

    /// Adopts the plain means of workers that are known from elsewhere: from a warm start, or from a previous policy.
    pub(super) fn adopt(&mut self, round: &Round<'_>) {
        for (i, &worker) in round.workers.iter().enumerate() {
            let known = round.of(i).mean_s();
            let own = self.slot(worker);
            *own = own.or(known);
        }
    }

    /// Returns the means of the workers of a round. They are positive, except for workers never observed, whose mean is 0.
    pub(super) fn of(&self, round: &Round<'_>) -> Vec<f64> {
        round.workers.iter().map(|worker| self.mean_s(*worker).map_or(0.0, |mean_s| mean_s.max(LEAST_S))).collect()
    }

    pub(super) fn mean_s(&self, worker: WorkerId) -> Option<f64> {
        self.means_s.get(worker.slot()).copied().flatten()
    }

    pub(super) fn forget(&mut self, worker: WorkerId) {
        *self.slot(worker) = None;
    }

    pub(super) fn save(&self) -> PolicyState {
        to_state(&trimmed(&self.means_s))
    }

    pub(super) fn restore(&mut self, state: PolicyState) -> Result<(), String> {
        let means_s: Vec<Option<f64>> = from_state(state)?;
        if !means_s.iter().flatten().all(|mean_s| mean_s.is_finite() && *mean_s >= 0.0) {
            return Err("a mean time is negative".into());
        }
        self.means_s = means_s;
        Ok(())
    }

    fn slot(&mut self, worker: WorkerId) -> &mut Option<f64> {
        self.means_s.resize(self.means_s.len().max(worker.slot() + 1), None);
        &mut self.means_s[worker.slot()]
    }
}
