//! Requests measurements of test batches, and handles their results.

use ata_learn::{BatchResult, ClassCount, EvaluationBatches, Measurement};
use ata_record::BEST_MODEL_FILE;
use ata_types::{Iteration, WorkerId};
use ata_wire::{BatchFigures, MeasuredBatch, Reader, SessionToken, ToWorker};
use tonic::Status;

use super::Driver;
use super::evaluations::{CrewCandidate, CrewMeasurement, CrewMember, EvaluationRecord, Handed};
use crate::parameters::TrainedParameters;
use crate::report::EvaluationError;

impl Driver {
    /// Starts an evaluation of the current parameters, if one is due.
    pub(super) fn evaluate_if_due(&mut self) {
        if self.evaluations.is_due(self.steps.last_step()) {
            self.evaluate();
        }
    }

    /// Starts an evaluation of the current parameters.
    pub(super) fn evaluate(&mut self) {
        let parameters = self.steps.trained();
        self.evaluations.begin(self.now_s, parameters);
        self.advance_evaluation();
    }

    /// Requests measurements, and records the evaluation if it is complete.
    pub(super) fn advance_evaluation(&mut self) {
        if self.evaluations.is_idle() {
            return;
        }
        let candidates = self.candidates();
        let (handed, record) = self.evaluations.advance(self.now_s, &candidates, self.is_ending);
        for Handed { worker, step, batches } in handed {
            self.sessions.send(worker, ToWorker::Evaluate { step, batches });
        }
        if let Some(record) = record {
            self.evaluated(record);
        }
    }

    /// Returns the workers that are present.
    fn candidates(&self) -> Vec<CrewCandidate> {
        let iteration = self.steps.parameters().iteration;
        let mean_s = |worker: WorkerId| self.engine.statistics().get(worker.slot())?.mean_s();
        let ready = self.sessions.ready();
        ready
            .map(|session| CrewCandidate {
                worker: session.worker(),
                is_idle: session.is_idle(iteration),
                mean_s: mean_s(session.worker()),
            })
            .collect()
    }

    /// Records an evaluation, and keeps the best model so far.
    fn evaluated(&mut self, record: EvaluationRecord) {
        let EvaluationRecord { event, best_model } = record;
        self.publisher.publish(event);
        if let Some((parameters, metadata)) = best_model {
            self.checkpoints.save_model(self.run_folder.join(BEST_MODEL_FILE), parameters, metadata);
        }
    }

    /// Handles a measurement of the coordinator's own threads.
    pub(super) fn measured_here(&mut self, result: BatchResult) {
        let BatchResult { step, batch, outcome } = result;
        let outcome = outcome.map_err(EvaluationError::Here);
        self.take_measurement(CrewMeasurement { member: CrewMember::Head, step, batch, outcome });
    }

    /// Handles a measurement of a worker.
    pub(super) fn measured(&mut self, session: SessionToken, measured: MeasuredBatch) {
        self.hear(session);
        let Ok(session) = self.sessions.of_token(session) else { return };
        let (member, MeasuredBatch { step, batch, outcome }) = (CrewMember::Worker(session.worker()), measured);
        let outcome = outcome.map(measurement).map_err(EvaluationError::Workers);
        self.take_measurement(CrewMeasurement { member, step, batch, outcome });
    }

    fn take_measurement(&mut self, measured: CrewMeasurement) {
        if self.evaluations.measured(self.now_s, measured) {
            self.advance_evaluation();
        }
    }

    /// Returns the parameters of an evaluation, for a worker that takes part in it.
    pub(super) fn evaluated_parameters(
        &mut self,
        token: SessionToken,
        step: Iteration,
        reader: Reader,
    ) -> Result<TrainedParameters, Status> {
        let parameters = self.evaluations.parameters(step);
        let parameters = parameters.ok_or_else(|| Status::not_found("these parameters are not evaluated now"))?;
        self.sessions.of_token(token)?.evaluates(self.now_s, reader)?;
        Ok(parameters)
    }
}

fn measurement(figures: BatchFigures) -> (EvaluationBatches, Measurement) {
    let BatchFigures { samples, batch_samples, loss, classes, metrics } = figures;
    let classes = classes.into_iter().map(|(samples, correct)| ClassCount { samples, correct }).collect();
    (EvaluationBatches { samples, batch_samples }, Measurement { loss, classes, metrics })
}
