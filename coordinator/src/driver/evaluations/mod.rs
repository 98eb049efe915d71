//! Evaluations on the test data: schedules them, distributes their batches, and keeps the best result.

mod confirmation;
mod crew;
mod under_way;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use ata_learn::{
    BatchResult, Evaluation, EvaluationBatches, EvaluationOrder, EvaluationThreads, Measurement, MeasuringError,
};
use ata_record::RunEvent;
use ata_scheduler::Verify;
use ata_sums::Metadata;
use ata_types::{Iteration, WorkerId};
use ata_wire::ToWorker;

use crate::config::{EvaluationConfig, OwnEvaluation};
use crate::parameters::TrainedParameters;
use crate::report::{EvaluationError, RunError};
use under_way::{Disagreement, MeasuredData, UnderWay};

pub(super) use crew::{CrewCandidate, CrewMember};

/// The evaluations of a run. At most one is in progress at a time.
pub(super) struct Evaluations {
    /// The coordinator's own threads, if it has the test data and the threads have not failed.
    head: Option<EvaluationThreads>,
    samples: Option<u64>,
    pub(super) by_workers: bool,
    /// The number of iterations between two evaluations. The final parameters are always evaluated.
    every: Option<u64>,
    under_way: Option<UnderWay>,
    /// What all measurements have in common, once two members agree on it.
    data: Option<MeasuredData>,
    /// Spot checks of batches.
    verify: Option<Verify>,
    /// The workers that have measured a batch in their current session.
    experienced: HashSet<WorkerId>,
    /// The last step included in the parameters that were evaluated last.
    pub(super) last: Option<Iteration>,
    pub(super) last_accuracy: Option<f64>,
    pub(super) best: BestEvaluation,
    pub(super) failed: Option<RunError>,
    /// The number of evaluations that were left out since the last one.
    skipped: u64,
}

/// The best results of the evaluations so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BestEvaluation {
    /// The highest accuracy. If the problem has an accuracy, it determines the best evaluation.
    pub(super) accuracy: Option<f64>,
    /// The lowest loss, which determines the best evaluation otherwise.
    pub(super) loss: Option<f64>,
}

/// The consequences of a finished evaluation.
pub(super) struct EvaluationRecord {
    pub(super) event: RunEvent,
    /// The parameters and metadata of the model to keep, if the evaluation is the best so far.
    pub(super) best_model: Option<(TrainedParameters, Metadata)>,
}

impl BestEvaluation {
    /// Records an evaluation. Returns whether it is the best so far.
    fn update(&mut self, loss: f64, accuracy: Option<f64>) -> bool {
        let has_lowest_loss = loss.is_finite() && self.loss.is_none_or(|lowest| loss < lowest);
        if has_lowest_loss {
            self.loss = Some(loss);
        }
        let Some(accuracy) = accuracy else { return has_lowest_loss };
        let is_best = self.accuracy.is_none_or(|best| accuracy > best);
        if is_best {
            self.accuracy = Some(accuracy);
        }
        is_best
    }
}

impl Evaluations {
    /// Starts the coordinator's own threads, if it may evaluate. They pass their measurements to `report`.
    pub(super) fn start(
        config: EvaluationConfig,
        verify: Option<Verify>,
        best: BestEvaluation,
        report: impl Fn(BatchResult) + Send + Sync + 'static,
    ) -> Self {
        let EvaluationConfig { own, samples, by_workers, every, .. } = config;
        let head = own.map(|OwnEvaluation { data, device }| {
            EvaluationThreads::spawn(move || data.clone().evaluator(&device), report)
        });
        Self {
            head,
            samples,
            by_workers,
            every,
            under_way: None,
            data: None,
            verify,
            experienced: HashSet::new(),
            last: None,
            last_accuracy: None,
            best,
            failed: None,
            skipped: 0,
        }
    }

    /// Returns whether an evaluation is due after the step of these tasks of the run: once in so many iterations of `budget` tasks. While
    /// another one is in progress, it is left out, and counted.
    pub(super) fn is_due(&mut self, tasks: &Range<u64>, budget: u64) -> bool {
        let is_due = is_due(self.every, tasks, budget);
        self.skipped += u64::from(is_due && !self.is_idle());
        is_due && self.is_idle()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_none()
    }

    pub(super) fn begin(&mut self, now_s: f64, parameters: TrainedParameters) {
        self.failed = None;
        let (verify, step) = (self.verify, parameters.last_step);
        let is_checked = move |batch| verify.is_some_and(|verify| verify.draws(step, batch));
        self.under_way = Some(UnderWay::new(now_s, parameters, self.data.clone(), self.samples, is_checked));
    }

    pub(super) fn parameters(&self, step: Iteration) -> Option<TrainedParameters> {
        let under_way = self.under_way.as_ref().filter(|under_way| under_way.step() == step)?;
        Some(under_way.parameters.clone())
    }

    /// Gives the coordinator's own threads batches to measure, and returns the requests to workers. Also returns the result if the
    /// evaluation is over. Must be called after every change, and periodically.
    pub(super) fn advance(
        &mut self,
        now_s: f64,
        candidates: &[CrewCandidate],
        is_ending: bool,
    ) -> (Vec<(WorkerId, ToWorker)>, Option<EvaluationRecord>) {
        let Some(under_way) = &mut self.under_way else { return (Vec::new(), None) };
        under_way.check(now_s);
        let able = |worker: WorkerId| self.by_workers && under_way.may_measure(CrewMember::Worker(worker));
        let candidates: Vec<CrewCandidate> =
            candidates.iter().copied().filter(|candidate| able(candidate.worker)).collect();
        let has_head = self.head.is_some() && under_way.may_measure(CrewMember::Head);
        let elapsed_s = now_s - under_way.began_s;
        under_way.meet(now_s, &candidates, has_head);
        let confirming = under_way.confirming();
        let crew = crew::choose(&candidates, has_head, &self.experienced, is_ending, elapsed_s, confirming);
        if let Some(outcome) = under_way.outcome(now_s, crew.is_empty(), self.by_workers) {
            let record = self.finish(now_s, outcome);
            return (Vec::new(), record);
        }
        let mut requests = Vec::new();
        for member in crew {
            let (step, batches) = (under_way.step(), under_way.hand_out(member));
            match (member, &self.head) {
                (CrewMember::Worker(worker), _) if !batches.is_empty() => {
                    requests.push((worker, ToWorker::Evaluate { step, batches }));
                }
                (CrewMember::Head, Some(head)) => {
                    for batch in batches {
                        let parameters = Arc::new(under_way.parameters.clone());
                        // This fails only after a panic, which has been reported.
                        head.measure(EvaluationOrder { step, parameters, batch });
                    }
                }
                _ => {}
            }
        }
        (requests, None)
    }

    /// Records the measurement of a batch. Returns the members that must not evaluate any more; `None` if it was not requested.
    pub(super) fn measured(
        &mut self,
        now_s: f64,
        member: CrewMember,
        step: Iteration,
        batch: u64,
        outcome: Result<(EvaluationBatches, Measurement), EvaluationError>,
    ) -> Option<Vec<Disagreement>> {
        let under_way = self.under_way.as_mut().filter(|under_way| under_way.step() == step)?;
        if !under_way.is_held(batch, member) {
            return None;
        }
        match (&outcome, member) {
            (Ok(_), CrewMember::Worker(worker)) => {
                self.experienced.insert(worker);
            }
            (Err(error), CrewMember::Worker(worker)) => {
                tracing::warn!(%worker, "worker cannot evaluate the parameters after step {step}: {error}");
            }
            (Err(error), CrewMember::Head) => {
                tracing::warn!("the coordinator cannot evaluate the parameters after step {step}: {error}");
                if matches!(error, EvaluationError::Here(MeasuringError::Panicked)) {
                    self.head = None;
                }
            }
            (Ok(_), CrewMember::Head) => {}
        }
        let wrong = under_way.measured(now_s, member, batch, outcome);
        self.data = under_way.agreed();
        Some(wrong)
    }

    /// Takes back the batches of a worker whose session has ended.
    pub(super) fn leave(&mut self, worker: WorkerId) {
        self.experienced.remove(&worker);
        if let Some(under_way) = &mut self.under_way {
            under_way.leave(CrewMember::Worker(worker));
        }
    }

    /// Ends the evaluation in progress. If it failed, the run continues, and fails only if its final parameters cannot be evaluated.
    fn finish(&mut self, now_s: f64, outcome: Result<Evaluation, EvaluationError>) -> Option<EvaluationRecord> {
        let UnderWay { parameters, .. } = self.under_way.take()?;
        let iteration = parameters.last_step;
        let evaluation = match outcome {
            Ok(evaluation) => evaluation,
            Err(error) => {
                tracing::warn!("the evaluation after iteration {iteration} failed: {error}");
                self.failed = Some(error.into());
                self.skipped += 1;
                return None;
            }
        };
        let (loss, accuracy) = (evaluation.loss, evaluation.accuracy);
        (self.last, self.last_accuracy) = (Some(iteration), accuracy);
        let figures = [("test_loss", Some(loss)), ("test_accuracy", accuracy)];
        let metadata = || figures.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_string())));
        let best_model = self.best.update(loss, accuracy).then(|| (parameters, metadata().collect()));
        let (metrics, skipped) = (evaluation.metrics, std::mem::take(&mut self.skipped));
        let event = RunEvent::Evaluation { time_s: now_s, iteration, loss, accuracy, metrics, skipped };
        Some(EvaluationRecord { event, best_model })
    }
}

fn is_due(every: Option<u64>, tasks: &Range<u64>, budget: u64) -> bool {
    let passed = |position: u64, every: u64| position / every.saturating_mul(budget);
    every.is_some_and(|every| passed(tasks.end, every) > passed(tasks.start, every))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every 3 iterations of 8 tasks, whether each step has so many or not.
    #[test]
    fn evaluations_are_due_by_the_tasks_so_far() {
        let due = |every: Option<u64>, steps: &[u64]| {
            let mut end = 0;
            let passed = steps.iter().map(|tasks| {
                end += tasks;
                is_due(every, &(end - tasks..end), 8)
            });
            passed.collect::<Vec<bool>>()
        };
        assert_eq!(due(Some(3), &[8; 7]), [false, false, true, false, false, true, false]);
        assert_eq!(due(Some(3), &[0, 20, 4, 60, 11, 2]), [false, false, true, true, false, true]);
        assert_eq!(due(None, &[8; 3]), [false; 3]);
    }

    #[test]
    fn accuracy_decides_if_there_is_one_and_loss_otherwise() {
        let mut classes = BestEvaluation::default();
        let found = [(2.0, 0.5), (1.0, 0.4), (3.0, 0.6), (1.0, 0.6)].map(|(loss, x)| classes.update(loss, Some(x)));
        assert_eq!(found, [true, false, true, false]);
        let mut regression = BestEvaluation::default();
        let found = [f64::NAN, 2.0, 3.0, 1.0, 1.0].map(|loss| regression.update(loss, None));
        assert_eq!(found, [false, true, false, true, false]);
    }
}
