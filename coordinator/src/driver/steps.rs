//! The optimizer steps: the current parameters, and the thread that changes them.

use std::sync::mpsc as std_mpsc;

use ata_learn::{LearningRate, Partial, TrainingState};
use ata_types::Iteration;
use ata_wire::TraceContext;

use crate::parameters::{ParameterSet, Versions};
use crate::training::{Comparison, StepFigures, StepOrder, Work};

/// The current parameters, and the training thread.
pub(super) struct Steps {
    /// The training thread, which ends when this is dropped.
    work: std_mpsc::Sender<Work>,
    learning_rate: LearningRate,
    /// The parameters of the current iteration.
    parameters: ParameterSet,
    versions: Versions,
    /// The figures of the last step.
    figures: StepFigures,
    /// Whether the thread was given a step whose result it has not reported.
    is_under_way: bool,
    has_failed: bool,
}

impl Steps {
    /// Steps from `parameters` on, of which at most `versions` are in memory.
    pub(super) fn new(
        work: std_mpsc::Sender<Work>,
        learning_rate: LearningRate,
        parameters: ParameterSet,
        versions: usize,
    ) -> Self {
        let mut versions = Versions::new(versions);
        versions.add(&parameters);
        let figures = StepFigures::default();
        Self { work, learning_rate, parameters, versions, figures, is_under_way: false, has_failed: false }
    }

    /// The parameters of the current iteration.
    pub(super) fn parameters(&self) -> &ParameterSet {
        &self.parameters
    }

    /// The figures of the last step.
    pub(super) fn figures(&self) -> StepFigures {
        self.figures
    }

    /// Whether the result of a step is awaited.
    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Whether the thread failed, so that there will be no more steps.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Makes the order for the step of an iteration.
    pub(super) fn order(
        &self,
        iteration: Iteration,
        tasks: u64,
        lr_factor: f64,
        with_product: bool,
        trace: Option<TraceContext>,
    ) -> StepOrder {
        let learning_rate = self.learning_rate.at(iteration.number()) * lr_factor;
        StepOrder { iteration, tasks, learning_rate, with_product, trace }
    }

    /// Adds a gradient to those of the next step.
    pub(super) fn add(&mut self, gradient: Partial) {
        self.give(Work::Add(gradient));
    }

    /// Compares two results on the thread, since they may be large.
    pub(super) fn compare(&mut self, comparison: Comparison) {
        self.give(Work::Compare(comparison));
    }

    /// Takes a step.
    pub(super) fn take(&mut self, order: StepOrder) {
        self.give(Work::Step(order));
        self.is_under_way = !self.has_failed;
    }

    /// Asks for a copy of the state after the last step.
    pub(super) fn copy(&mut self) -> std_mpsc::Receiver<TrainingState> {
        let (copy, state) = std_mpsc::sync_channel(1);
        self.give(Work::Copy(copy));
        state
    }

    /// Takes in the result of a step. Returns whether more versions of the parameters are in memory than may be.
    pub(super) fn finish(&mut self, figures: StepFigures, parameters: ParameterSet) -> bool {
        self.is_under_way = false;
        self.figures = figures;
        self.parameters = parameters;
        self.versions.add(&self.parameters)
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
