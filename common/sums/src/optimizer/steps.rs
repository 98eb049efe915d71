//! The steps of a model's tensors, which differ in their parameter groups, and in whether tasks had a gradient.

use std::ops::Range;

use super::Optimizer;
use super::kernels::OptimizerStep;
use crate::exact::TensorSizes;

#[derive(Debug)]
pub(crate) struct TensorSteps {
    trained: TrainedSteps,
    pub(crate) tasks: f32,
}

#[derive(Debug)]
enum TrainedSteps {
    Alike(OptimizerStep),
    /// The step of each tensor; `None` for those that stay as they are.
    Each(Vec<Option<OptimizerStep>>),
    /// The values after the step, which another optimizer has computed.
    Known(Vec<f32>),
}

pub(crate) enum PieceStep<'a> {
    Take(&'a OptimizerStep),
    Keep,
    /// These are the values after the step.
    Set(&'a [f32]),
}

/// The setup of a step of all tensors.
pub(crate) struct StepSetup<'a> {
    pub(crate) tasks: u64,
    /// The factor that turns the sum of the tasks' gradients into their mean, clipped.
    pub(crate) scale: f32,
    /// The number of the step, counted from 1.
    pub(crate) time: u64,
    pub(crate) rate: f64,
    /// The number of trained tensors.
    pub(crate) tensors: usize,
    /// For each trained tensor, the number of the step for it; 0 if it has no gradient. `None` if all tensors have one in every step.
    pub(crate) times: Option<&'a [u64]>,
    /// The values after the step, if another optimizer computes them.
    pub(crate) known: Option<Vec<f32>>,
}

impl TensorSteps {
    pub(crate) fn new(optimizer: &Optimizer, step: StepSetup<'_>) -> Self {
        let StepSetup { tasks, scale, time, rate, tensors, times, known } = step;
        let new = |tensor, time| OptimizerStep::new(optimizer, optimizer.groups.of(tensor), time, rate, scale);
        let trained = match known {
            Some(values) => TrainedSteps::Known(values),
            None if times.is_none() && optimizer.groups.are_one() => TrainedSteps::Alike(new(0, time)),
            None => {
                let step_of = |tensor: usize| {
                    let time = times.map_or(time, |times| times[tensor]);
                    (time > 0).then(|| new(tensor, time))
                };
                TrainedSteps::Each((0..tensors).map(step_of).collect())
            }
        };
        Self { trained, tasks: tasks as f32 }
    }

    /// Splits a range of the trained values by their steps.
    pub(crate) fn pieces(&self, sizes: &TensorSizes, range: Range<usize>) -> Vec<(PieceStep<'_>, Range<usize>)> {
        match &self.trained {
            TrainedSteps::Alike(step) => vec![(PieceStep::Take(step), range)],
            TrainedSteps::Each(steps) => {
                let of = |tensor: usize| steps[tensor].as_ref().map_or(PieceStep::Keep, PieceStep::Take);
                sizes.pieces(range).map(|(tensor, piece)| (of(tensor), piece)).collect()
            }
            TrainedSteps::Known(values) => vec![(PieceStep::Set(&values[range.clone()]), range)],
        }
    }
}
