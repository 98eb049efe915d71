//! Optimizers on flat vectors.
//!
//! # Layout
//! - here: the optimizer and its constants, and optimizers that a program brings; `kernels`: the arithmetic of one step on a range of parameters
//! - `rate`: learning-rate schedules; `groups`: tensors with a rate and a weight decay of their own; `steps`: the step of each tensor

mod groups;
mod kernels;
mod rate;
mod steps;

pub use groups::{GroupRule, ParameterGroups, TensorGroups};
pub(crate) use kernels::{Range, average, follow};
pub use rate::{LearningRate, Schedule, ScheduleName};
pub(crate) use steps::{PieceStep, StepSetup, TensorSteps};

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

/// An optimizer and its constants.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimizer {
    /// The update rule.
    pub rule: Rule,
    /// The weight decay λ: it adds λ·θ to the gradient, except in AdamW, which shrinks θ by the factor 1 − η·λ instead.
    pub weight_decay: f64,
    /// The Euclidean norm to which a larger mean gradient is scaled down.
    pub clip_norm: Option<f64>,
    /// The decay rates β₁ and β₂ of the moments of Adam and AdamW, from 0 to below 1.
    pub betas: [f64; 2],
    /// The number ε that Adam and AdamW add to the root of the second moment.
    pub epsilon: f64,
    /// Tensors with another learning rate or weight decay.
    pub groups: TensorGroups,
    /// The decay of the moving average of the parameters, from 0 to below 1, if there is one.
    pub ema: Option<f64>,
}

impl Default for Optimizer {
    fn default() -> Self {
        Self {
            rule: Rule::Adam,
            weight_decay: 0.0,
            clip_norm: None,
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            groups: TensorGroups::default(),
            ema: None,
        }
    }
}

/// The update rule of an optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Kingma, Ba, "Adam: A Method for Stochastic Optimization", 2015, Algorithm 1.
    Adam,
    /// Loshchilov, Hutter, "Decoupled Weight Decay Regularization", 2019, Algorithm 2.
    AdamW,
    /// Stochastic gradient descent with momentum μ, as in PyTorch (dampening 0): v ← μ·v + g, θ ← θ − η·v; with Nesterov's
    /// momentum θ ← θ − η·(g + μ·v).
    Sgd {
        /// The momentum μ, from 0 to below 1.
        momentum: f64,
        /// Whether the momentum is Nesterov's.
        nesterov: bool,
    },
    /// The rule of an [`OwnOptimizer`].
    Own,
}

/// The name of a rule, in flags and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleName {
    /// [`Rule::Adam`]
    Adam,
    /// [`Rule::AdamW`]
    AdamW,
    /// [`Rule::Sgd`]
    Sgd,
    /// [`Rule::Own`]
    Own,
}

impl Rule {
    /// Returns the names, as in PyTorch, of the vectors that the rule keeps from step to step. Each has one `f32` per parameter.
    pub fn moments(self) -> &'static [&'static str] {
        match self {
            Self::Adam | Self::AdamW => &["exp_avg", "exp_avg_sq"],
            Self::Sgd { momentum: 0.0, .. } | Self::Own => &[],
            Self::Sgd { .. } => &["momentum_buffer"],
        }
    }
}

/// An optimizer that a program brings. It steps whole vectors, and exists on the coordinator only.
pub trait OwnOptimizer: Debug + Send {
    /// Takes a step. Returns the learning rate, for display.
    fn step(&mut self, step: OwnStep<'_>) -> Result<f64, String>;

    /// Returns what the optimizer keeps from step to step, for a checkpoint.
    fn state(&self) -> Result<Vec<u8>, String>;

    /// Sets what the optimizer keeps to what a checkpoint holds.
    fn restore(&mut self, state: &[u8]) -> Result<(), String>;
}

/// A step of an optimizer that a program brings.
#[derive(Debug)]
pub struct OwnStep<'a> {
    /// The number of the step, counted from 1.
    pub time: u64,
    /// The factor by which a policy reduces the learning rate of this step.
    pub rate_factor: f64,
    /// The model's values in flat order. Of these, the trained ones are stepped; what becomes of the others does not matter.
    pub values: &'a mut [f32],
    /// The mean gradient, clipped, with one number per trained value.
    pub gradient: &'a [f32],
    /// Whether each trained tensor has a gradient; `None` if all have one.
    pub used: Option<&'a [bool]>,
}
