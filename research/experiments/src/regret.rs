//! The regret of allocations: their excess cost over the best one, by the true means.

use std::sync::Arc;

use ata_scheduler::{Collect, Rule, SchedulerRng, ras};
use ata_simulator::{IterationStart, LawError, TimeLaws, WorkerLaw};
use ata_types::WorkerId;
use rand::SeedableRng;

use crate::exponentials::mean_of_maximum;

/// The sum of the regret of allocations: their excess cost over the best ones to the available workers by the true means at the time.
pub(super) struct Regret {
    /// The means of the workers' laws, by slot.
    of_laws: Vec<f64>,
    /// The rates of the workers, if all times are exponential.
    rates: Option<Vec<f64>>,
    budget: u64,
    best: Option<Best>,
    /// The last set of employed workers, and its regret.
    employed: (Vec<u64>, f64),
    /// The regret of the current iteration, if it is defined.
    pending: Option<f64>,
    /// The sum so far; `None` if it is not defined for this policy.
    pub(super) sum: Option<f64>,
}

struct Best {
    workers: Arc<[WorkerId]>,
    changes: usize,
    means: Vec<f64>,
    /// The cost of the allocation, ℓ(a*, μ).
    least: f64,
}

impl Regret {
    pub(super) fn new(laws: &TimeLaws, workers: u32, budget: u64) -> Result<Self, LawError> {
        let laws = (1..=workers).map(|worker| laws.of_worker(worker, workers)).collect::<Result<Vec<_>, _>>()?;
        let of_laws = laws.iter().map(WorkerLaw::mean).collect();
        let rates = laws.iter().map(WorkerLaw::exponential_rate).collect();
        let employed = (Vec::new(), 0.0);
        Ok(Self { of_laws, rates, budget, best: None, employed, pending: Some(0.0), sum: Some(0.0) })
    }

    pub(super) fn started(&mut self, start: &IterationStart<'_>) {
        let decision = start.decision;
        self.pending = match decision.rule {
            // Before the first observation there is no allocation, and so no regret.
            _ if matches!(decision.collect, Collect::Race { .. }) => Some(0.0),
            _ if !matches!(decision.collect, Collect::All | Collect::InParts { .. }) => None,
            // With a queue or with copies, the allocation does not determine what is computed.
            Rule::Uniform if matches!(decision.collect, Collect::InParts { .. }) => None,
            Rule::Ras | Rule::WarmUp { .. } | Rule::Uniform | Rule::Named(_) => Some(self.proxy(start)),
            Rule::Fastest { .. } => self.exact(start),
            Rule::Racing | Rule::Asynchronous => None,
        };
    }

    pub(super) fn stepped(&mut self) {
        self.sum = self.sum.zip(self.pending).map(|(sum, regret)| sum + regret);
    }

    /// Returns the proxy regret ℓ(a, μ) − ℓ(a*, μ), ℓ(a, μ) = max_i a_i μ_i (ATA paper, section 4).
    fn proxy(&mut self, start: &IterationStart<'_>) -> f64 {
        let holds = |best: &Best| best.changes == start.changes && Arc::ptr_eq(&best.workers, start.workers);
        if !self.best.as_ref().is_some_and(holds) {
            let means = start.means(&self.of_laws);
            let allocation = ras(&means, self.budget, &mut SchedulerRng::seed_from_u64(0));
            let least = cost(allocation.into_iter().enumerate(), &means);
            let (workers, changes) = (Arc::clone(start.workers), start.changes);
            self.best = Some(Best { workers, changes, means, least });
        }
        self.best.as_ref().map_or(0.0, |best| cost(start.decision.allocation.some(), &best.means) - best.least)
    }

    /// Returns the regret for exponential times: E max over the employed − E max over the r fastest (arXiv 2202.08302, Proposition 1).
    fn exact(&mut self, start: &IterationStart<'_>) -> Option<f64> {
        let rates = self.rates.as_ref()?;
        let allocation = &start.decision.allocation;
        if self.employed.0 != **allocation {
            let present = || start.workers.iter().map(|worker| rates[worker.slot()]);
            let chosen: Vec<f64> =
                present().zip(allocation.iter()).filter(|(_, tasks)| **tasks > 0).map(|(rate, _)| rate).collect();
            let mut fastest: Vec<f64> = present().collect();
            fastest.sort_by(|a, b| b.total_cmp(a));
            fastest.truncate(chosen.len());
            let regret = mean_of_maximum(&chosen) - mean_of_maximum(&fastest);
            self.employed = (allocation.to_vec(), regret);
        }
        Some(self.employed.1)
    }
}

fn cost(allocation: impl Iterator<Item = (usize, u64)>, means: &[f64]) -> f64 {
    allocation.map(|(i, tasks)| tasks as f64 * means[i]).fold(0.0, f64::max)
}
