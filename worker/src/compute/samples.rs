//! Handles samples that cannot be read or have no finite gradient.

use std::time::Duration;

use ata_data::DataError;
use ata_learn::{Learner, LearnerError, Sifted, TaskGradient, finite};
use ata_sums::{GradientSum, Quantizer, maxima};
use ata_types::{Iteration, TaskRange};

use super::Worker;

/// The waits between attempts to read the samples of a task, in milliseconds. They add up to 1.3 s, after which a busy disk has usually
/// recovered. If it has not, the lease fails, and another worker computes it. The total is far below the shortest lease timeout.
pub(super) const READ_WAITS_MS: [u64; 7] = [10, 20, 40, 80, 160, 320, 640];

/// The maximum number of bad samples of a task that are named in an error.
const MOST_NAMED: usize = 8;

impl Worker<'_> {
    /// Returns tasks of an iteration as the learner numbers them. If tasks are counted through the run, all of it is one iteration.
    pub(super) fn numbered(&self, iteration: Iteration, tasks: TaskRange) -> (Iteration, TaskRange) {
        if !self.run.counts_tasks() {
            return (iteration, tasks);
        }
        (Iteration::FIRST, TaskRange { first: self.position.saturating_add(tasks.first), ..tasks })
    }

    /// Adds the gradients of a batch of tasks to `sum`, and returns their loss. If they are not finite, computes one task at a time.
    pub(super) fn add_batch(
        &mut self,
        (iteration, tasks): (Iteration, TaskRange),
        quantizer: &Quantizer,
        sum: &mut GradientSum,
    ) -> Result<f64, LearnerError> {
        match self.retried(|learner| learner.add(iteration, tasks, &mut *sum, quantizer)) {
            Err(error @ (LearnerError::NotFinite(_) | LearnerError::Loss(_))) if tasks.count == 1 => {
                let task = self.without_bad_samples(iteration, tasks.first, error)?;
                sum.add(&task.gradient, 1, quantizer)?;
                Ok(task.loss)
            }
            Err(LearnerError::NotFinite(_) | LearnerError::Loss(_)) => {
                let mut single = |task| self.add_batch((iteration, TaskRange::single(task)), quantizer, sum);
                tasks.indices().map(&mut single).sum()
            }
            result => result,
        }
    }

    /// Returns the largest magnitudes in the gradient of an iteration's first task, or in what stands for it.
    pub(super) fn first_maxima(&mut self, iteration: Iteration) -> Result<Vec<f32>, LearnerError> {
        if self.local.is_some() {
            return self.first_step_maxima();
        }
        let (iteration, first) = self.numbered(iteration, TaskRange::single(0));
        let first = self.task_gradient(iteration, first.first)?;
        Ok(maxima(&first.gradient, &self.sizes)?)
    }

    /// Returns the gradient of a task. If it is not finite, the task is computed without its bad samples.
    pub(super) fn task_gradient(&mut self, iteration: Iteration, index: u64) -> Result<TaskGradient, LearnerError> {
        let task = self.retried(|learner| learner.gradient(iteration, index))?;
        match maxima(&task.gradient, &self.sizes).map(drop).map_err(Into::into).and(finite(task.loss).map(drop)) {
            Ok(()) => Ok(task),
            Err(error) => self.without_bad_samples(iteration, index, error),
        }
    }

    /// Computes a failed task without its bad samples, or returns an error that names them.
    fn without_bad_samples(
        &mut self,
        iteration: Iteration,
        task: u64,
        error: LearnerError,
    ) -> Result<TaskGradient, LearnerError> {
        match self.retried(|learner| learner.sift(iteration, task))? {
            Some(Sifted { bad, rest: Some(rest) }) if !bad.is_empty() && self.run.skip_bad_samples => {
                if !rest.is_finite() {
                    return Err(error);
                }
                for sample in bad {
                    if self.skipped.insert(sample) {
                        tracing::warn!(
                            sample,
                            "a sample of the training data gives no finite gradient: it is left out"
                        );
                    }
                }
                Ok(rest)
            }
            Some(Sifted { bad, rest }) if !bad.is_empty() => {
                Err(LearnerError::Problem(named(&bad, rest.is_none(), &error)))
            }
            _ => Err(error),
        }
    }

    fn retried<T>(
        &mut self,
        mut compute: impl FnMut(&mut dyn Learner) -> Result<T, LearnerError>,
    ) -> Result<T, LearnerError> {
        let mut waits_ms = READ_WAITS_MS.into_iter();
        loop {
            let result = compute(&mut *self.learner);
            let is_unreadable = matches!(result, Err(LearnerError::Data(DataError::Io { .. })));
            match waits_ms.next() {
                Some(wait_ms) if is_unreadable && !self.cancelled.is_set() => {
                    self.cancelled.wait(Duration::from_millis(wait_ms));
                }
                _ => return result,
            }
        }
    }
}

/// Returns a message that says why the task with these bad samples cannot be computed, and what helps.
fn named(bad: &[u64], all: bool, error: &LearnerError) -> String {
    let mut names: Vec<String> = bad.iter().take(MOST_NAMED).map(u64::to_string).collect();
    if bad.len() > MOST_NAMED {
        names.push("…".into());
    }
    let which = if bad.len() == 1 { "sample" } else { "samples" };
    let verb = if bad.len() == 1 { "gives" } else { "give" };
    let way_out = if all {
        // If a task could be left without samples, a diverging training would continue without gradients.
        "no other sample is in the task. If the data is sound, the training diverges: a lower learning rate may help. Otherwise \
         remove it, or start with a larger --task-batch and --on-bad-sample skip"
    } else {
        "remove it, or start with --on-bad-sample skip"
    };
    format!("{which} {} of the training data {verb} no finite gradient ({error}): {way_out}", names.join(", "))
}
