//! Evaluations in the state of a run.

use super::{EvaluationPoint, RunState};
use crate::event::RunEvent;

impl RunState {
    pub(super) fn evaluate(&mut self, event: &RunEvent) {
        let RunEvent::Evaluation { iteration, loss, accuracy, metrics, .. } = event else { return };
        let (iteration, loss, accuracy) = (*iteration, *loss, *accuracy);
        self.evaluation = Some((loss, accuracy));
        self.metrics.clone_from(metrics);
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
