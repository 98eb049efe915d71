//! The optimizer steps: the current parameters, and the thread that changes them.

use std::sync::{Arc, mpsc as std_mpsc};

use ata_sums::{LearningRate, TrainingState, Units};
use ata_types::{CollectionId, Iteration, WireFormat};

use crate::parameters::{ParameterSet, TrainedParameters, Versions};
use crate::training::{Comparison, HeldSum, OrderedVector, StepOrder, StepResult, Work};

/// The figures of a step, for the record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepFigures {
    /// Mean loss of the step's tasks, in nats.
    pub(super) loss: f64,
    pub(super) learning_rate: f64,
    /// Norm of the mean gradient before it was clipped, if it may be.
    pub(super) gradient_norm: Option<f64>,
    /// How many values of the tasks' gradients were out of the units' range.
    pub(super) saturated: u64,
    /// How many of them became 0, and were not.
    pub(super) vanished: u64,
    /// How many workers exchanged their vectors in shards.
    pub(super) shards: u64,
}

/// The parts of a step's order that the engine decides on.
#[derive(Clone)]
pub(super) struct StepPlan {
    pub(super) iteration: Iteration,
    pub(super) tasks: u64,
    /// The collections that make it, and their vectors that are not used whole.
    pub(super) collections: Vec<CollectionId>,
    pub(super) vectors: Vec<OrderedVector>,
    /// Mean loss of the tasks.
    pub(super) loss: f64,
    pub(super) lr_factor: f64,
    pub(super) with_product: bool,
}

/// The current parameters, and the training thread.
pub(super) struct Steps {
    /// The training thread, which ends when this is dropped.
    work: std_mpsc::Sender<Work>,
    learning_rate: LearningRate,
    /// How many parameters there are, and how they are sent.
    values: usize,
    format: WireFormat,
    /// The parameters of the current iteration.
    parameters: ParameterSet,
    /// Those of the next one, while its step is taken.
    next: Option<ParameterSet>,
    /// The units of the current iteration's gradients; `None` until the first arrives.
    units: Option<Units>,
    versions: Versions,
    /// The figures of the last step that was ordered.
    figures: StepFigures,
    /// The step that the engine ordered.
    ordered: Option<StepPlan>,
    /// Whether the thread was given a step whose result it has not reported.
    is_under_way: bool,
    /// A step that is taken, while the engine waits for results that it no longer needs.
    taken: Option<StepResult>,
    has_failed: bool,
}

impl Steps {
    /// Steps from the parameters of `state` on, of which at most `versions` are in memory, by the thread behind `work`.
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

    /// The thread's queue, for those who receive chunks.
    pub(super) fn work(&self) -> std_mpsc::Sender<Work> {
        self.work.clone()
    }

    /// The parameters of the current iteration.
    pub(super) fn parameters(&self) -> &ParameterSet {
        &self.parameters
    }

    /// The parameters of the next iteration, while the step is taken that they result from.
    pub(super) fn next(&self) -> Option<&ParameterSet> {
        self.next.as_ref()
    }

    /// The last step that the current parameters hold.
    pub(super) fn last_step(&self) -> Iteration {
        self.parameters.last_step()
    }

    /// The size of a set of parameters, as it is sent to those who hold the last one.
    pub(super) fn set_bytes(&self) -> u64 {
        match self.format {
            WireFormat::F32Exact => 4 * self.values as u64,
            // Few blocks need a byte of scale.
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

    /// Sets the units of the first step.
    pub(super) fn set_units(&mut self, units: Units) {
        self.units = Some(units.clone());
        self.give(Work::Units(units));
    }

    /// Forgets the units of the first step, of whose gradients none counts.
    pub(super) fn forget_units(&mut self) {
        self.units = None;
    }

    /// Remembers the step that the engine ordered, since its vectors may get other names.
    pub(super) fn remember(&mut self, plan: &StepPlan) {
        self.ordered = Some(plan.clone());
    }

    /// The step that the engine ordered.
    pub(super) fn ordered(&self) -> Option<StepPlan> {
        self.ordered.clone()
    }

    /// Whether the result of a step is awaited.
    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Whether the thread's state holds a step that is not committed.
    pub(super) fn is_ahead(&self) -> bool {
        self.taken.is_some()
    }

    /// Whether the thread failed, so that there will be no more steps.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Makes the order for the step of an iteration. Also returns the parameters that it will result in, if it is the first
    /// order.
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

    /// Adds a vector that was put together to those of the next step.
    pub(super) fn add(&mut self, held: Arc<HeldSum>) {
        self.give(Work::Add(held));
    }

    /// Compares two vectors on the thread.
    pub(super) fn compare(&mut self, comparison: Comparison) {
        self.give(Work::Compare(comparison));
    }

    /// Takes a step. Returns its result if it is taken already.
    pub(super) fn take(&mut self, order: StepOrder) -> Option<StepResult> {
        if let Some(taken) = self.taken.take() {
            return Some(taken);
        }
        self.give(Work::Step(order));
        self.is_under_way = !self.has_failed;
        None
    }

    /// Drops the step that is under way, unless everything for it has arrived.
    pub(super) fn abandon(&mut self) {
        self.give(Work::Abandon);
    }

    /// No step is under way any more.
    pub(super) fn abandoned(&mut self) {
        self.is_under_way = false;
    }

    /// Asks for a copy of the state after the last step.
    pub(super) fn copy(&mut self) -> std_mpsc::Receiver<TrainingState> {
        let (copy, state) = std_mpsc::sync_channel(1);
        self.give(Work::Copy(copy));
        state
    }

    /// Asks for a copy of the parameters after the last step.
    pub(super) fn trained(&mut self) -> TrainedParameters {
        let (copy, parameters) = std_mpsc::sync_channel(1);
        self.give(Work::Parameters(copy));
        TrainedParameters::new(self.last_step(), parameters)
    }

    /// Takes in the result of a step that the engine has committed, with the number of workers that exchanged their
    /// vectors in shards. Returns whether more versions of the parameters are in memory
    /// than may be.
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

    /// Keeps the result of a step whose order the engine took back before it knew.
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

/// What the driver knows of the state in which training begins.
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

/// Seams for the tests on virtual time.
impl Steps {
    /// Replaces the thread's queue by `work`, and returns the queue.
    pub(super) fn intercept(&mut self, work: std_mpsc::Sender<Work>) -> std_mpsc::Sender<Work> {
        std::mem::replace(&mut self.work, work)
    }

    /// Changes how many versions of the parameters may be in memory.
    pub(super) fn limit_versions(&mut self, versions: usize) {
        self.versions = Versions::new(versions);
        self.versions.add(&self.parameters);
    }
}
