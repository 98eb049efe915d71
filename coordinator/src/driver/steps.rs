//! The optimizer steps: the current parameters, and the thread that changes them.

use std::sync::mpsc as std_mpsc;

use ata_sums::{LearningRate, TrainingState, Units};
use ata_types::{CollectionId, Iteration, WireFormat};

use crate::parameters::{ParameterSet, TrainedParameters, Versions};
use crate::training::{self, OrderedVector, StepOrder, StepPace, StepResult, TrainingEvent, Work};

/// The parts of a step's order that the engine decides on.
#[derive(Clone)]
pub(super) struct StepPlan {
    pub(super) iteration: Iteration,
    pub(super) tasks: u64,
    /// The collections that make up the step, and those of their vectors that are not used whole.
    pub(super) collections: Vec<CollectionId>,
    pub(super) vectors: Vec<OrderedVector>,
    pub(super) loss: f64,
    pub(super) lr_factor: f64,
    pub(super) with_product: bool,
}

pub(super) struct Steps {
    /// The queue of the training thread, which ends when this is dropped.
    pub(super) work: std_mpsc::Sender<Work>,
    learning_rate: LearningRate,
    /// The number of parameters, and the format in which they are sent.
    values: usize,
    format: WireFormat,
    /// The number of tasks of the run before the current iteration's, and B.
    pub(super) position: u64,
    budget: u64,
    pub(super) parameters: ParameterSet,
    /// The parameters of the next iteration, while the step that leads to them is taken.
    pub(super) next: Option<ParameterSet>,
    /// The units of the current iteration's gradients; `None` until the first arrives.
    pub(super) units: Option<Units>,
    pub(super) versions: Versions,
    /// The mean loss of the tasks of the step that was ordered last, in nats.
    pub(super) loss: f64,
    /// The result of the last committed step, and the number of workers that exchanged their vectors in shards.
    pub(super) result: StepResult,
    pub(super) shards: u64,
    /// The current step as the engine ordered it.
    pub(super) ordered: Option<StepPlan>,
    /// Whether the thread has a step whose result it has not reported.
    pub(super) is_under_way: bool,
    /// The result of a step that is taken while the engine still waits for results that are no longer needed.
    taken: Option<StepResult>,
    pub(super) has_failed: bool,
    /// Why the program's own optimizer has failed.
    pub(super) failure: Option<String>,
    /// Whether there is a moving average of the parameters.
    pub(super) has_ema: bool,
}

impl Steps {
    /// Starts the thread, which takes steps from `state` on and passes its messages to `report`. At most `versions` versions of the
    /// parameters are in memory. For `keeps_apart`, see [`training::spawn`].
    pub(super) fn start(
        state: TrainingState,
        learning_rate: LearningRate,
        budget: u64,
        versions: usize,
        keeps_apart: bool,
        pace: StepPace,
        report: impl Fn(TrainingEvent) + Send + 'static,
    ) -> Self {
        let parameters = ParameterSet::complete(Iteration(state.steps()).next(), state.working_parameters());
        let mut versions = Versions::new(versions);
        versions.add(&parameters);
        Self {
            learning_rate,
            values: state.parameters().len(),
            format: state.config().format,
            position: 0,
            budget,
            parameters,
            next: None,
            units: state.units().cloned(),
            versions,
            loss: f64::NAN,
            result: StepResult::default(),
            shards: 0,
            ordered: None,
            is_under_way: false,
            taken: None,
            has_failed: false,
            failure: None,
            has_ema: state.ema().is_some(),
            work: training::spawn(state, keeps_apart, pace, report),
        }
    }

    pub(super) fn last_step(&self) -> Iteration {
        self.parameters.last_step()
    }

    /// Returns the iteration in which the current one would begin if all had B tasks: learning rates follow it.
    pub(super) fn began(&self) -> Iteration {
        Iteration::of_task(self.position, self.budget).0
    }

    /// Returns the size in bytes of a set of parameters as it is sent to a worker that holds the last one.
    pub(super) fn set_bytes(&self) -> u64 {
        match self.format {
            WireFormat::F32Exact => 4 * self.values as u64,
            // This neglects the scales: few blocks need a byte for theirs.
            WireFormat::Compact => self.values as u64,
        }
    }

    pub(super) fn set_units(&mut self, units: Units) {
        self.units = Some(units.clone());
        self.give(Work::Units(units));
    }

    /// Returns whether the thread's state includes a step that is not committed.
    pub(super) fn is_ahead(&self) -> bool {
        self.taken.is_some()
    }

    /// Makes the order for a step. If it is the first one, also returns the parameters that the step will result in.
    pub(super) fn order(&mut self, plan: StepPlan) -> (StepOrder, Option<ParameterSet>) {
        self.ordered = Some(plan.clone());
        let StepPlan { iteration, tasks, collections: _, vectors, loss, lr_factor, with_product } = plan;
        let learning_rate = self.learning_rate.at(self.began().number()) * lr_factor;
        self.loss = loss;
        let begun = self.next.is_none().then(|| ParameterSet::begin(iteration.next(), self.values, self.format));
        let (next, writer) = begun.unzip();
        self.next = self.next.take().or_else(|| next.clone());
        (StepOrder { iteration, tasks, vectors, learning_rate, with_product, writer }, next)
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

    pub(super) fn copy(&mut self) -> std_mpsc::Receiver<TrainingState> {
        let (copy, state) = std_mpsc::sync_channel(1);
        self.give(Work::Copy(copy));
        state
    }

    pub(super) fn trained(&mut self) -> TrainedParameters {
        self.copy_of(Work::Parameters)
    }

    /// Returns the parameters that are evaluated: their moving average, if there is one.
    pub(super) fn evaluated(&mut self) -> TrainedParameters {
        self.copy_of(Work::Evaluated)
    }

    fn copy_of(&mut self, work: impl FnOnce(std_mpsc::SyncSender<Vec<f32>>) -> Work) -> TrainedParameters {
        let (copy, parameters) = std_mpsc::sync_channel(1);
        self.give(work(copy));
        TrainedParameters::new(self.last_step(), parameters)
    }

    /// Applies the result of a committed step. Returns whether there are more versions of the parameters in memory than allowed.
    pub(super) fn finish(&mut self, mut result: StepResult, shards: u64) -> bool {
        (self.is_under_way, self.ordered) = (false, None);
        self.units = result.units.take();
        (self.result, self.shards) = (result, shards);
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

    pub(super) fn fail(&mut self) {
        self.is_under_way = false;
        self.has_failed = true;
    }

    pub(super) fn give(&mut self, work: Work) {
        if self.work.send(work).is_err() {
            self.fail();
        }
    }
}
