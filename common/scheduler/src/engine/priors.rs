//! Warm start: the statistics of an earlier run count until they have faded or are contradicted.

use serde::{Deserialize, Serialize};

use crate::statistics::WorkerStatistics;
use ata_types::{Iteration, WorkerId};

/// The most observations that a prior counts for: enough to skip the warm-up of ATA-Empirical (about 70), and few compared
/// with what a run of a thousand iterations observes.
const MAX_PRIOR_TASKS: u64 = 256;

/// The number of iterations in which a prior loses half of its weight. A wrong prior that is never tested does not last, and a right
/// one need not be learned again early in the run.
const HALF_LIFE_ITERATIONS: u64 = 1000;

/// The relative error below which a prior does little harm, however significant the difference.
const TOLERATED_ERROR: f64 = 0.25;

/// The number of standard errors at which this run's observations contradict a prior: by chance, this happens one time in 400.
const CONTRADICTION: f64 = 3.0;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Prior {
    earlier: WorkerStatistics,
    own: WorkerStatistics,
}

impl Prior {
    fn statistics(&self) -> WorkerStatistics {
        self.own.plus(&self.earlier)
    }

    fn is_contradicted(&self) -> bool {
        let (Some(mean_s), Some(earlier_s)) = (self.own.mean_s(), self.earlier.mean_s()) else { return false };
        let variance_s2 = (self.earlier.squares_s2 / self.earlier.observed as f64 - earlier_s * earlier_s).max(0.0);
        // A task costs less in a larger batch, so the observations are compared with batches of the same sizes.
        let earlier_s = match self.earlier.line() {
            Some(line) if self.own.batches.tasks > 0.0 => {
                line.per_task_s + line.fixed_s * self.own.batches.count / self.own.batches.tasks
            }
            _ => earlier_s,
        };
        let standard_error_s = (variance_s2 / self.own.observed as f64).sqrt();
        (mean_s - earlier_s).abs() > (CONTRADICTION * standard_error_s).max(TOLERATED_ERROR * earlier_s)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Priors {
    /// The priors by slot; empty if there were none.
    known: Vec<Option<Prior>>,
    /// Whether a worker's prior was added, by slot: a prior that was dropped must not return with its worker.
    heard: Vec<bool>,
    /// Workers with a prior that were observed since the last review.
    observed: Vec<WorkerId>,
    /// The number of priors that were tested by observations in this run.
    tested: u64,
    wrong: u64,
}

impl Priors {
    /// Adds what an earlier run learned about a worker, and returns what is now known about the worker; `None` if
    /// nothing was learned, or it was added before.
    pub(super) fn add(&mut self, worker: WorkerId, earlier: WorkerStatistics) -> Option<WorkerStatistics> {
        if !earlier.is_valid() || earlier.observed == 0 || earlier.total_s <= 0.0 {
            return None;
        }
        let prior = Prior { earlier: earlier.capped(MAX_PRIOR_TASKS), own: WorkerStatistics::default() };
        self.heard.resize(self.heard.len().max(worker.slot() + 1), false);
        if std::mem::replace(&mut self.heard[worker.slot()], true) {
            return None;
        }
        self.known.resize(self.known.len().max(worker.slot() + 1), None);
        self.known[worker.slot()] = Some(prior);
        Some(prior.statistics())
    }

    pub(super) fn forget(&mut self, worker: WorkerId) {
        if let Some(prior) = self.known.get_mut(worker.slot()) {
            *prior = None;
        }
        if let Some(heard) = self.heard.get_mut(worker.slot()) {
            *heard = false;
        }
        while self.known.pop_if(|prior| prior.is_none()).is_some() {}
        while self.heard.pop_if(|heard| !*heard).is_some() {}
    }

    pub(super) fn is_valid(&self, workers: usize) -> bool {
        let possible = |prior: &Prior| prior.earlier.is_valid() && prior.own.is_valid();
        self.known.len() <= workers && self.known.iter().flatten().all(possible)
    }

    /// Returns the number of slots up to the last one that contains anything.
    pub(super) fn slots(&self) -> usize {
        self.known.len().max(self.heard.len())
    }

    pub(super) fn observe(&mut self, worker: WorkerId, observe: impl FnOnce(&mut WorkerStatistics)) {
        let Some(Some(prior)) = self.known.get_mut(worker.slot()) else { return };
        let before = prior.own.observed;
        observe(&mut prior.own);
        self.tested += u64::from(before == 0 && prior.own.observed > 0);
        if self.observed.last() != Some(&worker) {
            self.observed.push(worker);
        }
    }

    /// Reviews the priors at the start of an iteration: fades them when it is time, and drops those that observations contradict, or
    /// all of them if most of those tested were contradicted. Updates what is known about the workers; returns those that
    /// this run has not observed and for which this has changed.
    pub(super) fn review(&mut self, iteration: Iteration, statistics: &mut [WorkerStatistics]) -> Vec<WorkerId> {
        let mut changed = Vec::new();
        let fades = iteration.number().is_multiple_of(HALF_LIFE_ITERATIONS);
        if self.known.is_empty() || (self.observed.is_empty() && !fades) {
            return changed;
        }
        for worker in std::mem::take(&mut self.observed) {
            let Some(Some(prior)) = self.known.get_mut(worker.slot()) else { continue };
            if prior.is_contradicted() {
                self.wrong += 1;
                prior.earlier = WorkerStatistics::default();
            }
            statistics[worker.slot()] = prior.statistics();
            if prior.earlier.observed == 0 {
                self.known[worker.slot()] = None;
            }
        }
        let most_are_wrong = self.wrong >= 2 && 2 * self.wrong > self.tested;
        if !fades && !most_are_wrong {
            return changed;
        }
        for (slot, (prior, statistics)) in self.known.iter_mut().zip(statistics).enumerate() {
            let Some(known) = prior else { continue };
            if known.own.observed == 0 {
                changed.push(WorkerId::from_slot(slot));
            }
            if fades {
                known.earlier = known.earlier.capped(known.earlier.observed / 2);
            }
            if most_are_wrong {
                known.earlier = WorkerStatistics::default();
            }
            *statistics = known.statistics();
            if known.earlier.observed == 0 {
                *prior = None;
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Observations within three standard errors of a prior leave it; others replace it. A lower cost per task in a larger batch is no
    /// contradiction.
    #[test]
    fn observations_are_compared_with_it() {
        let observed = 100;
        let singly = WorkerStatistics { observed, total_s: 200.0, squares_s2: 500.0, ..WorkerStatistics::default() };
        let mut batches = WorkerStatistics::default();
        for tasks in [50, 60, 70] {
            batches.observe_batch(tasks, 20.0 + 0.5 * tasks as f64);
        }
        for (earlier, busy_s, is_kept) in
            [(singly, 4.5, true), (singly, 6.0, false), (batches, 20.5, true), (batches, 200.0, false)]
        {
            let (worker, mut priors) = (WorkerId::from_slot(0), Priors::default());
            let mut statistics = [priors.add(worker, earlier).unwrap()];
            assert_eq!(priors.add(worker, earlier), None, "it counts once");
            let fuses = earlier == batches;
            priors.observe(worker, |own| if fuses { own.observe_batch(1, busy_s) } else { own.observe(busy_s) });
            priors.review(Iteration(2), &mut statistics);
            let left = if is_kept { earlier.observed } else { 0 };
            assert_eq!(statistics[0].observed, 1 + left, "{busy_s}");
        }
    }
}
