//! Optimizers that a program brings.

use std::fmt::Debug;

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
