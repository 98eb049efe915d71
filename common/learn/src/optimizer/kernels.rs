//! One step on a range of parameters, in one pass over memory. Each parameter's result depends on its own values only, so
//! ranges can be computed in parallel without changing a bit.

#![allow(
    clippy::inline_always,
    reason = "what a kernel calls is compiled for its instructions only if it is a part of it"
)]

use super::{Optimizer, Rule};

const BETA_1: f32 = 0.9;
const BETA_2: f32 = 0.999;
const EPSILON: f32 = 1e-8;

/// The parts of a step that all ranges share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    rule: Rule,
    weight_decay: f32,
    rate: f32,
    /// The factor 1 − η·λ of AdamW.
    shrink: f32,
    /// The factor that makes the sum of the tasks' gradients their mean, clipped: a division would take as long as all else.
    scale: f32,
    /// The number of the step, saturating.
    time: i32,
}

/// A range of parameters with their moments and gradient; `moments` as in [`Rule::moments`].
pub(crate) struct Range<'a> {
    pub(crate) parameters: &'a mut [f32],
    pub(crate) moments: Vec<&'a mut [f32]>,
    /// The sum of the tasks' gradients.
    pub(crate) sum: &'a [f32],
}

impl Step {
    /// The step number `time`, counted from 1, at the learning rate `rate`.
    pub(crate) fn new(optimizer: &Optimizer, time: u64, rate: f64, tasks: u64, clip: f64) -> Self {
        Self {
            rule: optimizer.rule,
            weight_decay: optimizer.weight_decay as f32,
            rate: rate as f32,
            shrink: (1.0 - rate * optimizer.weight_decay) as f32,
            scale: 1.0 / tasks as f32 * clip as f32,
            time: i32::try_from(time).unwrap_or(i32::MAX),
        }
    }

    /// Takes the step on a range.
    pub(crate) fn take(&self, range: Range<'_>) {
        // Compiled for each width of registers; no number depends on its neighbours, so the bits are the same.
        ata_nn::vectorized(|| self.take_inline(range));
    }

    #[inline(always)]
    fn take_inline(&self, range: Range<'_>) {
        let Range { parameters, mut moments, sum } = range;
        match (self.rule, &mut moments[..]) {
            (Rule::Adam, [m, v]) => self.adam(parameters, m, v, sum),
            (Rule::AdamW, [m, v]) => self.adamw(parameters, m, v, sum),
            (Rule::Sgd { momentum, nesterov }, [velocity]) => {
                self.momentum(parameters, velocity, sum, momentum as f32, nesterov);
            }
            (Rule::Sgd { .. }, []) => self.plain(parameters, sum),
            _ => unreachable!("moments are made for the rule"),
        }
    }

    #[inline(always)]
    fn adam(&self, parameters: &mut [f32], m: &mut [f32], v: &mut [f32], sum: &[f32]) {
        let correction = (1.0 - BETA_2.powi(self.time)).sqrt();
        let factor = correction / (1.0 - BETA_1.powi(self.time));
        let epsilon = EPSILON * correction;
        for (((parameter, m), v), sum) in parameters.iter_mut().zip(m).zip(v).zip(sum) {
            let gradient = *parameter * self.weight_decay + *sum * self.scale;
            *m = *m * BETA_1 + gradient * (1.0 - BETA_1);
            *v = *v * BETA_2 + gradient * gradient * (1.0 - BETA_2);
            *parameter -= *m * factor / (v.sqrt() + epsilon) * self.rate;
        }
    }

    #[inline(always)]
    fn adamw(&self, parameters: &mut [f32], m: &mut [f32], v: &mut [f32], sum: &[f32]) {
        let (bias_1, bias_2) = (1.0 - BETA_1.powi(self.time), 1.0 - BETA_2.powi(self.time));
        for (((parameter, m), v), sum) in parameters.iter_mut().zip(m).zip(v).zip(sum) {
            let gradient = *sum * self.scale;
            *m = *m * BETA_1 + gradient * (1.0 - BETA_1);
            *v = *v * BETA_2 + gradient * gradient * (1.0 - BETA_2);
            *parameter = *parameter * self.shrink - *m / bias_1 / ((*v / bias_2).sqrt() + EPSILON) * self.rate;
        }
    }

    #[inline(always)]
    fn momentum(&self, parameters: &mut [f32], velocity: &mut [f32], sum: &[f32], momentum: f32, nesterov: bool) {
        for ((parameter, velocity), sum) in parameters.iter_mut().zip(velocity).zip(sum) {
            let gradient = *parameter * self.weight_decay + *sum * self.scale;
            *velocity = gradient + *velocity * momentum;
            let direction = if nesterov { *velocity * momentum + gradient } else { *velocity };
            *parameter -= direction * self.rate;
        }
    }

    #[inline(always)]
    fn plain(&self, parameters: &mut [f32], sum: &[f32]) {
        for (parameter, sum) in parameters.iter_mut().zip(sum) {
            *parameter -= (*parameter * self.weight_decay + *sum * self.scale) * self.rate;
        }
    }
}
