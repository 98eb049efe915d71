//! One step on a range of parameters, in one pass over memory. Each parameter's result depends on its own values only,
//! so ranges can be computed in parallel without changing a bit.

use super::groups::GroupRule;
use super::{Optimizer, Rule};

#[derive(Clone, Copy, Debug)]
pub(crate) struct OptimizerStep {
    rule: Rule,
    betas: [f32; 2],
    epsilon: f32,
    weight_decay: f32,
    rate: f32,
    /// The factor 1 − η·λ of AdamW.
    shrink: f32,
    /// The factor that turns the sum of the tasks' gradients into their mean, clipped. A division would take as long as
    /// the rest of the step.
    scale: f32,
    /// The number of the step, saturating.
    time: i32,
}

/// A range of parameters, before and after a step; `moments` as in [`Rule::moments`].
pub(crate) struct Range<'a> {
    pub(crate) parameters: &'a [f32],
    pub(crate) moments: Vec<&'a [f32]>,
    /// The sum of the tasks' gradients.
    pub(crate) sum: &'a [f32],
    pub(crate) next_parameters: &'a mut [f32],
    pub(crate) next_moments: Vec<&'a mut [f32]>,
}

impl Range<'_> {
    /// Leaves the parameters as they are.
    pub(crate) fn keep(self) {
        self.next_parameters.copy_from_slice(self.parameters);
        for (next, moment) in self.next_moments.into_iter().zip(self.moments) {
            next.copy_from_slice(moment);
        }
    }
}

impl OptimizerStep {
    /// Prepares step number `time`, counted from 1, of a group's tensors. `scale` turns the sum of the tasks' gradients into the gradient.
    pub(crate) fn new(optimizer: &Optimizer, group: GroupRule, time: u64, rate: f64, scale: f32) -> Self {
        let weight_decay = group.weight_decay.unwrap_or(optimizer.weight_decay);
        let rate = rate * group.rate_factor;
        Self {
            rule: optimizer.rule,
            betas: optimizer.betas.map(|beta| beta as f32),
            epsilon: optimizer.epsilon as f32,
            weight_decay: weight_decay as f32,
            rate: rate as f32,
            shrink: (1.0 - rate * weight_decay) as f32,
            scale,
            time: i32::try_from(time).unwrap_or(i32::MAX),
        }
    }

    pub(crate) fn take(&self, range: Range<'_>) {
        let Range { parameters, moments, sum, next_parameters: next, mut next_moments } = range;
        // The code is compiled for each register width; no number depends on its neighbours, so the bits are the same.
        ata_nn::vectorized(
            #[inline(always)]
            || match (self.rule, &moments[..], &mut next_moments[..]) {
                (Rule::Adam, [m, v], [next_m, next_v]) => self.adam([parameters, m, v, sum], [next, next_m, next_v]),
                (Rule::AdamW, [m, v], [next_m, next_v]) => self.adamw([parameters, m, v, sum], [next, next_m, next_v]),
                (Rule::Sgd { momentum, nesterov }, [velocity], [next_velocity]) => {
                    self.momentum([parameters, velocity, sum], [next, next_velocity], momentum as f32, nesterov);
                }
                (Rule::Sgd { .. }, [], []) => self.plain([parameters, sum], next),
                _ => unreachable!("moments are made for the rule"),
            },
        );
    }

    #[inline(always)]
    fn adam(&self, before: [&[f32]; 4], after: [&mut [f32]; 3]) {
        let [beta_1, beta_2] = self.betas;
        let correction = (1.0 - beta_2.powi(self.time)).sqrt();
        let factor = correction / (1.0 - beta_1.powi(self.time));
        let epsilon = self.epsilon * correction;
        each(before, after, |[parameter, m, v, sum]| {
            let gradient = parameter * self.weight_decay + sum * self.scale;
            let m = m * beta_1 + gradient * (1.0 - beta_1);
            let v = v * beta_2 + gradient * gradient * (1.0 - beta_2);
            [parameter - m * factor / (v.sqrt() + epsilon) * self.rate, m, v]
        });
    }

    #[inline(always)]
    fn adamw(&self, before: [&[f32]; 4], after: [&mut [f32]; 3]) {
        let [beta_1, beta_2] = self.betas;
        let (bias_1, bias_2) = (1.0 - beta_1.powi(self.time), 1.0 - beta_2.powi(self.time));
        each(before, after, |[parameter, m, v, sum]| {
            let gradient = sum * self.scale;
            let m = m * beta_1 + gradient * (1.0 - beta_1);
            let v = v * beta_2 + gradient * gradient * (1.0 - beta_2);
            [parameter * self.shrink - m / bias_1 / ((v / bias_2).sqrt() + self.epsilon) * self.rate, m, v]
        });
    }

    #[inline(always)]
    fn momentum(&self, before: [&[f32]; 3], after: [&mut [f32]; 2], momentum: f32, nesterov: bool) {
        each(before, after, |[parameter, velocity, sum]| {
            let gradient = parameter * self.weight_decay + sum * self.scale;
            let velocity = gradient + velocity * momentum;
            let direction = if nesterov { velocity * momentum + gradient } else { velocity };
            [parameter - direction * self.rate, velocity]
        });
    }

    #[inline(always)]
    fn plain(&self, before: [&[f32]; 2], next: &mut [f32]) {
        each(before, [next], |[parameter, sum]| {
            [parameter - (parameter * self.weight_decay + sum * self.scale) * self.rate]
        });
    }
}

/// Sets averaged tensors to the mean of what the tasks leave. `sum` is that of their values before a task minus those after it. It is
/// divided, so that counters remain integers.
pub(crate) fn average(values: &[f32], sum: &[f32], tasks: f32, next: &mut [f32]) {
    each([values, sum], [next], |[value, sum]| [value - sum / tasks]);
}

/// Moves an exponential moving average towards the parameters after a step.
pub(crate) fn follow(average: &[f32], parameters: &[f32], decay: f64, next: &mut [f32]) {
    let share = (1.0 - decay) as f32;
    ata_nn::vectorized(
        #[inline(always)]
        || each([average, parameters], [next], |[average, parameter]| [average + share * (parameter - average)]),
    );
}

/// Computes every value after a step from the values before it.
#[inline(always)]
fn each<const N: usize, const M: usize>(
    before: [&[f32]; N],
    after: [&mut [f32]; M],
    value: impl Fn([f32; N]) -> [f32; M],
) {
    let length = before[0].len();
    // All slices get the same length, so that no access is checked.
    let before = before.map(|values| &values[..length]);
    let mut after = after.map(|values| &mut values[..length]);
    for at in 0..length {
        let next = value(before.map(|values| values[at]));
        for (values, next) in after.iter_mut().zip(next) {
            values[at] = next;
        }
    }
}
