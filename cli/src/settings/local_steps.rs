//! The settings of local steps, and of the outer steps between them.

use std::fmt;
use std::str::FromStr;

use ata_coordinator::{Start, TrainingSetup};
use ata_policies::POLICIES;
use ata_scheduler::PolicyKind;
use ata_sums::{InnerSteps, LearningRate, Optimizer, ParameterTable, RuleName};
use ata_types::ExchangeChoice;
use ata_wire::limits::MAX_BUDGET;
use serde::{Deserialize, Serialize};

use super::training_length::{Written, as_written, parse_number_or_auto};
use super::{Settings, in_range};
use crate::failure::{Failure, require};

/// The most steps of a chosen round, by default. After as many samples of CIFAR-100, rounds of 960 steps have a test loss 2 % higher than
/// those of 240, but after as many seconds, rounds that hide a slow link have a lower one (docs/how-to/machines-far-apart.md).
const MOST_BY_DEFAULT: u64 = 960;

/// The number of local steps of a round: `240`, or `auto`, or `auto:240` for another largest one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub(crate) enum LocalStepCount {
    Fixed(u64),
    Auto { most: u64 },
}

as_written!(LocalStepCount);

impl FromStr for LocalStepCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let auto = |most: Option<u64>| Self::Auto { most: most.unwrap_or(MOST_BY_DEFAULT) };
        parse_number_or_auto(text, Self::Fixed, auto).ok_or_else(|| {
            format!("'{text}': expected a number of steps, or auto, or auto:240 for another largest number")
        })
    }
}

impl fmt::Display for LocalStepCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(steps) => steps.fmt(f),
            Self::Auto { most: MOST_BY_DEFAULT } => f.write_str("auto"),
            Self::Auto { most } => write!(f, "auto:{most}"),
        }
    }
}

impl Default for LocalStepCount {
    fn default() -> Self {
        Self::Auto { most: MOST_BY_DEFAULT }
    }
}

impl LocalStepCount {
    /// Returns the least and the largest number, if the budget is `first`.
    pub(crate) fn limits(self, first: u64) -> (u64, u64) {
        match self {
            Self::Fixed(steps) => (steps, steps),
            Self::Auto { most } => (first, most),
        }
    }
}

impl Settings {
    /// Returns the optimizer that workers take inner steps with, if they do.
    fn inner_steps(&self, table: &ParameterTable) -> Result<Option<InnerSteps>, Failure> {
        let inner = |optimizer| InnerSteps {
            optimizer: Optimizer { ema: None, ..optimizer },
            learning_rate: self.learning_rate(),
            difference_bits: self.difference_bits,
            overlap: self.overlap,
        };
        self.local_steps.map(|_| self.optimizer(table).map(inner)).transpose()
    }

    /// Returns the optimizer of the coordinator.
    pub(crate) fn outer_optimizer(&self, table: &ParameterTable) -> Result<Optimizer, Failure> {
        let own = self.optimizer(table)?;
        if self.local_steps.is_none() {
            return Ok(own);
        }
        Ok(Optimizer { ema: own.ema, ..Optimizer::outer(self.outer_momentum) })
    }

    /// Returns how gradients, or differences, are turned into parameters.
    pub(crate) fn training(&self, table: &ParameterTable, start: Start) -> Result<TrainingSetup, Failure> {
        let outer_lr = self.outer_lr.unwrap_or(1.0 - self.outer_momentum);
        let outer = self.local_steps.map(|_| LearningRate::constant(outer_lr));
        Ok(TrainingSetup {
            start,
            optimizer: self.outer_optimizer(table)?,
            format: self.wire_format()?,
            learning_rate: outer.unwrap_or_else(|| self.learning_rate()),
            follows_shares: self.local_steps.is_some() && self.outer_lr.is_none(),
            inner_steps: self.inner_steps(table)?,
        })
    }

    pub(super) fn check_local_steps(&self) -> Result<(), Failure> {
        let momentum = self.outer_momentum;
        require((0.0..1.0).contains(&momentum), || format!("outer_momentum = {momentum}: expected 0 to below 1"))?;
        let Some(steps) = self.local_steps else { return Ok(()) };
        let (first, most) = steps.limits(self.budget.first());
        in_range("local_steps", most, 1, MAX_BUDGET)?;
        require(most >= first, || {
            format!("local_steps = {steps}: rounds begin with budget = {first} steps; expected at least as many")
        })?;
        let waits = POLICIES.kind(&self.policy) == PolicyKind::Barrier && self.overcommit == 0.0;
        let steps = format!("local_steps = {steps}");
        require(waits, || {
            format!("{steps}: expected a policy that waits for all tasks (see `ata policies`), without overcommit")
        })?;
        require(self.verify == 0.0, || {
            format!(
                "{steps}: no other worker can take the same steps, since each has its own optimizer; expected verify = 0"
            )
        })?;
        require(self.optimizer != RuleName::Own, || {
            format!("{steps}: the program's own optimizer exists on the coordinator only; expected adam, adamw or sgd")
        })?;
        require(!self.gradient_noise, || format!("{steps}: differences are no gradients; leave out --gradient-noise"))?;
        require(self.exchange != ExchangeChoice::Shards, || {
            format!("{steps}: differences go through the coordinator; expected exchange = star or auto")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Budget;
    use ata_sums::Rule;

    #[test]
    fn the_outer_step_averages_by_default() {
        let table = ParameterTable::vector("theta", 3);
        let settings = Settings {
            local_steps: Some(LocalStepCount::Fixed(60)),
            ema: Some(0.5),
            clip_norm: Some(2.0),
            ..Settings::default()
        };
        let outer = settings.outer_optimizer(&table).unwrap();
        let averaging = Rule::Sgd { momentum: 0.0, nesterov: false };
        assert_eq!((outer.rule, outer.clip_norm, outer.ema), (averaging, None, Some(0.5)));
        let rate = settings.training(&table, Start::Random).unwrap().learning_rate;
        assert_eq!((settings.tasks(), rate), (60, LearningRate::constant(1.0)));
        let inner = settings.inner_steps(&table).unwrap().unwrap();
        assert_eq!(
            (inner.optimizer.rule, inner.optimizer.clip_norm, inner.optimizer.ema),
            (Rule::Adam, Some(2.0), None)
        );
        assert_eq!(inner.learning_rate, LearningRate::constant(settings.lr));
        let plain = Settings { local_steps: None, ..settings };
        assert_eq!((plain.inner_steps(&table).unwrap(), plain.tasks()), (None, plain.budget.first()));
        assert_eq!(plain.outer_optimizer(&table).unwrap(), plain.optimizer(&table).unwrap());
    }

    #[test]
    fn what_needs_gradients_is_refused() {
        let fixed = |steps| Some(LocalStepCount::Fixed(steps));
        let local = || Settings { local_steps: fixed(8), ..Settings::default() };
        assert!(local().check_local_steps().is_ok());
        for (settings, reason) in [
            (Settings { local_steps: fixed(0), ..local() }, "local_steps = 0"),
            (
                Settings { local_steps: Some(LocalStepCount::Auto { most: 7 }), budget: Budget::Fixed(8), ..local() },
                "begin with budget = 8",
            ),
            (Settings { policy: "gta".into(), ..local() }, "waits for all tasks"),
            (Settings { overcommit: 0.5, ..local() }, "without overcommit"),
            (Settings { verify: 0.5, ..local() }, "verify = 0"),
            (Settings { optimizer: RuleName::Own, ..local() }, "adam, adamw or sgd"),
            (Settings { exchange: ExchangeChoice::Shards, ..local() }, "star or auto"),
            (Settings { outer_momentum: 1.0, ..local() }, "outer_momentum = 1"),
        ] {
            let refused = settings.check_local_steps().unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
