//! Requests measurements of test batches, and handles their results.

use ata_learn::{BatchResult, ClassCount, EvaluationBatches, Measurement};
use ata_record::{BEST_MODEL_FILE, ExcludedFrom, RefusalKind};
use ata_types::{Iteration, WorkerId};
use ata_wire::{BatchFigures, MeasuredBatch, Reader, SessionToken};
use tonic::Status;

use super::Driver;
use super::evaluations::{CrewCandidate, CrewMember, EvaluationRecord};
use super::sessions::Session;
use crate::checkpoint::SaveJob;
use crate::parameters::TrainedParameters;
use crate::report::EvaluationError;

impl Driver {
    pub(super) fn evaluate_if_due(&mut self) {
        if self.evaluations.is_due(&self.engine.last_tasks(), self.info.spec.budget) {
            self.evaluate();
        }
    }

    pub(super) fn evaluate(&mut self) {
        let parameters = self.steps.evaluated();
        self.evaluations.begin(self.now_s, parameters);
        self.advance_evaluation();
    }

    /// Requests measurements, and records the evaluation if it is complete.
    pub(super) fn advance_evaluation(&mut self) {
        if self.evaluations.is_idle() {
            return;
        }
        let iteration = self.iteration();
        let mean_s = |worker: WorkerId| self.engine.statistics().get(worker.slot())?.mean_s();
        let candidate = |session: &Session| CrewCandidate {
            worker: session.worker,
            machine: session.machine,
            is_idle: session.is_idle(iteration),
            mean_s: mean_s(session.worker),
        };
        let excluded = self.sessions.names.excluded_workers();
        let leaving = &self.sessions.leaving;
        let may_evaluate =
            |session: &&Session| !excluded.contains(&session.worker) && !leaving.contains_key(&session.worker);
        let candidates: Vec<CrewCandidate> = self.sessions.ready().filter(may_evaluate).map(candidate).collect();
        let (requests, record) = self.evaluations.advance(self.now_s, &candidates, self.is_ending);
        for (worker, request) in requests {
            self.sessions.send(worker, request);
        }
        let Some(EvaluationRecord { event, best_model }) = record else { return };
        self.publisher.publish(event);
        if let Some((parameters, metadata)) = best_model {
            let path = self.run_folder.join(BEST_MODEL_FILE);
            self.checkpoints.send(SaveJob::Model { path, parameters, metadata });
        }
    }

    pub(super) fn measured_here(&mut self, result: BatchResult) {
        let BatchResult { step, batch, outcome } = result;
        self.take_measurement(CrewMember::Head, step, batch, outcome.map_err(EvaluationError::Here));
    }

    pub(super) fn measured(&mut self, worker: WorkerId, MeasuredBatch { step, batch, outcome }: MeasuredBatch) {
        let measurement = |figures| {
            let BatchFigures { samples, batch_samples, loss, classes, metrics } = figures;
            let classes = classes.into_iter().map(|(samples, correct)| ClassCount { samples, correct }).collect();
            (EvaluationBatches { samples, batch_samples }, Measurement { loss, classes, metrics })
        };
        let outcome = outcome.map(measurement).map_err(EvaluationError::Workers);
        self.take_measurement(CrewMember::Worker(worker), step, batch, outcome);
    }

    fn take_measurement(
        &mut self,
        member: CrewMember,
        step: Iteration,
        batch: u64,
        outcome: Result<(EvaluationBatches, Measurement), EvaluationError>,
    ) {
        let Some(wrong) = self.evaluations.measured(self.now_s, member, step, batch, outcome) else { return };
        for (member, why) in wrong {
            if let CrewMember::Worker(worker) = member {
                tracing::warn!(%worker, why, "worker takes no part in evaluations any more");
                self.evaluations.leave(worker);
                self.sessions.names.exclude(worker, ExcludedFrom::Evaluations, &why);
                if let Some(event) = self.refusals.add(self.now_s, worker, RefusalKind::WrongMeasurement, &why) {
                    self.publisher.publish(event);
                }
            }
        }
        self.advance_evaluation();
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
