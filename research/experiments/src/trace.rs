//! The progress of a run, at some of its iterations.

use ata_scheduler::Ledger;

/// The number of checkpoints for a linear axis.
const LINEAR: u64 = 200;
/// The number of checkpoints per decade for a logarithmic axis.
const PER_DECADE: f64 = 30.0;
/// The number of windows of the allocation over time.
const WINDOWS: u64 = 100;

/// Sums up to an iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checkpoint {
    /// The iteration, k.
    pub iteration: u64,
    /// The sum of the runtimes C_k.
    pub runtime: f64,
    /// The sum of the total worker times.
    pub worker_time: f64,
    /// The cumulative regret, if it is defined.
    pub regret: Option<f64>,
    /// The mean objective since the last checkpoint, if the run trains something.
    pub objective: Option<f64>,
}

/// The progress of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The checkpoints, in ascending order.
    pub checkpoints: Vec<Checkpoint>,
    /// The mean number of tasks per iteration of each worker, in the window that ends at the iteration; empty unless requested.
    pub allocation: Vec<(u64, Vec<f64>)>,
}

pub(super) struct Tracer {
    trace: Trace,
    iterations: u64,
    next: u64,
    /// The number of iterations per window; `None` if allocations are not recorded.
    window: Option<u64>,
    tasks_before: Vec<u64>,
    objective: (f64, u64),
}

impl Tracer {
    pub(super) fn new(iterations: u64, with_allocation: bool) -> Self {
        Self {
            trace: Trace::default(),
            iterations,
            next: 1,
            window: with_allocation.then(|| (iterations / WINDOWS).max(1)),
            tasks_before: Vec::new(),
            objective: (0.0, 0),
        }
    }

    pub(super) fn learned(&mut self, objective: f64) {
        self.objective.0 += objective;
        self.objective.1 += 1;
    }

    /// Adds a checkpoint or a window if one is due.
    pub(super) fn committed(&mut self, ledger: &Ledger, regret: Option<f64>) {
        if ledger.iterations >= self.next {
            self.checkpoint(ledger, regret);
            self.next = next_checkpoint(ledger.iterations, self.iterations);
        }
        if let Some(window) = self.window
            && ledger.iterations > 0
            && ledger.iterations.is_multiple_of(window)
            && self.trace.allocation.last().is_none_or(|(last, _)| *last < ledger.iterations)
        {
            self.tasks_before.resize(ledger.workers.len(), 0);
            let tasks = ledger.workers.iter().map(|worker| worker.tasks_applied);
            let mean = tasks.zip(&mut self.tasks_before).map(|(tasks, before)| {
                let new = tasks - std::mem::replace(before, tasks);
                new as f64 / window as f64
            });
            self.trace.allocation.push((ledger.iterations, mean.collect()));
        }
    }

    /// Returns the trace, with a last checkpoint at the end of the run.
    pub(super) fn finish(mut self, ledger: &Ledger, regret: Option<f64>) -> Trace {
        self.committed(ledger, regret);
        if self.trace.checkpoints.last().is_none_or(|last| last.iteration < ledger.iterations) {
            self.checkpoint(ledger, regret);
        }
        self.trace
    }

    fn checkpoint(&mut self, ledger: &Ledger, regret: Option<f64>) {
        let (sum, count) = std::mem::take(&mut self.objective);
        self.trace.checkpoints.push(Checkpoint {
            iteration: ledger.iterations,
            runtime: ledger.iteration_time_s,
            worker_time: ledger.total_worker_time_s,
            regret,
            objective: (count > 0).then(|| sum / count as f64),
        });
    }
}

/// Returns the next checkpoint after `iteration`. All runs of an experiment have the same checkpoints.
fn next_checkpoint(iteration: u64, iterations: u64) -> u64 {
    let step = (iterations / LINEAR).max(1);
    let linear = (iteration / step + 1) * step;
    let exponent = ((iteration as f64).log10() * PER_DECADE).floor();
    // A checkpoint may round to the iteration itself, but only a few in a row do.
    let logarithmic = (1..=PER_DECADE as i32)
        .map(|further| 10_f64.powf((exponent + f64::from(further)) / PER_DECADE).round() as u64)
        .find(|&next| next > iteration)
        .unwrap_or(u64::MAX);
    linear.min(logarithmic).min(iterations.max(iteration + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_dense_early_and_even_late() {
        let mut checkpoints = vec![1];
        while *checkpoints.last().unwrap() < 10_000 {
            checkpoints.push(next_checkpoint(*checkpoints.last().unwrap(), 10_000));
        }
        assert_eq!(checkpoints[..6], [1, 2, 3, 4, 5, 6]);
        assert!(checkpoints.is_sorted_by(|a, b| a < b) && checkpoints.len() < 400);
        assert!((1..=200).all(|multiple| checkpoints.contains(&(50 * multiple))));
    }
}
