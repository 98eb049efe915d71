//! The course of a run, at some of its iterations.

use ata_scheduler::Ledger;

/// Checkpoints on a linear axis.
const LINEAR: u64 = 200;

/// Checkpoints per decade on a logarithmic one.
const PER_DECADE: f64 = 30.0;

/// Windows of the allocation over time.
const WINDOWS: u64 = 100;

/// Sums up to an iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checkpoint {
    /// The iteration, k.
    pub iteration: u64,
    /// Sum of the runtimes C_k.
    pub runtime: f64,
    /// Sum of the total worker times.
    pub worker_time: f64,
    /// Cumulative regret, if it is known.
    pub regret: Option<f64>,
    /// Mean objective since the last checkpoint, if something is learned.
    pub objective: Option<f64>,
}

/// The course of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Checkpoints, ascending.
    pub checkpoints: Vec<Checkpoint>,
    /// Mean tasks per iteration and worker, in the window that ends at the iteration; empty unless requested.
    pub allocation: Vec<(u64, Vec<f64>)>,
}

/// Fills a [`Trace`].
pub(super) struct Tracer {
    trace: Trace,
    iterations: u64,
    next: u64,
    /// Iterations per window; `None` if allocations are not wanted.
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

    /// Adds a checkpoint or a window, if one is due after the committed iterations.
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

    /// The end of the run is a checkpoint too.
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

/// The checkpoint after `iteration`: the same iterations for every run of an experiment.
fn next_checkpoint(iteration: u64, iterations: u64) -> u64 {
    let step = (iterations / LINEAR).max(1);
    let linear = (iteration / step + 1) * step;
    let exponent = ((iteration as f64).log10() * PER_DECADE).floor();
    // A checkpoint may round to the iteration itself, but not many in a row.
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
