//! Evaluations in the state of a run.

use ata_types::Iteration;

use super::{EvaluationPoint, RunState};

impl RunState {
    pub(super) fn evaluate(&mut self, iteration: Iteration, loss: f64, accuracy: Option<f64>) {
        self.evaluation = Some((loss, accuracy));
        self.evaluated = Some(iteration);
        self.lowest_test_loss = Some(self.lowest_test_loss.map_or(loss, |lowest| lowest.min(loss)));
        self.evaluations.add(EvaluationPoint {
            iteration: iteration.number() as f64,
            runtime_s: self.runtime_s(),
            total_worker_time_s: self.total_worker_time_s,
            loss,
            accuracy: accuracy.unwrap_or(f64::NAN),
        });
    }
}
