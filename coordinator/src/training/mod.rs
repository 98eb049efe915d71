//! The thread that sums gradients and takes optimizer steps.
//!
//! The tasks that receive vectors send their chunks directly to the thread; everything else comes from the driver. As soon as a chunk of
//! all vectors of a step has arrived, it is stepped and sent to the workers, while later chunks arrive.
//!
//! # Layout
//! - here: the work and the reports of the thread, and its loop
//! - `gathering`: the gradients of the current step
//! - `pacing`: holds back senders that are far ahead

mod gathering;
mod pacing;

pub(crate) use pacing::{Paced, StepPace};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;

use ata_sums::{GradientSum, TaskResult, TrainingOutcome, TrainingState, Units};
use ata_types::{CollectionId, Iteration, TaskRange, VectorId};
use ata_wire::GradientHeader;

use crate::parameters::SetWriter;
use gathering::Gathering;

pub(crate) enum Work {
    /// Use these units for the gradients of the first step.
    Units(Units),
    Chunk(SumChunk),
    /// Add an assembled vector to the next step.
    Add(Arc<HeldSum>),
    Compare(Comparison),
    /// Take the step, once all of its vectors have arrived. Replaces an earlier order for the same step.
    Step(StepOrder),
    /// Drop the current step, if it is not complete.
    Abandon,
    /// Hand over a copy of the state after the last step.
    Copy(std_mpsc::SyncSender<TrainingState>),
    /// Hand over a copy of the parameters after the last step.
    Parameters(std_mpsc::SyncSender<Vec<f32>>),
    /// Passes on a copy of the parameters that are evaluated: their moving average, if there is one.
    Evaluated(std_mpsc::SyncSender<Vec<f32>>),
}

/// A chunk of a vector. The chunks of a vector arrive in order.
pub(crate) struct SumChunk {
    pub(crate) vector: VectorId,
    pub(crate) at: u64,
    pub(crate) sums: Vec<i32>,
    /// The headers of the vector, with its last chunk: claims of the senders, which count only once the vector has arrived whole.
    pub(crate) headers: Vec<GradientHeader>,
}

/// An assembled vector, which is used whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeldSum {
    pub(crate) sum: GradientSum,
    pub(crate) units: Units,
}

pub(crate) struct StepOrder {
    pub(crate) iteration: Iteration,
    /// The number of tasks whose gradients make up the step.
    pub(crate) tasks: u64,
    pub(crate) vectors: Vec<OrderedVector>,
    pub(crate) learning_rate: f64,
    /// Whether to compute the inner product with the last step's gradient.
    pub(crate) with_product: bool,
    /// The writer for the next parameters. Only the first order for a step has one.
    pub(crate) writer: Option<SetWriter>,
}

impl StepOrder {
    /// Returns this order with the writer of the earlier order for the same step, if that has one.
    pub(crate) fn replacing(self, earlier: Option<Self>) -> Self {
        let writer = earlier.and_then(|earlier| earlier.writer);
        Self { writer: writer.or(self.writer), ..self }
    }
}

/// A vector that is part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderedVector {
    pub(crate) id: VectorId,
    /// The first chunk of the vector. Earlier chunks came from a worker that was lost.
    pub(crate) first_chunk: u64,
}

/// Two vectors of the same tasks to compare.
pub(crate) struct Comparison {
    pub(crate) tasks: TaskRange,
    pub(crate) results: [ComparedResult; 2],
}

pub(crate) struct ComparedResult {
    pub(crate) collection: CollectionId,
    pub(crate) held: Arc<HeldSum>,
    /// The sum of the tasks' losses.
    pub(crate) loss: f64,
    pub(crate) is_batch: bool,
    /// Whether the worker computes the same bits as other exact workers.
    pub(crate) is_exact: bool,
}

pub(crate) enum TrainingEvent {
    /// The thread took a step.
    Step(StepResult),
    /// The thread dropped the current step, if there was one.
    Abandoned,
    /// The thread compared two vectors of the same tasks.
    Comparison { tasks: TaskRange, collections: [CollectionId; 2], agree: bool },
    /// The thread failed, and accepts no more work. The reason is that of the program's own optimizer; that of a panic has been printed.
    Failed(Option<String>),
}

#[derive(Debug, Default)]
pub(crate) struct StepResult {
    pub(crate) iteration: Iteration,
    pub(crate) learning_rate: f64,
    pub(crate) outcome: TrainingOutcome,
    /// The number of gradient values that were out of the units' range.
    pub(crate) saturated: u64,
    /// The number of nonzero gradient values that were rounded to 0.
    pub(crate) vanished: u64,
    /// The units of the next gradients.
    pub(crate) units: Option<Units>,
}

impl ComparedResult {
    fn agrees(&self, other: &Self, state: &TrainingState) -> bool {
        let (ours, theirs) = (self.task_result(), other.task_result());
        if self.is_exact && other.is_exact {
            return ours.equals(&theirs);
        }
        let units = &self.held.units;
        *units == other.held.units && ours.resembles(&theirs, units, &state.config().sizes)
    }

    fn task_result(&self) -> TaskResult<'_> {
        TaskResult { sum: &self.held.sum, loss: self.loss, is_batch: self.is_batch }
    }
}

/// Starts the thread, which ends when the returned sender is dropped. It passes its messages to `report`. With `keeps_apart`, it keeps the
/// vectors of a step separate until all have arrived, since results are compared before they count, and one may have to be dropped.
pub(crate) fn spawn(
    state: TrainingState,
    keeps_apart: bool,
    pace: StepPace,
    report: impl Fn(TrainingEvent) + Send + 'static,
) -> std_mpsc::Sender<Work> {
    let (work, receiver) = std_mpsc::channel();
    std::thread::Builder::new()
        .name("training".into())
        .spawn(move || {
            let thread = Thread {
                gathering: Gathering::new(keeps_apart, state.config().sizes.clone()),
                state,
                pace,
                report: &report,
            };
            // Without a report, the run would wait forever for a step.
            match catch_unwind(AssertUnwindSafe(|| thread.run(&receiver))) {
                Ok(Ok(())) => {}
                Ok(Err(reason)) => report(TrainingEvent::Failed(Some(reason))),
                Err(_) => report(TrainingEvent::Failed(None)),
            }
        })
        .expect("a thread can be started");
    work
}

struct Thread<'a> {
    state: TrainingState,
    gathering: Gathering,
    pace: StepPace,
    report: &'a dyn Fn(TrainingEvent),
}

impl Thread<'_> {
    fn run(mut self, received: &std_mpsc::Receiver<Work>) -> Result<(), String> {
        for work in received {
            match work {
                Work::Units(units) => self.state.set_units(units),
                Work::Chunk(chunk) => {
                    self.gathering.add_chunk(chunk);
                    self.advance()?;
                }
                Work::Add(held) => self.gathering.add_whole(held, self.state.units()),
                Work::Compare(Comparison { tasks, results: [one, other] }) => {
                    let (collections, agree) = ([one.collection, other.collection], one.agrees(&other, &self.state));
                    (self.report)(TrainingEvent::Comparison { tasks, collections, agree });
                }
                // An order that replaces another one may arrive after the step was taken.
                Work::Step(order) if order.iteration.number() <= self.state.steps() => {}
                Work::Step(order) => {
                    self.gathering.order(order);
                    self.advance()?;
                }
                Work::Abandon => {
                    self.state.abandon_step();
                    self.gathering.clear();
                    (self.report)(TrainingEvent::Abandoned);
                }
                // If the receiver is gone, the run is over.
                Work::Copy(copy) => drop(copy.send(self.state.saved()?)),
                Work::Parameters(copy) => drop(copy.send(self.state.parameters().to_vec())),
                Work::Evaluated(copy) => {
                    drop(copy.send(self.state.ema().unwrap_or(self.state.parameters()).to_vec()));
                }
            }
        }
        Ok(())
    }

    /// Steps the chunks that have arrived, and completes the step if all chunks have.
    fn advance(&mut self) -> Result<(), String> {
        if let Some(result) = self.gathering.advance(&mut self.state, &self.pace)? {
            self.pace.set(None);
            (self.report)(TrainingEvent::Step(result));
        }
        Ok(())
    }
}
