//! An evaluation in progress: tracks which batches are measured, and which members hold the others.

use std::collections::{BTreeSet, HashMap};

use ata_learn::{Evaluation, EvaluationBatches, EvaluationSum, Measurement};
use ata_types::{Iteration, MAX_METRICS};

use super::crew::CrewMember;
use crate::parameters::TrainedParameters;
use crate::report::EvaluationError;

/// The number of batches that a worker holds, so that the next one is on its way while it measures one.
const WORKER_BATCHES: usize = 2;

/// The time in seconds without a measurement after which the members that hold batches count as failed. It is long enough to fetch
/// parameters and test data over a slow link.
const STALLED_S: f64 = 600.0;

/// The time in seconds after which an evaluation without members fails. A worker that lost its connection is back by then.
const DESERTED_S: f64 = 20.0;

pub(super) struct UnderWay {
    pub(super) parameters: TrainedParameters,
    pub(super) began_s: f64,
    /// The sum of the measurements, once the division of the test data is known.
    sum: Option<EvaluationSum>,
    /// The number of test samples, if the coordinator has them.
    samples: Option<u64>,
    /// The names of all metrics so far.
    metrics: BTreeSet<String>,
    /// The first batch that has never been handed out.
    next: u64,
    returned: Vec<u64>,
    /// The batches and their holders, in the order in which they were handed out.
    held: Vec<(u64, CrewMember)>,
    /// The members that cannot take part, and why.
    failed: HashMap<CrewMember, EvaluationError>,
    /// The time of the last measurement or failure, in seconds.
    progress_s: f64,
}

impl UnderWay {
    /// Starts an evaluation. `batches` is the division of the test data, if it is known.
    pub(super) fn new(
        now_s: f64,
        parameters: TrainedParameters,
        batches: Option<EvaluationBatches>,
        samples: Option<u64>,
    ) -> Self {
        Self {
            parameters,
            began_s: now_s,
            sum: batches.map(EvaluationSum::new),
            samples,
            metrics: BTreeSet::new(),
            next: 0,
            returned: Vec::new(),
            held: Vec::new(),
            failed: HashMap::new(),
            progress_s: now_s,
        }
    }

    pub(super) fn step(&self) -> Iteration {
        self.parameters.last_step
    }

    pub(super) fn may_measure(&self, member: CrewMember) -> bool {
        !self.failed.contains_key(&member)
    }

    /// Hands out as many batches to a member as it may hold. Once all are handed out, a member without a batch gets a copy of the one that
    /// has been held the longest, since its holder may be slow or hang.
    pub(super) fn hand_out(&mut self, member: CrewMember) -> Vec<u64> {
        let room = if member == CrewMember::Head { 1 } else { WORKER_BATCHES };
        let mut batches = Vec::new();
        while self.held_by(member) < room {
            let Some(batch) = self.returned.pop().or_else(|| self.fresh()).or_else(|| self.copy(member)) else { break };
            self.held.push((batch, member));
            batches.push(batch);
        }
        batches
    }

    fn held_by(&self, member: CrewMember) -> usize {
        self.held.iter().filter(|(_, holder)| *holder == member).count()
    }

    fn fresh(&mut self) -> Option<u64> {
        // As long as the number of batches is unknown, only the first one is handed out.
        let count = self.batches().map_or(1, EvaluationBatches::count);
        let fresh = (self.next < count).then_some(self.next)?;
        self.next += 1;
        Some(fresh)
    }

    fn copy(&self, member: CrewMember) -> Option<u64> {
        if self.held_by(member) > 0 {
            return None;
        }
        let copies = |batch: u64| self.held.iter().filter(|(held, _)| *held == batch).count();
        self.held.iter().map(|(batch, _)| *batch).find(|batch| copies(*batch) == 1)
    }

    pub(super) fn is_held(&self, batch: u64, member: CrewMember) -> bool {
        self.held.contains(&(batch, member))
    }

    /// Records a measurement, unless the member does not hold the batch.
    pub(super) fn measured(
        &mut self,
        now_s: f64,
        member: CrewMember,
        batch: u64,
        outcome: Result<(EvaluationBatches, Measurement), EvaluationError>,
    ) {
        if !self.is_held(batch, member) {
            return;
        }
        let (found, measured) = match outcome {
            Ok(measured) => measured,
            Err(error) => {
                self.progress_s = now_s;
                return self.fail(member, error);
            }
        };
        if let Err(reason) = self.check_measurement(found, &measured) {
            return self.fail(member, EvaluationError::Workers(reason));
        }
        self.metrics.extend(measured.metrics.keys().cloned());
        self.sum.get_or_insert_with(|| EvaluationSum::new(found)).add(batch, &measured);
        self.progress_s = now_s;
        self.held.retain(|(held, _)| *held != batch);
    }

    /// Checks that a measurement is of the data that the others measure, and that there are not ever more metrics.
    fn check_measurement(&self, found: EvaluationBatches, measured: &Measurement) -> Result<(), String> {
        let EvaluationBatches { samples, batch_samples } = found;
        if let Some(own) = self.samples.filter(|own| *own != samples) {
            return Err(format!("it has {samples} test samples, and the coordinator has {own}"));
        }
        if let Some(others) = self.batches().filter(|others| *others != found) {
            return Err(format!(
                "it has {samples} test samples in batches of {batch_samples}, and the others have {} in batches of {}",
                others.samples, others.batch_samples
            ));
        }
        let new = measured.metrics.keys().filter(|name| !self.metrics.contains(*name)).count();
        if self.metrics.len() + new > MAX_METRICS {
            return Err(format!("it measures other metrics than the batches before: at most {MAX_METRICS} in all"));
        }
        Ok(())
    }

    /// Takes back the batches that a member holds.
    pub(super) fn leave(&mut self, member: CrewMember) {
        let gone: Vec<u64> =
            self.held.extract_if(.., |(_, holder)| *holder == member).map(|(batch, _)| batch).collect();
        let is_held = |batch: &u64| self.held.iter().any(|(held, _)| held == batch);
        self.returned.extend(gone.into_iter().filter(|batch| !is_held(batch)));
        // The member may be able to measure when it returns.
        self.failed.remove(&member);
    }

    fn fail(&mut self, member: CrewMember, error: EvaluationError) {
        self.leave(member);
        self.failed.insert(member, error);
    }

    /// Excludes members that have not measured anything for too long. Must be called periodically.
    pub(super) fn check(&mut self, now_s: f64) {
        if now_s - self.progress_s < STALLED_S {
            return;
        }
        self.progress_s = now_s;
        let holders: Vec<CrewMember> = self.held.iter().map(|(_, holder)| *holder).collect();
        for holder in holders {
            let reason = format!("it has not measured a batch in {STALLED_S} s");
            self.fail(holder, EvaluationError::Workers(reason));
        }
    }

    pub(super) fn batches(&self) -> Option<EvaluationBatches> {
        self.sum.as_ref().map(EvaluationSum::batches)
    }

    /// Returns the result, once there is one. `is_deserted` says that no member can take part at the moment, and `may_come` that one may
    /// still join.
    pub(super) fn outcome(
        &mut self,
        now_s: f64,
        is_deserted: bool,
        may_come: bool,
    ) -> Option<Result<Evaluation, EvaluationError>> {
        if let Some(evaluation) = self.sum.as_ref().and_then(EvaluationSum::evaluation) {
            return Some(Ok(evaluation));
        }
        let is_over = !may_come || now_s - self.progress_s >= DESERTED_S;
        if !is_deserted || !self.held.is_empty() || !is_over {
            return None;
        }
        // The coordinator's own failure is the most informative, and sorts first.
        let first = self.failed.keys().min().copied();
        if let Some(error) = first.and_then(|member| self.failed.remove(&member)) {
            return Some(Err(error));
        }
        let reason = "no worker is present that could evaluate the parameters, and the coordinator itself does not";
        Some(Err(EvaluationError::Workers(reason.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ata_types::WorkerId;
    use std::sync::mpsc;

    const BATCHES: EvaluationBatches = EvaluationBatches { samples: 50, batch_samples: 10 };

    fn worker(number: u32) -> CrewMember {
        CrewMember::Worker(WorkerId::new(number).unwrap())
    }

    fn evaluation(batches: Option<EvaluationBatches>) -> UnderWay {
        let parameters = TrainedParameters::new(Iteration(3), mpsc::sync_channel(1).1);
        UnderWay::new(0.0, parameters, batches, Some(BATCHES.samples))
    }

    fn measured(under_way: &mut UnderWay, member: CrewMember, batch: u64, loss: f64) {
        under_way.measured(1.0, member, batch, Ok((BATCHES, Measurement::of_loss(loss))));
    }

    /// Checks that a worker gets the first two batches, in any order.
    fn takes_two(under_way: &mut UnderWay, member: CrewMember) {
        let mut taken = under_way.hand_out(member);
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
    }

    #[test]
    fn each_batch_is_measured_once_whoever_measures_it() {
        let mut under_way = evaluation(None);
        assert_eq!(under_way.hand_out(worker(1)), [0], "their number is not known yet");
        assert!(under_way.hand_out(worker(2)) == [0], "the first may hang");
        measured(&mut under_way, worker(1), 0, 1.0);
        assert!(!under_way.is_held(0, worker(2)), "the copy came too late");
        measured(&mut under_way, worker(2), 0, 9.0);
        assert_eq!(under_way.hand_out(worker(1)), [1, 2]);
        assert_eq!(under_way.hand_out(CrewMember::Head), [3]);
        // Worker 2 was not asked to measure this batch.
        measured(&mut under_way, worker(2), 3, 9.0);
        under_way.leave(worker(1));
        assert_eq!(under_way.hand_out(worker(2)), [2, 1]);
        for (member, batch) in [(CrewMember::Head, 3), (worker(2), 1), (worker(2), 2)] {
            assert!(under_way.outcome(1.0, false, true).is_none());
            measured(&mut under_way, member, batch, batch as f64 + 1.0);
        }
        assert_eq!(under_way.hand_out(worker(2)), [4]);
        measured(&mut under_way, worker(2), 4, 5.0);
        assert_eq!(under_way.outcome(1.0, false, true).unwrap().unwrap().loss, 3.0);
    }

    #[test]
    fn who_cannot_measure_is_not_asked_again_and_others_take_its_batches() {
        let mut under_way = evaluation(Some(BATCHES));
        assert_eq!(under_way.hand_out(worker(1)), [0, 1]);
        under_way.measured(1.0, worker(1), 1, Err(EvaluationError::Workers("it is broken".into())));
        assert!(!under_way.may_measure(worker(1)) && under_way.may_measure(worker(2)));
        takes_two(&mut under_way, worker(2));
        let other = EvaluationBatches { samples: 51, ..BATCHES };
        under_way.measured(1.0, worker(2), 0, Ok((other, Measurement::of_loss(1.0))));
        assert!(!under_way.may_measure(worker(2)), "it has other test data");
        assert!(under_way.outcome(1.0 + DESERTED_S / 2.0, true, true).is_none(), "another one may come");
        let error = under_way.outcome(1.0, true, false).unwrap().unwrap_err().to_string();
        assert_eq!(error, "it is broken");
    }

    #[test]
    fn a_worker_that_claims_too_much_is_asked_no_more() {
        let mut under_way = evaluation(None);
        let huge = EvaluationBatches { samples: 1 << 63, ..BATCHES };
        assert_eq!(under_way.hand_out(worker(1)), [0]);
        under_way.measured(1.0, worker(1), 0, Ok((huge, Measurement::of_loss(1.0))));
        assert!(!under_way.may_measure(worker(1)), "the coordinator has 50 samples");
        let of = |batch: u64| {
            let metrics = (0..MAX_METRICS as u64).map(|at| (format!("{batch}/{at}"), 0.0)).collect();
            Ok((BATCHES, Measurement { metrics, ..Measurement::of_loss(1.0) }))
        };
        assert_eq!(under_way.hand_out(worker(2)), [0]);
        under_way.measured(1.0, worker(2), 0, of(0));
        assert_eq!(under_way.hand_out(worker(2)), [1, 2]);
        under_way.measured(1.0, worker(2), 1, of(0));
        assert!(under_way.may_measure(worker(2)), "the same metrics");
        under_way.measured(1.0, worker(2), 2, of(2));
        assert!(!under_way.may_measure(worker(2)), "16 metrics are all");
    }

    #[test]
    fn nobody_is_waited_for_without_end() {
        let mut deserted = evaluation(Some(BATCHES));
        assert!(deserted.outcome(DESERTED_S - 1.0, true, true).is_none());
        let error = deserted.outcome(DESERTED_S, true, true).unwrap().unwrap_err().to_string();
        assert!(error.contains("no worker is present"), "{error}");
        let mut stalled = evaluation(Some(BATCHES));
        assert_eq!(stalled.hand_out(worker(1)), [0, 1]);
        stalled.check(STALLED_S - 1.0);
        assert!(stalled.may_measure(worker(1)));
        stalled.check(STALLED_S);
        assert!(!stalled.may_measure(worker(1)));
        takes_two(&mut stalled, worker(2));
    }
}
