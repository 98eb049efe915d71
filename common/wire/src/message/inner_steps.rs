//! The optimizer of local steps.

use std::fmt;
use std::ops::RangeBounds;

use ata_sums::{GroupRule, InnerSteps, LearningRate, Optimizer, Rule, Schedule, TensorGroups};
use ata_types::DIFFERENCE_BITS;

use super::{WireError, at_most, invalid, missing};
use crate::proto::{self, inner_steps, learning_rate};

pub(super) fn to_wire(
    InnerSteps { optimizer, learning_rate, difference_bits, overlap }: &InnerSteps,
) -> proto::InnerSteps {
    let (rule, momentum, nesterov) = match optimizer.rule {
        Rule::Adam => (inner_steps::Rule::Adam, 0.0, false),
        Rule::AdamW => (inner_steps::Rule::Adamw, 0.0, false),
        Rule::Sgd { momentum, nesterov } => (inner_steps::Rule::Sgd, momentum, nesterov),
        // It exists on the coordinator only.
        Rule::Own => (inner_steps::Rule::Unspecified, 0.0, false),
    };
    let (groups, of_tensor) = optimizer.groups.parts();
    let group =
        |group: &GroupRule| inner_steps::Group { rate_factor: group.rate_factor, weight_decay: group.weight_decay };
    proto::InnerSteps {
        rule: rule.into(),
        momentum,
        nesterov,
        beta1: optimizer.betas[0],
        beta2: optimizer.betas[1],
        epsilon: optimizer.epsilon,
        weight_decay: optimizer.weight_decay,
        clip_norm: optimizer.clip_norm,
        groups: groups.iter().map(group).collect(),
        group_of_tensor: of_tensor.iter().map(|group| *group as u32).collect(),
        learning_rate: Some(rate_to_wire(*learning_rate)),
        difference_bits: *difference_bits,
        overlap: *overlap,
    }
}

fn rate_to_wire(LearningRate { peak, warmup, schedule }: LearningRate) -> proto::LearningRate {
    let (schedule, rounds, factor) = match schedule {
        Schedule::Constant => (learning_rate::Schedule::Constant, 0, 0.0),
        Schedule::Cosine { iterations } => (learning_rate::Schedule::Cosine, iterations, 0.0),
        Schedule::OneCycle { iterations } => (learning_rate::Schedule::OneCycle, iterations, 0.0),
        Schedule::Step { every, factor } => (learning_rate::Schedule::Step, every, factor),
    };
    proto::LearningRate { peak, warmup, schedule: schedule.into(), rounds, factor }
}

/// Checks the optimizer of a model with at most so many trained tensors.
pub(super) fn from_wire(steps: proto::InnerSteps, tensors: usize) -> Result<InnerSteps, WireError> {
    let rule = match steps.rule() {
        inner_steps::Rule::Adam => Rule::Adam,
        inner_steps::Rule::Adamw => Rule::AdamW,
        inner_steps::Rule::Sgd => {
            Rule::Sgd { momentum: number("momentum", steps.momentum, 0.0..1.0)?, nesterov: steps.nesterov }
        }
        inner_steps::Rule::Unspecified => return Err(invalid("rule", steps.rule, "1 to 3")),
    };
    let group = |group: inner_steps::Group| {
        let weight_decay = group.weight_decay.map(|decay| number("weight_decay", decay, 0.0..=f64::MAX)).transpose()?;
        Ok(GroupRule { rate_factor: number("rate_factor", group.rate_factor, 0.0..=f64::MAX)?, weight_decay })
    };
    at_most("number of groups of tensors", steps.group_of_tensor.len(), tensors)?;
    let of_tensor = steps.group_of_tensor.iter().map(|group| *group as usize).collect();
    let groups = TensorGroups::new(steps.groups.into_iter().map(group).collect::<Result<_, _>>()?, of_tensor);
    let optimizer = Optimizer {
        rule,
        weight_decay: number("weight_decay", steps.weight_decay, 0.0..=f64::MAX)?,
        clip_norm: steps.clip_norm.map(|norm| number("clip_norm", norm, f64::MIN_POSITIVE..=f64::MAX)).transpose()?,
        betas: [number("beta1", steps.beta1, 0.0..1.0)?, number("beta2", steps.beta2, 0.0..1.0)?],
        epsilon: number("epsilon", steps.epsilon, f64::MIN_POSITIVE..=f64::MAX)?,
        groups: groups.ok_or_else(|| invalid("group_of_tensor", "too large", "a group that exists"))?,
        ema: None,
    };
    let learning_rate = rate_from_wire(steps.learning_rate.ok_or_else(|| missing("learning_rate"))?)?;
    let difference_bits = steps.difference_bits;
    if !DIFFERENCE_BITS.contains(&difference_bits) {
        return Err(invalid("difference_bits", difference_bits, "2 to 16"));
    }
    Ok(InnerSteps { optimizer, learning_rate, difference_bits, overlap: steps.overlap })
}

fn rate_from_wire(rate: proto::LearningRate) -> Result<LearningRate, WireError> {
    let rounds = rate.rounds;
    let schedule = match rate.schedule() {
        learning_rate::Schedule::Constant => Schedule::Constant,
        learning_rate::Schedule::Cosine => Schedule::Cosine { iterations: rounds },
        learning_rate::Schedule::OneCycle => Schedule::OneCycle { iterations: rounds },
        learning_rate::Schedule::Step => {
            Schedule::Step { every: rounds, factor: number("factor", rate.factor, f64::MIN_POSITIVE..=f64::MAX)? }
        }
        learning_rate::Schedule::Unspecified => return Err(invalid("schedule", rate.schedule, "1 to 4")),
    };
    let peak = number("peak", rate.peak, f64::MIN_POSITIVE..=f64::MAX)?;
    Ok(LearningRate { peak, warmup: rate.warmup, schedule })
}

fn number(field: &str, value: f64, range: impl RangeBounds<f64> + fmt::Debug) -> Result<f64, WireError> {
    if range.contains(&value) { Ok(value) } else { Err(invalid(field, value, format!("a number in {range:?}"))) }
}
