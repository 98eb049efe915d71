//! Settings that have no effect next to the others.

use ata_coordinator::Cadence;
use ata_policies::POLICIES;
use ata_scheduler::PolicyKind;
use ata_sums::{RuleName, ScheduleName};
use toml::{Table, Value};

use super::{Settings, TrainingLength};
use crate::failure::Failure;
use crate::output::note;

impl Settings {
    pub(super) fn check_effect(&self, flags: &[Table]) -> Result<(), Failure> {
        let given = |key: &str| flags.iter().find_map(|flags| flags.get(key));
        let idle = self.idle(|key| given(key).is_some_and(|value| *value != Value::Boolean(false)))?;
        idle.map_or(Ok(()), |(key, why)| {
            Err(Failure::usage(format!("--{} has no effect: {why}", key.replace('_', "-"))))
        })
    }

    /// Says which settings are unlikely to be meant. One without effect is not refused in a file, because the file of a run has all settings.
    pub(crate) fn say_doubts(&self) -> Result<(), Failure> {
        let Self { lr_warmup, iterations, .. } = self;
        if let (TrainingLength::Iterations(warmup), TrainingLength::Iterations(all)) = (lr_warmup, iterations)
            && warmup > all
        {
            note!(
                "lr_warmup = {lr_warmup}: the run ends after {iterations} iterations, before the learning rate reaches lr"
            );
        }
        let table = |settings: &Self| Table::try_from(settings).map_err(Failure::internal);
        let (own, default) = (table(self)?, table(&Self::default())?);
        if let Some((key, why)) = self.idle(|key| own.get(key) != default.get(key))? {
            note!("{key} has no effect: {why}");
        }
        Ok(())
    }

    fn idle(&self, is_given: impl Fn(&str) -> bool) -> Result<Option<(&'static str, &'static str)>, Failure> {
        let saves = self.checkpoint_cadence()? != Cadence::Never;
        let waits = POLICIES.kind(&self.policy) == PolicyKind::Barrier;
        let counts = self.local_steps.is_none() || self.task_choice().is_some();
        let sums = POLICIES.kind(&self.policy) != PolicyKind::Asynchronous;
        let noise = (sums, "the policy takes a step for each result, and a single one says nothing about noise");
        let rates = (self.optimizer != RuleName::Own, "the program's own optimizer has its own");
        let steps = (self.lr_schedule == ScheduleName::Step, "it is for lr_schedule = step");
        let momentum = (self.optimizer == RuleName::Sgd, "only the optimizer sgd has a momentum");
        let has_moments = matches!(self.optimizer, RuleName::Adam | RuleName::AdamW);
        let moments = (has_moments, "only the optimizers adam and adamw have such a number");
        let outer = (self.local_steps.is_some(), "it is for --local-steps");
        let keep = (saves, "with checkpoint_every = never there are no checkpoints");
        let idle = [
            ("lr", rates),
            ("lr_schedule", rates),
            ("lr_warmup", rates),
            ("weight_decay", rates),
            ("param_groups", rates),
            ("momentum", momentum),
            ("nesterov", momentum),
            ("beta1", moments),
            ("beta2", moments),
            ("epsilon", moments),
            ("lr_warmup", (self.lr_schedule != ScheduleName::OneCycle, "lr_schedule = one-cycle has its own")),
            ("init_except", (self.init.is_some(), "it is for --init")),
            ("lr_step_every", steps),
            ("lr_step_factor", steps),
            ("budget", (counts, "--local-steps gives the tasks of a round")),
            ("scale_lr", (self.budget.rule().is_some(), "it is for a --budget that changes")),
            ("gradient_noise", noise),
            ("fuse", (self.local_steps.is_none(), "the inner steps of --local-steps are taken one after the other")),
            ("difference_bits", outer),
            ("outer_lr", outer),
            ("outer_momentum", outer),
            ("overlap", outer),
            ("keep", keep),
            ("keep_every", keep),
            ("overcommit", (waits, "the policy does not wait for all tasks, so it never allocates more of them")),
        ];
        let found = idle.into_iter().find(|(key, (has_effect, _))| !has_effect && is_given(key));
        Ok(found.map(|(key, (_, why))| (key, why)))
    }
}
