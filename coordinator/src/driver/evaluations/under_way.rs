//! An evaluation in progress: tracks which batches are measured, and which members hold the others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ata_learn::{Evaluation, EvaluationBatches, EvaluationSum, Measurement};
use ata_types::{Iteration, MAX_METRICS, MachineId};

use super::confirmation::{MOST_MEASUREMENTS, MadeMeasurement};
use super::crew::{CrewCandidate, CrewMember};
use crate::parameters::TrainedParameters;
use crate::report::EvaluationError;

/// The number of batches that a worker holds, so that the next one is on its way while it measures one.
const WORKER_BATCHES: usize = 2;

/// The time in seconds without a measurement after which the members that hold batches count as failed. It is long enough to fetch
/// parameters and test data over a slow link.
const STALLED_S: f64 = 600.0;

/// The largest number of batches, which bounds an evaluation whose data the coordinator does not know: a million of them take a quarter of
/// an hour at a millisecond each.
const MAX_BATCHES: u64 = 1 << 20;

/// The time in seconds within which another member must confirm a batch that is not checked. A member that hangs prolongs an evaluation by
/// no more than this.
const CONFIRMATION_S: f64 = 20.0;

/// The time in seconds after which an evaluation without members fails. A worker that lost its connection is back by then.
const DESERTED_S: f64 = 20.0;

/// What every measurement must have in common with the others.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MeasuredData {
    pub(super) batches: EvaluationBatches,
    /// The names of the problem's own metrics so far.
    metrics: BTreeSet<String>,
}

/// Returns the number of metrics of a measurement that are not among these names.
fn new_names(names: &BTreeSet<String>, measured: &Measurement) -> usize {
    measured.metrics.keys().filter(|name| !names.contains(*name)).count()
}

/// A member whose measurement proves that it must not evaluate, with the reason.
pub(super) type Disagreement = (CrewMember, String);

pub(super) struct UnderWay {
    pub(super) parameters: TrainedParameters,
    pub(super) began_s: f64,
    /// The sum of the measurements, once the division of the test data is known.
    sum: Option<EvaluationSum>,
    /// The number of test samples, if the coordinator has the data.
    samples: Option<u64>,
    /// What the measurements so far have in common.
    data: Option<MeasuredData>,
    /// Whether the coordinator or two members agree on that.
    pub(super) is_agreed: bool,
    /// Whether two members must agree on a batch.
    is_checked: Box<dyn Fn(u64) -> bool + Send>,
    /// The measurements of batches that no other one has confirmed yet.
    unconfirmed: BTreeMap<u64, Vec<MadeMeasurement>>,
    /// The machines of the workers that are present, unless all are on one.
    machines: HashMap<CrewMember, MachineId>,
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
    /// Starts an evaluation. `data` is what the coordinator or two members have agreed on before, if they have.
    pub(super) fn new(
        now_s: f64,
        parameters: TrainedParameters,
        data: Option<MeasuredData>,
        samples: Option<u64>,
        is_checked: impl Fn(u64) -> bool + Send + 'static,
    ) -> Self {
        Self {
            parameters,
            began_s: now_s,
            sum: data.as_ref().map(|data| EvaluationSum::new(data.batches)),
            samples,
            is_agreed: data.is_some(),
            data,
            is_checked: Box::new(is_checked),
            unconfirmed: BTreeMap::new(),
            machines: HashMap::new(),
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
            let again = self.returned.pop().or_else(|| self.to_confirm(member));
            let Some(batch) = again.or_else(|| self.fresh()).or_else(|| self.copy(member)) else { break };
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
        let count = self.sum.as_ref().map_or(1, |sum| sum.batches().count());
        let fresh = (self.next < count).then_some(self.next)?;
        self.next += 1;
        Some(fresh)
    }

    fn copy(&self, member: CrewMember) -> Option<u64> {
        if self.held_by(member) > 0 {
            return None;
        }
        let copies = |batch: u64| self.held.iter().filter(|(held, _)| *held == batch).count();
        let mut held = self.held.iter().map(|(batch, _)| *batch);
        held.find(|batch| copies(*batch) == 1 && self.may_confirm(*batch, member))
    }

    /// Returns a batch that the member can confirm, and that nobody measures at the moment.
    fn to_confirm(&self, member: CrewMember) -> Option<u64> {
        let is_held = |batch: u64| self.held.iter().any(|(held, _)| *held == batch);
        self.unconfirmed.keys().copied().find(|batch| !is_held(*batch) && self.may_confirm(*batch, member))
    }

    /// Returns whether neither the member nor its machine has measured a batch yet.
    fn may_confirm(&self, batch: u64, member: CrewMember) -> bool {
        let machine = |member: CrewMember| self.machines.get(&member);
        let is_same = |by: CrewMember| by == member || machine(by).is_some() && machine(by) == machine(member);
        !self.unconfirmed.get(&batch).is_some_and(|made| made.iter().any(|made| is_same(made.member)))
    }

    /// Returns the largest number of members that have measured the same batch without agreeing.
    pub(super) fn confirming(&self) -> usize {
        self.unconfirmed.values().map(Vec::len).max().unwrap_or(0)
    }

    /// Learns which members are present. If none of them can confirm a batch, or none does so in time although no check was drawn, its
    /// only measurement counts; several that differ do not.
    pub(super) fn meet(&mut self, now_s: f64, workers: &[CrewCandidate], has_head: bool) {
        let machines = workers.iter().map(|worker| (CrewMember::Worker(worker.worker), worker.machine));
        let is_alone = workers.windows(2).all(|pair| pair[0].machine == pair[1].machine);
        self.machines = if is_alone { HashMap::new() } else { machines.collect() };
        let members = || {
            workers.iter().map(|worker| CrewMember::Worker(worker.worker)).chain(has_head.then_some(CrewMember::Head))
        };
        let is_late = now_s - self.progress_s >= CONFIRMATION_S;
        let is_stuck = |batch: &u64| {
            if is_late && !(self.is_checked)(*batch) {
                return true;
            }
            !self.held.iter().any(|(held, _)| held == batch)
                && !members().any(|member| self.may_confirm(*batch, member))
        };
        let stuck: Vec<u64> = self.unconfirmed.keys().copied().filter(is_stuck).collect();
        for batch in stuck {
            match self.unconfirmed.remove(&batch).as_deref() {
                Some([only]) => self.add(now_s, batch, only),
                Some(made) => self.give_up(batch, made.to_vec()),
                None => {}
            }
        }
    }

    pub(super) fn is_held(&self, batch: u64, member: CrewMember) -> bool {
        self.held.contains(&(batch, member))
    }

    /// Records a measurement, unless the member does not hold the batch. Returns the members that must not evaluate any more.
    pub(super) fn measured(
        &mut self,
        now_s: f64,
        member: CrewMember,
        batch: u64,
        outcome: Result<(EvaluationBatches, Measurement), EvaluationError>,
    ) -> Vec<Disagreement> {
        if !self.is_held(batch, member) {
            return Vec::new();
        }
        let (found, measured) = match outcome {
            Ok(measured) => measured,
            Err(error) => {
                self.progress_s = now_s;
                self.fail(member, error);
                return Vec::new();
            }
        };
        let made = MadeMeasurement { member, found, measured };
        if let Err(reason) = self.check_measurement(&made) {
            self.fail(member, EvaluationError::Workers(reason.clone()));
            // What one worker alone has measured proves nothing about another.
            let is_proven = self.is_agreed || self.samples.is_some_and(|own| own != found.samples);
            return if is_proven { vec![(member, reason)] } else { Vec::new() };
        }
        self.held.retain(|held| *held != (batch, member));
        let earlier = self.unconfirmed.remove(&batch).unwrap_or_default();
        let has_new_names = self.data.as_ref().is_none_or(|data| new_names(&data.metrics, &made.measured) > 0);
        let must_agree = !self.is_agreed || has_new_names || (self.is_checked)(batch);
        let is_confirmed = member == CrewMember::Head || earlier.iter().any(|earlier| earlier.agrees(&made));
        if !must_agree || is_confirmed {
            self.is_agreed |= is_confirmed;
            self.add(now_s, batch, &made);
            let wrong = earlier.into_iter().filter(|earlier| is_confirmed && !earlier.agrees(&made));
            return wrong
                .map(|wrong| (wrong.member, format!("others measured something else in batch {batch}")))
                .collect();
        }
        self.progress_s = now_s;
        let made: Vec<MadeMeasurement> = earlier.into_iter().chain([made]).collect();
        if made.len() < MOST_MEASUREMENTS {
            self.unconfirmed.insert(batch, made);
        } else {
            self.give_up(batch, made);
        }
        Vec::new()
    }

    /// Excludes the members whose measurements of a batch all differ, since it is not known which of them is right.
    fn give_up(&mut self, batch: u64, made: Vec<MadeMeasurement>) {
        let reason = format!("no two of {} measurements of batch {batch} agree", made.len());
        for MadeMeasurement { member, .. } in made {
            self.fail(member, EvaluationError::Workers(reason.clone()));
        }
        self.returned.push(batch);
    }

    fn add(&mut self, now_s: f64, batch: u64, made: &MadeMeasurement) {
        let data = self.data.get_or_insert_with(|| MeasuredData { batches: made.found, metrics: BTreeSet::new() });
        data.metrics.extend(made.measured.metrics.keys().cloned());
        self.sum.get_or_insert_with(|| EvaluationSum::new(made.found)).add(batch, &made.measured);
        self.progress_s = now_s;
        self.held.retain(|(held, _)| *held != batch);
    }

    /// Checks that a measurement is of the data that the others measure, and of the same metrics.
    fn check_measurement(&self, MadeMeasurement { found, measured, .. }: &MadeMeasurement) -> Result<(), String> {
        let EvaluationBatches { samples, batch_samples } = *found;
        if let Some(own) = self.samples.filter(|own| *own != samples) {
            return Err(format!("it has {samples} test samples, and the coordinator has {own}"));
        }
        if found.count() > MAX_BATCHES {
            return Err(format!("it has {samples} test samples in {} batches: at most {MAX_BATCHES}", found.count()));
        }
        match &self.data {
            Some(MeasuredData { batches: others, .. }) if others != found => Err(format!(
                "it has {samples} test samples in batches of {batch_samples}, and the others have {} in batches of {}",
                others.samples, others.batch_samples
            )),
            Some(MeasuredData { metrics, .. }) if metrics.len() + new_names(metrics, measured) > MAX_METRICS => {
                Err(format!("it measures other metrics than the batches before: at most {MAX_METRICS} in all"))
            }
            _ => Ok(()),
        }
    }

    /// Takes back the batches that a member holds.
    pub(super) fn leave(&mut self, member: CrewMember) {
        let gone: Vec<u64> =
            self.held.extract_if(.., |(_, holder)| *holder == member).map(|(batch, _)| batch).collect();
        let is_held = |batch: &u64| self.held.iter().any(|(held, _)| held == batch);
        let is_offered = |batch: &u64| self.unconfirmed.contains_key(batch);
        self.returned.extend(gone.into_iter().filter(|batch| !is_held(batch) && !is_offered(batch)));
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

    /// Returns what the coordinator or two members agree on, for the next evaluations.
    pub(super) fn agreed(&self) -> Option<MeasuredData> {
        self.data.clone().filter(|_| self.is_agreed)
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
mod tests;
