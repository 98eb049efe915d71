//! What happens between two iterations: the step's result, the record, an evaluation, a checkpoint.

use ata_record::{BEST_MODEL_FILE, RunEvent};
use ata_scheduler::{Event, IterationCost, StepOutcome};
use ata_types::WorkerId;
use ata_wire::WorkerName;

use super::Driver;
use super::checkpoints::{SaveRecord, Snapshot};
use super::evaluations::EvaluationRecord;
use crate::checkpoint::SaveResult;
use crate::evaluation::EvaluationResult;
use crate::training::StepResult;

impl Driver {
    /// Takes in the result of a step, and commits it.
    pub(super) fn step_finished(&mut self, result: StepResult) {
        let StepResult { iteration, figures, gradient_product, parameters } = result;
        let current = parameters.iteration;
        if self.steps.finish(figures, parameters) {
            for session in self.sessions.close_oldest(current) {
                self.dismiss(session, "it reads its parameters too slowly for this coordinator's memory");
            }
        }
        let accuracy = self.evaluations.last_accuracy();
        let outcome = StepOutcome { loss: Some(figures.loss), gradient_product, accuracy };
        self.notify(Event::StepCommitted { iteration, outcome });
    }

    /// Records a committed iteration, and lets the next one begin unless the run is ending.
    pub(super) fn committed(&mut self, cost: &IterationCost) {
        let figures = self.steps.figures();
        self.publisher.publish(RunEvent::Step {
            iteration: cost.iteration,
            time_s: self.now_s,
            loss: figures.loss,
            runtime_s: cost.runtime_s,
            total_worker_time_s: cost.total_worker_time_s,
            tasks: cost.tasks_applied,
            wasted: cost.tasks_wasted,
            employments: cost.employments,
            results: cost.results,
            learning_rate: figures.learning_rate,
            gradient_norm: figures.gradient_norm,
        });
        self.trace.committed(cost, figures.loss);
        if self.is_ending {
            return;
        }
        // Workers are forgotten only here, so that no event within an iteration is attributed to a later worker of the same number.
        for worker in self.sessions.forget_long_absent() {
            self.notify(Event::WorkerForgotten { worker });
        }
        self.evaluate_if_due();
        if self.checkpoints.is_due(self.now_s, cost.iteration) {
            self.save();
        }
        self.notify(Event::Proceed);
    }

    /// Begins an evaluation of the current parameters, if one is due.
    pub(super) fn evaluate_if_due(&mut self) {
        if self.evaluations.is_due(self.steps.parameters()) {
            self.evaluate();
        }
    }

    /// Begins an evaluation of the current parameters.
    pub(super) fn evaluate(&mut self) {
        let parameters = self.steps.parameters().clone();
        let span = self.trace.evaluation_span(parameters.last_step());
        self.evaluations.begin(parameters, span);
    }

    /// Records an evaluation, and keeps the best model so far.
    pub(super) fn evaluation_finished(&mut self, result: EvaluationResult) {
        let Some(EvaluationRecord { event, best_model }) = self.evaluations.finish(self.now_s, result) else { return };
        self.publisher.publish(event);
        if let Some((parameters, metadata)) = best_model {
            self.checkpoints.save_model(self.run_folder.join(BEST_MODEL_FILE), parameters, metadata);
        }
    }

    /// Begins to save the state after the last step. No step may be under way.
    pub(super) fn save(&mut self) {
        let named = |(worker, name): (WorkerId, &WorkerName)| (worker, name.to_string());
        let snapshot = Snapshot {
            engine: self.engine.save(),
            workers: self.sessions.names_by_departure().map(named).collect(),
            expelled: self.sessions.expelled().map(|(name, why)| (name.to_string(), why.clone())).collect(),
            best_accuracy: self.evaluations.best_accuracy(),
        };
        let span = self.trace.checkpoint_span(self.steps.parameters().last_step());
        self.checkpoints.save(self.now_s, snapshot, self.steps.copy(), span);
    }

    /// Records what was saved, and takes the step that waited for it.
    pub(super) fn save_finished(&mut self, result: SaveResult) {
        let SaveRecord { event, step } = self.checkpoints.finish(self.now_s, result);
        if let Some(event) = event {
            self.publisher.publish(event);
        }
        if let Some(order) = step {
            self.steps.take(order);
        }
    }
}
