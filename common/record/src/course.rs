//! A run over time: one point per iteration, for figures.

use crate::event::{Fate, RunEvent};

/// The steps of a run, gathered from its events.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// The steps, in order.
    pub steps: Vec<CourseStep>,
    /// The evaluations, in order.
    pub evaluations: Vec<CourseEvaluation>,
    /// Applied tasks of the iteration under way, by worker slot.
    tasks: Vec<u64>,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub struct CourseStep {
    /// k.
    pub iteration: u64,
    /// Seconds since the coordinator started.
    pub time_s: f64,
    /// Mean loss of its tasks.
    pub loss: f64,
    /// C_k, in seconds.
    pub runtime_s: f64,
    /// Seconds that workers spent on the iteration.
    pub total_worker_time_s: f64,
    /// Applied tasks by worker slot (the worker's number minus one); trailing workers without any may be missing.
    pub tasks: Vec<u64>,
}

/// One evaluation on the test data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CourseEvaluation {
    /// The last iteration of the parameters.
    pub iteration: u64,
    /// When it ended, in seconds since the coordinator started.
    pub time_s: f64,
    /// Mean loss.
    pub loss: f64,
    /// From 0 to 1, if the problem has classes.
    pub accuracy: Option<f64>,
}

impl Course {
    /// Applies the next event.
    pub fn apply(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Allocation { .. } | RunEvent::Resume { .. } => self.tasks.clear(),
            RunEvent::Task { worker, outcome: Fate::Applied, .. } => {
                let slot = *worker as usize - 1;
                self.tasks.resize(self.tasks.len().max(slot + 1), 0);
                self.tasks[slot] += 1;
            }
            RunEvent::Step { iteration, time_s, loss, runtime_s, total_worker_time_s, .. } => {
                self.steps.push(CourseStep {
                    iteration: *iteration,
                    time_s: *time_s,
                    loss: *loss,
                    runtime_s: *runtime_s,
                    total_worker_time_s: *total_worker_time_s,
                    tasks: std::mem::take(&mut self.tasks),
                });
            }
            &RunEvent::Evaluation { iteration, time_s, loss, accuracy } => {
                self.evaluations.push(CourseEvaluation { iteration, time_s, loss, accuracy });
            }
            _ => {}
        }
    }
}
