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
        let kind = POLICIES.kind(&self.policy);
        let saves = self.checkpoint_cadence()? != Cadence::Never;
        let has_moments = matches!(self.optimizer, RuleName::Adam | RuleName::AdamW);
        let counts = self.local_steps.is_none() || self.task_choice().is_some();
        let sums = kind != PolicyKind::Asynchronous;
        let noise = "the policy takes a step for each result, and a single one says nothing about noise";
        let races = "the policy does not wait for all tasks, so it never allocates more of them";
        let rates = "lr lr_schedule lr_warmup weight_decay param_groups";
        let outer = "difference_bits outer_lr outer_momentum overlap";
        // Settings, whether they have an effect, and why not.
        let rows = [
            (rates, self.optimizer != RuleName::Own, "the program's own optimizer has its own"),
            ("momentum nesterov", self.optimizer == RuleName::Sgd, "only the optimizer sgd has a momentum"),
            ("beta1 beta2 epsilon", has_moments, "only the optimizers adam and adamw have such a number"),
            ("lr_warmup", self.lr_schedule != ScheduleName::OneCycle, "lr_schedule = one-cycle has its own"),
            ("init_except", self.init.is_some(), "it is for --init"),
            ("lr_step_every lr_step_factor", self.lr_schedule == ScheduleName::Step, "it is for lr_schedule = step"),
            ("budget", counts, "--local-steps gives the tasks of a round"),
            ("batch", self.local_steps.is_none() && sums, "each step is on one task; --task-batch has its samples"),
            ("scale_lr", self.budget.rule().is_some(), "it is for a --budget that changes"),
            ("gradient_noise", sums, noise),
            ("fuse", self.local_steps.is_none(), "the inner steps of --local-steps are taken one after the other"),
            (outer, self.local_steps.is_some(), "it is for --local-steps"),
            ("keep keep_every", saves, "with checkpoint_every = never there are no checkpoints"),
            ("overcommit", kind == PolicyKind::Barrier, races),
        ];
        let mut idle = rows.into_iter().filter(|(_, has_effect, _)| !has_effect);
        Ok(idle.find_map(|(keys, _, why)| Some((keys.split(' ').find(|key| is_given(key))?, why))))
    }
}
