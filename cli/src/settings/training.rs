//! The settings of optimizer, learning rate, evaluation and checkpoints, and those of the engine.

use ata_coordinator::{Cadence, Retention};
use ata_data::Augmentation;
use ata_policies::POLICIES;
use ata_scheduler::{EngineConfig, PolicyKind, Verify};
use ata_sums::{
    LearningRate, Optimizer, ParameterGroups, ParameterTable, Rule, RuleName, Schedule, ScheduleName, TrainingConfig,
};
use ata_types::WireFormat;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::Settings;
use crate::failure::{Failure, require};

/// The weight decay of AdamW: PyTorch's default.
const ADAMW_WEIGHT_DECAY: f64 = 0.01;
/// The first rest of a worker after a failure: longer than a network glitch, short compared with a run. Each one in a row doubles it.
const REST_S: f64 = 1.0;
/// The number of failures in a row after which a worker is expelled. Its rests double from [`REST_S`] on, so the first and the last failure
/// are at least two minutes apart, which is longer than a driver needs to recover or a full disk to be noticed.
const EXPEL_AFTER: u32 = 8;
/// The time after which a run is given up if tasks fail on all workers: twice the outage that it is promised to survive. With half of this,
/// an outage of a minute could end it; with twice, diverged training, whose gradients are all NaN, would continue for four minutes.
const OUTAGE_S: f64 = 120.0;

/// The settings that a resumed run must share with its checkpoint, in addition to the content of its training data.
pub(crate) const FIXED: &str = "model seed budget local_steps task_batch optimizer momentum outer_momentum gradient_noise scale_lr wire init \
     checkpoint";

/// The treatment of training samples whose loss or gradient is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnBadSample {
    /// The run ends and names them.
    Stop,
    /// They are omitted from the mean of their task.
    Skip,
}

/// The setting `journal`: the iterations whose events the journal keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KeptJournal {
    /// The last ones, so that its size is bounded. Older ones are replaced by what they add up to, and by means per minute.
    Bounded,
    /// All.
    Full,
}

/// The setting `evaluate_on`: the evaluators of parameters on the test data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EvaluateOn {
    /// Workers without tasks, and the coordinator if there are none; the coordinator alone if workers are not trusted.
    Auto,
    /// The coordinator alone.
    Head,
    /// Workers alone, those without tasks first.
    Workers,
}

/// The processes that may evaluate the parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evaluators {
    pub(crate) head: bool,
    pub(crate) workers: bool,
}

fn bad_groups(reason: &str) -> Failure {
    Failure::usage(format!("param_groups: {reason}"))
}

impl Settings {
    pub(super) fn check_training(&self) -> Result<(), Failure> {
        self.lr_step_every.check("lr_step_every", 1)?;
        self.lr_warmup.check("lr_warmup", 0)?;
        self.groups()?;
        self.augmentation()?;
        require(!self.nesterov || self.momentum != 0.0, || "nesterov = true needs a momentum above 0")?;
        self.checkpoint_cadence().map(drop)
    }

    pub(crate) fn augmentation(&self) -> Result<Augmentation, Failure> {
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

    pub(crate) fn training_config(&self, table: &ParameterTable) -> Result<TrainingConfig, Failure> {
        Ok(TrainingConfig {
            optimizer: self.outer_optimizer(table)?,
            sizes: table.into(),
            format: self.wire_format()?,
            budget: self.task_choice().map_or(self.tasks(), |choice| choice.most),
        })
    }

    fn groups(&self) -> Result<ParameterGroups, Failure> {
        let text = self.param_groups.as_deref().unwrap_or_default();
        text.parse().map_err(|reason: String| bad_groups(&reason))
    }

    /// Returns the optimizer that steps along gradients.
    pub(crate) fn optimizer(&self, table: &ParameterTable) -> Result<Optimizer, Failure> {
        let (rule, decay) = match self.optimizer {
            RuleName::Adam => (Rule::Adam, 0.0),
            RuleName::AdamW => (Rule::AdamW, ADAMW_WEIGHT_DECAY),
            RuleName::Sgd => (Rule::Sgd { momentum: self.momentum, nesterov: self.nesterov }, 0.0),
            RuleName::Own => (Rule::Own, 0.0),
        };
        Ok(Optimizer {
            rule,
            weight_decay: self.weight_decay.unwrap_or(decay),
            clip_norm: self.clip_norm,
            ema: self.ema,
            betas: [self.beta1, self.beta2],
            epsilon: self.epsilon,
            groups: self.groups()?.of_tensors(table).map_err(|reason| bad_groups(&reason))?,
        })
    }

    /// Returns the learning rate of each iteration; for the program's own optimizer, which has one itself, a factor of 1.
    pub(crate) fn learning_rate(&self) -> LearningRate {
        if self.optimizer == RuleName::Own {
            return LearningRate::constant(1.0);
        }
        let schedule = match self.lr_schedule {
            ScheduleName::Constant => Schedule::Constant,
            ScheduleName::Cosine => Schedule::Cosine { iterations: self.iterations.count() },
            ScheduleName::OneCycle => Schedule::OneCycle { iterations: self.iterations.count() },
            ScheduleName::Step => Schedule::Step { every: self.lr_step_every.count(), factor: self.lr_step_factor },
        };
        LearningRate { peak: self.lr, warmup: self.lr_warmup.count(), schedule }
    }

    /// Returns the number of iterations between evaluations during the training, about a tenth of the run by default; 0 means none.
    pub(crate) fn evaluate_every(&self) -> Option<u64> {
        Some(self.eval_every.unwrap_or(self.iterations.count().div_ceil(10))).filter(|every| *every > 0)
    }

    pub(crate) fn checkpoint_cadence(&self) -> Result<Cadence, Failure> {
        self.checkpoint_every.parse().map_err(|error| Failure::usage(format!("checkpoint_every = {error}")))
    }

    pub(crate) fn retention(&self) -> Retention {
        Retention { newest: self.keep, every: self.keep_every }
    }

    /// Returns the evaluators of a run. `has_model` says whether the coordinator has the model and the test data.
    pub(crate) fn evaluators(&self, has_model: bool) -> Result<Evaluators, Failure> {
        let trusts_workers = self.verify == 0.0;
        match self.evaluate_on {
            EvaluateOn::Head if !has_model => Err(Failure::usage(format!(
                "evaluate_on = head: this program does not have the model '{}', only its parameters (--init); expected auto or \
                 workers",
                self.model
            ))),
            EvaluateOn::Head => Ok(Evaluators { head: true, workers: false }),
            EvaluateOn::Workers => Ok(Evaluators { head: false, workers: true }),
            EvaluateOn::Auto => Ok(Evaluators { head: has_model, workers: !has_model || trusts_workers }),
        }
    }

    /// Returns the configuration of the engine. The secret of spot checks must not be the run's seed, which workers know.
    pub(crate) fn engine(&self, min_workers: usize) -> EngineConfig {
        EngineConfig {
            budget: self.tasks(),
            choice: self.task_choice(),
            iterations: self.iterations.count(),
            min_workers,
            lease_timeout_s: Some(self.lease_timeout_s),
            rest_s: REST_S,
            expel_after: Some(EXPEL_AFTER),
            outage_s: OUTAGE_S,
            verify: (self.verify > 0.0).then(|| Verify { share: self.verify, secret: rand::random() }),
            seed: self.seed,
            overcommit: self.overcommit,
            takes_local_steps: self.local_steps.is_some(),
            overlap: self.overlap,
            limits: self.limits(),
        }
    }

    pub(super) fn check_trust(&self) -> Result<(), Failure> {
        let Self { policy, verify, overcommit, .. } = self;
        require((0.0..=1.0).contains(verify), || format!("verify = {verify}: expected a share from 0 to 1"))?;
        let waits = POLICIES.kind(policy) == PolicyKind::Barrier && *overcommit == 0.0;
        require(*verify == 0.0 || waits, || {
            format!(
                "verify = {verify}: policy '{policy}' with overcommit = {overcommit} does not wait for all tasks, so that a lease is \
                 over before it could be checked; expected a barrier policy (see `ata policies`) without overcommit"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluators(on: EvaluateOn, has_model: bool, verify: f64) -> Option<(bool, bool)> {
        let settings = Settings { evaluate_on: on, verify, ..Settings::default() };
        settings.evaluators(has_model).ok().map(|evaluators| (evaluators.head, evaluators.workers))
    }

    #[test]
    fn workers_evaluate_unless_they_are_not_trusted() {
        assert_eq!(evaluators(EvaluateOn::Auto, true, 0.0), Some((true, true)));
        assert_eq!(evaluators(EvaluateOn::Auto, true, 0.1), Some((true, false)));
        assert_eq!(evaluators(EvaluateOn::Auto, false, 0.1), Some((false, true)), "there is no other way");
        assert_eq!(evaluators(EvaluateOn::Workers, true, 0.1), Some((false, true)));
        assert_eq!(evaluators(EvaluateOn::Head, true, 0.0), Some((true, false)));
        assert_eq!(evaluators(EvaluateOn::Head, false, 0.0), None);
    }

    #[test]
    fn what_cannot_be_checked_is_refused() {
        let check = |policy: &str, verify, overcommit| {
            let settings = Settings { policy: policy.into(), verify, overcommit, ..Settings::default() };
            settings.check_trust().map_err(|failure| failure.to_string())
        };
        assert_eq!(check("ata-auto", 1.0, 0.0), Ok(()));
        for (message, refused) in [
            ("expected a share from 0 to 1", check("ata-auto", 1.5, 0.0)),
            ("expected a share from 0 to 1", check("ata-auto", f64::NAN, 0.0)),
            ("does not wait for all tasks", check("gta", 0.1, 0.0)),
            ("does not wait for all tasks", check("ringmaster", 0.1, 0.0)),
            ("does not wait for all tasks", check("ata-auto", 0.1, 0.2)),
        ] {
            let refused = refused.unwrap_err();
            assert!(refused.contains(message), "{refused}");
        }
    }
}
