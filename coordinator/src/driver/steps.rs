//! The optimizer steps: the current parameters, and the thread that changes them.

use std::sync::{Arc, mpsc as std_mpsc};

use ata_sums::{LearningRate, TrainingState, Units};
use ata_types::{CollectionId, Iteration, WireFormat};

use crate::parameters::{ParameterSet, TrainedParameters, Versions};
use crate::training::{Comparison, HeldSum, OrderedVector, StepOrder, StepResult, Work};

/// The figures of a step, which are recorded in the journal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepFigures {
    /// The mean loss of the step's tasks, in nats.
    pub(super) loss: f64,
    pub(super) learning_rate: f64,
    /// The norm of the mean gradient before clipping, if clipping is enabled.
    pub(super) gradient_norm: Option<f64>,
    /// The number of gradient values that were out of the units' range.
    pub(super) saturated: u64,
    /// The number of nonzero gradient values that were rounded to 0.
    pub(super) vanished: u64,
    /// The number of workers that exchanged their vectors in shards.
    pub(super) shards: u64,
}

/// The parts of a step's order that the engine decides on.
#[derive(Clone)]
pub(super) struct StepPlan {
    pub(super) iteration: Iteration,
    pub(super) tasks: u64,
    /// The collections that make up the step, and those of their vectors that are not used whole.
    pub(super) collections: Vec<CollectionId>,
    pub(super) vectors: Vec<OrderedVector>,
    /// The mean loss of the tasks.
    pub(super) loss: f64,
    pub(super) lr_factor: f64,
    pub(super) with_product: bool,
}

/// The current parameters, and the training thread.
pub(super) struct Steps {
    /// The queue of the training thread, which ends when this is dropped.
    work: std_mpsc::Sender<Work>,
    learning_rate: LearningRate,
    /// The number of parameters, and the format in which they are sent.
    values: usize,
    format: WireFormat,
    /// The parameters of the current iteration.
    parameters: ParameterSet,
    /// The parameters of the next iteration, while the step that leads to them is taken.
    next: Option<ParameterSet>,
    /// The units of the current iteration's gradients; `None` until the first arrives.
    units: Option<Units>,
    versions: Versions,
    /// The figures of the last step that was ordered.
    figures: StepFigures,
    /// The current step as the engine ordered it.
    ordered: Option<StepPlan>,
    /// Whether the thread has a step whose result it has not reported.
    is_under_way: bool,
    /// The result of a step that is taken while the engine still waits for results that are no longer needed.
    taken: Option<StepResult>,
    has_failed: bool,
}

impl Steps {
    /// Starts from the parameters of `state`. Steps are taken by the thread that receives `work`, and at most
    /// `versions` versions of the parameters are in memory.
    pub(super) fn new(
        work: std_mpsc::Sender<Work>,
        learning_rate: LearningRate,
        state: &InitialState,
        versions: usize,
    ) -> Self {
        let parameters = state.parameters.clone();
        let mut versions = Versions::new(versions);
        versions.add(&parameters);
        Self {
            work,
            learning_rate,
            values: state.values,
            format: state.format,
            parameters,
            next: None,
            units: state.units.clone(),
            versions,
            figures: StepFigures::default(),
            ordered: None,
            is_under_way: false,
            taken: None,
            has_failed: false,
        }
    }

    /// Returns the thread's queue, for the tasks that receive chunks.
    pub(super) fn work(&self) -> std_mpsc::Sender<Work> {
        self.work.clone()
    }

    /// The parameters of the current iteration.
    pub(super) fn parameters(&self) -> &ParameterSet {
        &self.parameters
    }

    /// The parameters of the next iteration, while the step that leads to them is taken.
    pub(super) fn next(&self) -> Option<&ParameterSet> {
        self.next.as_ref()
    }

    /// The last step included in the current parameters.
    pub(super) fn last_step(&self) -> Iteration {
        self.parameters.last_step()
    }

    /// Returns the size in bytes of a set of parameters as it is sent to a worker that holds the last one.
    pub(super) fn set_bytes(&self) -> u64 {
        match self.format {
            WireFormat::F32Exact => 4 * self.values as u64,
            // This neglects the scales: few blocks need a byte for theirs.
            WireFormat::Compact => self.values as u64,
        }
    }

    /// The figures of the last step.
    pub(super) fn figures(&self) -> StepFigures {
        self.figures
    }

    /// The units of the current iteration's gradients, if they are known.
    pub(super) fn units(&self) -> Option<&Units> {
        self.units.as_ref()
    }

    /// Sets the units of the gradients of the first step.
    pub(super) fn set_units(&mut self, units: Units) {
        self.units = Some(units.clone());
        self.give(Work::Units(units));
    }

    /// Forgets the units of the first step, none of whose gradients counts.
    pub(super) fn forget_units(&mut self) {
        self.units = None;
    }

    /// Remembers the step that the engine ordered, since the names of its vectors may change.
    pub(super) fn remember(&mut self, plan: &StepPlan) {
        self.ordered = Some(plan.clone());
    }

    /// The current step as the engine ordered it.
    pub(super) fn ordered(&self) -> Option<StepPlan> {
        self.ordered.clone()
    }

    /// Returns whether the result of a step is awaited.
    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Returns whether the thread's state includes a step that is not committed.
    pub(super) fn is_ahead(&self) -> bool {
        self.taken.is_some()
    }

    /// Returns whether the thread failed, so that it takes no more steps.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Makes the order for the step of an iteration. For the first order of the step, also returns the parameters that the step will result
    /// in.
    pub(super) fn order(&mut self, plan: StepPlan) -> (StepOrder, Option<ParameterSet>) {
        let StepPlan { iteration, tasks, collections: _, vectors, loss, lr_factor, with_product } = plan;
        let learning_rate = self.learning_rate.at(iteration.number()) * lr_factor;
        self.figures = StepFigures { loss, learning_rate, ..StepFigures::default() };
        let (next, writer) = if self.next.is_none() {
            let (next, writer) = ParameterSet::begin(iteration.next(), self.values, self.format);
            self.next = Some(next.clone());
            (Some(next), Some(writer))
        } else {
            (None, None)
        };
        (StepOrder { iteration, tasks, vectors, learning_rate, with_product, writer }, next)
    }

    /// Adds an assembled vector to the next step.
    pub(super) fn add(&mut self, held: Arc<HeldSum>) {
        self.give(Work::Add(held));
    }

    /// Compares two vectors on the thread.
    pub(super) fn compare(&mut self, comparison: Comparison) {
        self.give(Work::Compare(comparison));
    }

    /// Takes a step. Returns its result if the step was already taken.
    pub(super) fn take(&mut self, order: StepOrder) -> Option<StepResult> {
        if let Some(taken) = self.taken.take() {
            return Some(taken);
        }
        self.give(Work::Step(order));
        self.is_under_way = !self.has_failed;
        None
    }

    /// Drops the current step, unless everything for it has arrived.
    pub(super) fn abandon(&mut self) {
        self.give(Work::Abandon);
    }

    /// Records that no step is under way any more.
    pub(super) fn abandoned(&mut self) {
        self.is_under_way = false;
    }

    /// Requests a copy of the state after the last step.
    pub(super) fn copy(&mut self) -> std_mpsc::Receiver<TrainingState> {
        let (copy, state) = std_mpsc::sync_channel(1);
        self.give(Work::Copy(copy));
        state
    }

    /// Requests a copy of the parameters after the last step.
    pub(super) fn trained(&mut self) -> TrainedParameters {
        let (copy, parameters) = std_mpsc::sync_channel(1);
        self.give(Work::Parameters(copy));
        TrainedParameters::new(self.last_step(), parameters)
    }

    /// Applies the result of a step that the engine has committed. `shards` is the number of workers that exchanged
    /// their vectors in shards. Returns whether there are more versions of the parameters in memory than allowed.
    pub(super) fn finish(&mut self, result: StepResult, shards: u64) -> bool {
        let StepResult { learning_rate, gradient_norm, saturated, vanished, units, .. } = result;
        (self.is_under_way, self.ordered) = (false, None);
        self.figures =
            StepFigures { loss: self.figures.loss, learning_rate, gradient_norm, saturated, vanished, shards };
        self.units = units;
        if let Some(next) = self.next.take() {
            self.parameters = next;
        }
        self.versions.add(&self.parameters)
    }

    /// Keeps the result of a step whose order the engine has withdrawn meanwhile.
    pub(super) fn keep(&mut self, result: StepResult) {
        self.is_under_way = false;
        self.taken = Some(result);
    }

    /// Records that the thread failed.
    pub(super) fn fail(&mut self) {
        self.is_under_way = false;
        self.has_failed = true;
    }

    fn give(&mut self, work: Work) {
        if self.work.send(work).is_err() {
            self.fail();
        }
    }
}

/// The driver's part of the state from which training starts.
pub(super) struct InitialState {
    parameters: ParameterSet,
    values: usize,
    format: WireFormat,
    units: Option<Units>,
}

impl InitialState {
    pub(super) fn of(state: &TrainingState) -> Self {
        let next = Iteration(state.steps()).next();
        Self {
            parameters: ParameterSet::complete(next, state.working_parameters()),
            values: state.parameters().len(),
            format: state.config().format,
            units: state.units().cloned(),
        }
    }
}

/// Access for tests on virtual time.
impl Steps {
    /// Replaces the thread's queue with `work`, and returns the queue.
    pub(super) fn intercept(&mut self, work: std_mpsc::Sender<Work>) -> std_mpsc::Sender<Work> {
        std::mem::replace(&mut self.work, work)
    }

    /// Changes how many versions of the parameters may be in memory.
    pub(super) fn limit_versions(&mut self, versions: usize) {
        self.versions = Versions::new(versions);
        self.versions.add(&self.parameters);
    }
}
