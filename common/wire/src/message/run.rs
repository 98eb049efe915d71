//! Everything a worker must know about the run.

use std::fmt;
use std::ops::RangeBounds;

use ata_sums::{GroupRule, InnerSteps, LearningRate, Optimizer, Rule, Schedule, TensorGroups};
use ata_types::{DIFFERENCE_BITS, WireFormat};
use bytes::Bytes;

use super::{WireError, array, at_most, in_range, invalid, missing, truncated};
use crate::limits::{MAX_BUDGET, MAX_DATA_BYTES, MAX_PARAMETERS, MAX_TASK_BATCH, MAX_TENSORS};
use crate::proto::{self, data_spec::Kind, inner_steps, learning_rate};

/// Everything a worker must know about the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSpec {
    /// The model, in the form of `--model`.
    pub model: String,
    /// The number of the model's parameters.
    pub parameters: u64,
    /// The number of values of each tensor, in flat order.
    pub tensors: Vec<u64>,
    /// The seed of the order of samples.
    pub seed: u64,
    /// The budget B, in tasks per iteration.
    pub budget: u64,
    /// The most tasks of an iteration: B, unless the number is chosen as the run goes on.
    pub most_tasks: u64,
    /// The number of samples per task.
    pub task_batch: u32,
    /// Whether samples without a finite loss or gradient are left out of the mean of their task.
    pub skip_bad_samples: bool,
    /// The training data.
    pub data: DataSpec,
    /// The test data.
    pub test_data: DataSpec,
    /// The encoding of vectors.
    pub format: WireFormat,
    /// The optimizer of local steps, if workers take them.
    pub inner_steps: Option<Box<InnerSteps>>,
}

/// One split of a run's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSpec {
    /// Each worker generates the data from a seed.
    Generated {
        /// The seed.
        seed: u64,
    },
    /// A worker has a copy of the file, or fetches it.
    File {
        /// The SHA-256 of the whole file.
        sha256: [u8; 32],
        /// The size of the file, in bytes.
        bytes: u64,
        /// The URL of the folder in an object store that holds the shards of an index; `None` if they come from the coordinator.
        shards_url: Option<String>,
    },
}

impl RunSpec {
    /// Returns whether the tasks of gradients are counted through the whole run, since iterations have different numbers of them.
    pub fn counts_tasks(&self) -> bool {
        self.most_tasks != self.budget && self.inner_steps.is_none()
    }

    pub(super) fn into_wire(self) -> proto::RunSpec {
        let Self { model, parameters, tensors, seed, budget, most_tasks, task_batch, skip_bad_samples, .. } = self;
        let format = match self.format {
            WireFormat::F32Exact => proto::WireFormat::F32Exact,
            WireFormat::Compact => proto::WireFormat::Compact,
        };
        let (data, test_data, format) = (Some(self.data.into_wire()), Some(self.test_data.into_wire()), format.into());
        proto::RunSpec {
            model,
            parameters,
            tensors,
            seed,
            budget,
            most_tasks,
            task_batch,
            skip_bad_samples,
            data,
            test_data,
            format,
            inner_steps: self.inner_steps.as_deref().map(steps_to_wire),
        }
    }

    pub(super) fn from_wire(run: Option<proto::RunSpec>) -> Result<Self, WireError> {
        let run = run.ok_or_else(|| missing("run"))?;
        // No chunk could be decoded in an unknown format.
        let format = match run.format() {
            proto::WireFormat::F32Exact => WireFormat::F32Exact,
            proto::WireFormat::Compact => WireFormat::Compact,
            proto::WireFormat::Unspecified => return Err(invalid("format", run.format, "1 or 2")),
        };
        let parameters = in_range("parameters", run.parameters, MAX_PARAMETERS)?;
        in_range("number of tensors", run.tensors.len() as u64, MAX_TENSORS as u64)?;
        let values = run.tensors.iter().fold(0_u64, |sum, values| sum.saturating_add(*values));
        if values != parameters {
            return Err(invalid("sum of tensors", values, format!("{parameters}, the number of parameters")));
        }
        let inner_steps =
            run.inner_steps.map(|steps| steps_from_wire(steps, run.tensors.len()).map(Box::new)).transpose()?;
        Ok(Self {
            model: truncated(run.model),
            parameters,
            tensors: run.tensors,
            seed: run.seed,
            budget: in_range("budget", run.budget, MAX_BUDGET)?,
            most_tasks: in_range("most_tasks", run.most_tasks, MAX_BUDGET)?,
            task_batch: in_range("task_batch", run.task_batch, MAX_TASK_BATCH)?,
            skip_bad_samples: run.skip_bad_samples,
            data: DataSpec::from_wire(run.data.ok_or_else(|| missing("data"))?)?,
            test_data: DataSpec::from_wire(run.test_data.ok_or_else(|| missing("test_data"))?)?,
            format,
            inner_steps,
        })
    }
}

impl Default for DataSpec {
    fn default() -> Self {
        Self::Generated { seed: 0 }
    }
}

impl DataSpec {
    fn into_wire(self) -> proto::DataSpec {
        let kind = match self {
            Self::Generated { seed } => Kind::Generated(proto::GeneratedData { seed }),
            Self::File { sha256, bytes, shards_url } => {
                let (sha256, shards_url) = (Bytes::copy_from_slice(&sha256), shards_url.unwrap_or_default());
                Kind::File(proto::FileData { sha256, bytes, shards_url })
            }
        };
        proto::DataSpec { kind: Some(kind) }
    }

    fn from_wire(data: proto::DataSpec) -> Result<Self, WireError> {
        Ok(match data.kind.ok_or_else(|| missing("data"))? {
            Kind::Generated(proto::GeneratedData { seed }) => Self::Generated { seed },
            Kind::File(file) => Self::File {
                sha256: array("sha256", &file.sha256)?,
                bytes: in_range("bytes", file.bytes, MAX_DATA_BYTES)?,
                shards_url: Some(truncated(file.shards_url)).filter(|url| !url.is_empty()),
            },
        })
    }
}

fn steps_to_wire(InnerSteps { optimizer, learning_rate, difference_bits, overlap }: &InnerSteps) -> proto::InnerSteps {
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
fn steps_from_wire(steps: proto::InnerSteps, tensors: usize) -> Result<InnerSteps, WireError> {
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
