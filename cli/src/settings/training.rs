//! The settings of optimizer, learning rate, evaluation and checkpoints.

use ata_coordinator::{Cadence, Retention};
use ata_data::Augmentation;
use ata_sums::{LearningRate, Optimizer, ParameterTable, Rule, RuleName, Schedule, ScheduleName, TrainingConfig};
use ata_types::WireFormat;

use super::{Settings, in_range, positive};
use crate::failure::Failure;

/// The weight decay of AdamW: PyTorch's default.
const ADAMW_WEIGHT_DECAY: f64 = 0.01;

/// The settings that a resumed run must share with its checkpoint, in addition to the content of its training data.
pub(crate) const FIXED: [&str; 9] =
    ["model", "seed", "budget", "task_batch", "optimizer", "momentum", "wire", "init", "checkpoint"];

impl Settings {
    pub(super) fn check_training(&self) -> Result<(), Failure> {
        positive("lr", self.lr)?;
        positive("lr_step_factor", self.lr_step_factor)?;
        in_range("lr_step_every", self.lr_step_every, 1, u64::MAX >> 1)?;
        in_range("lr_warmup", self.lr_warmup, 0, u64::MAX >> 1)?;
        self.clip_norm.map_or(Ok(()), |norm| positive("clip_norm", norm))?;
        share("momentum", self.momentum, false)?;
        share("label_smoothing", self.label_smoothing, false)?;
        self.augmentation()?;
        self.target_accuracy.map_or(Ok(()), |accuracy| share("target_accuracy", accuracy, true))?;
        if let Some(decay) = self.weight_decay
            && !(decay.is_finite() && decay >= 0.0)
        {
            return Err(Failure::usage(format!("weight_decay = {decay}: expected a number of at least 0")));
        }
        if self.nesterov && self.momentum == 0.0 {
            return Err(Failure::usage("nesterov = true needs a momentum above 0"));
        }
        in_range("keep", self.keep as u64, 1, 1 << 20)?;
        self.keep_every.map_or(Ok(()), |every| in_range("keep_every", every, 1, u64::MAX >> 1))?;
        self.checkpoint_cadence()?;
        Ok(())
    }

    fn augmentation(&self) -> Result<Augmentation, Failure> {
        let text = self.augment.as_deref().unwrap_or_default();
        text.parse().map_err(|reason| Failure::usage(format!("augment = '{text}': {reason}")))
    }

    /// Returns the additional parameters of the model's specification, which workers need.
    pub(crate) fn model_parameters(&self) -> Result<Vec<String>, Failure> {
        let augmentation = self.augmentation()?;
        let augment = (augmentation != Augmentation::default()).then(|| format!("augment={augmentation}"));
        let smoothing = (self.label_smoothing > 0.0).then(|| format!("label_smoothing={}", self.label_smoothing));
        Ok(augment.into_iter().chain(smoothing).collect())
    }

    /// Returns the chosen representation of vectors. The default is the compact one unless the coordinator listens on loopback only.
    pub(crate) fn wire_format(&self) -> Result<WireFormat, Failure> {
        let is_local = self.listen()?.ip().is_loopback();
        Ok(self.wire.unwrap_or(if is_local { WireFormat::F32Exact } else { WireFormat::Compact }))
    }

    /// Returns the fixed configuration of the training.
    pub(crate) fn training_config(&self, table: &ParameterTable) -> Result<TrainingConfig, Failure> {
        Ok(TrainingConfig {
            optimizer: self.optimizer(),
            sizes: table.into(),
            format: self.wire_format()?,
            budget: self.budget,
        })
    }

    pub(crate) fn optimizer(&self) -> Optimizer {
        let (rule, decay) = match self.optimizer {
            RuleName::Adam => (Rule::Adam, 0.0),
            RuleName::AdamW => (Rule::AdamW, ADAMW_WEIGHT_DECAY),
            RuleName::Sgd => (Rule::Sgd { momentum: self.momentum, nesterov: self.nesterov }, 0.0),
        };
        Optimizer { rule, weight_decay: self.weight_decay.unwrap_or(decay), clip_norm: self.clip_norm }
    }

    pub(crate) fn learning_rate(&self) -> LearningRate {
        let schedule = match self.lr_schedule {
            ScheduleName::Constant => Schedule::Constant,
            ScheduleName::Cosine => Schedule::Cosine { iterations: self.iterations },
            ScheduleName::Step => Schedule::Step { every: self.lr_step_every, factor: self.lr_step_factor },
        };
        LearningRate { peak: self.lr, warmup: self.lr_warmup, schedule }
    }

    /// Returns the number of iterations between evaluations during the training: about a tenth of the run by default.
    /// The setting 0 means none.
    pub(crate) fn evaluate_every(&self) -> Option<u64> {
        Some(self.eval_every.unwrap_or(self.iterations.div_ceil(10))).filter(|every| *every > 0)
    }

    pub(crate) fn checkpoint_cadence(&self) -> Result<Cadence, Failure> {
        self.checkpoint_every.parse().map_err(|error| Failure::usage(format!("checkpoint_every = {error}")))
    }

    pub(crate) fn retention(&self) -> Retention {
        Retention { newest: self.keep, every: self.keep_every }
    }
}

fn share(name: &str, value: f64, with_one: bool) -> Result<(), Failure> {
    if value >= 0.0 && (value < 1.0 || with_one && value == 1.0) {
        return Ok(());
    }
    let end = if with_one { "to" } else { "to below" };
    Err(Failure::usage(format!("{name} = {value}: expected a number from 0 {end} 1")))
}
