//! The number of tasks of an iteration, and what chooses it.

use std::fmt;
use std::str::FromStr;

use ata_policies::POLICIES;
use ata_scheduler::{PolicyKind, RateScaling, TaskChoice, TaskRule};
use ata_sums::RuleName;
use ata_wire::limits::MAX_BUDGET;
use serde::{Deserialize, Serialize};

use super::local_steps::LocalStepCount;
use super::training_length::Written;
use super::{Settings, in_range};
use crate::failure::{Failure, require};

/// The first number of tasks, by default.
const FIRST_BY_DEFAULT: u64 = 16;

/// The least number of tasks that is chosen for gradients: a single one says nothing about noise.
const LEAST: u64 = 2;

/// How many times as large as the first number of tasks the chosen one may become. The integers of a sum have room for the most, which takes a
/// bit of each value for every doubling.
const MOST_GROWTH: u64 = 8;

/// The budget: `16`, or `noise`, or `noise:8` for another first number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub(crate) enum Budget {
    Fixed(u64),
    Noise { first: u64 },
}

impl Default for Budget {
    fn default() -> Self {
        Self::Fixed(FIRST_BY_DEFAULT)
    }
}

impl Budget {
    /// Returns the number of tasks of the first iteration, which learning rates, samples and iterations are counted in.
    pub(crate) fn first(self) -> u64 {
        match self {
            Self::Fixed(tasks) => tasks,
            Self::Noise { first } => first,
        }
    }

    pub(super) fn follows_noise(self) -> bool {
        matches!(self, Self::Noise { .. })
    }
}

impl TryFrom<Written> for Budget {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        written.text().parse()
    }
}

impl From<Budget> for Written {
    fn from(budget: Budget) -> Self {
        Self::of(&budget)
    }
}

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let budget = match text.trim().strip_prefix("noise") {
            Some("") => Some(Self::Noise { first: FIRST_BY_DEFAULT }),
            Some(first) => first.strip_prefix(':').and_then(|first| Some(Self::Noise { first: first.parse().ok()? })),
            None => text.trim().parse().ok().map(Self::Fixed),
        };
        budget.ok_or_else(|| {
            format!("'{text}': expected a number of tasks, or noise, or noise:8 for another first number")
        })
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(tasks) => tasks.fmt(f),
            Self::Noise { first: FIRST_BY_DEFAULT } => f.write_str("noise"),
            Self::Noise { first } => write!(f, "noise:{first}"),
        }
    }
}

impl Settings {
    /// Returns the number of tasks of an iteration, or the first that is chosen: the inner steps of a round, or the budget.
    pub(crate) fn tasks(&self) -> u64 {
        if let Some(LocalStepCount::Fixed(steps)) = self.local_steps { steps } else { self.budget.first() }
    }

    /// Returns how the number of tasks of an iteration is chosen, if it is.
    pub(crate) fn task_choice(&self) -> Option<TaskChoice> {
        let first = self.budget.first();
        match (self.local_steps, self.budget) {
            (Some(LocalStepCount::Auto { most }), _) => {
                Some(TaskChoice { rule: TaskRule::Exchange, least: first, most, rate: RateScaling::Constant })
            }
            (None, Budget::Noise { .. }) => {
                let most = (first * MOST_GROWTH).min(MAX_BUDGET);
                Some(TaskChoice { rule: TaskRule::Noise, least: LEAST, most, rate: self.rate_scaling() })
            }
            _ => None,
        }
    }

    fn rate_scaling(&self) -> RateScaling {
        match self.optimizer {
            _ if !self.scale_lr => RateScaling::Constant,
            RuleName::Adam | RuleName::AdamW => RateScaling::SquareRoot,
            RuleName::Sgd => RateScaling::Progress,
            RuleName::Own => RateScaling::Constant,
        }
    }

    /// Returns whether workers measure the noise of their gradients.
    pub(crate) fn measures_noise(&self) -> bool {
        self.gradient_noise || self.budget.follows_noise()
    }

    pub(super) fn check_budget(&self) -> Result<(), Failure> {
        in_range("budget", self.budget.first(), 1, MAX_BUDGET)?;
        if !self.budget.follows_noise() {
            return Ok(());
        }
        let budget = format!("budget = {}", self.budget);
        require((LEAST..MAX_BUDGET).contains(&self.budget.first()), || {
            format!("{budget}: expected a first number of {LEAST} to {}", MAX_BUDGET - 1)
        })?;
        require(self.local_steps.is_none(), || {
            format!("{budget}: --local-steps takes its place, and differences are no gradients; expected a number")
        })?;
        require(POLICIES.kind(&self.policy) != PolicyKind::Asynchronous, || {
            format!(
                "{budget}: the policy takes a step for each result, and a single one says nothing about noise; expected a number, or \
                 another policy (see `ata policies`)"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ata_sums::RuleName;

    #[test]
    fn budgets_are_read_as_they_are_written() {
        for (text, budget) in
            [("16", Budget::Fixed(16)), ("noise", Budget::Noise { first: 16 }), ("noise:9", Budget::Noise { first: 9 })]
        {
            assert_eq!((text.parse(), budget.to_string()), (Ok(budget), text.to_owned()));
        }
        for wrong in ["", "noise:", "noise:x", "noisy", "-1", "1.5"] {
            assert!(wrong.parse::<Budget>().unwrap_err().contains("expected a number of tasks"), "{wrong}");
        }
    }

    #[test]
    fn the_number_of_tasks_follows_the_noise_and_the_rate_the_optimizer() {
        let settings = Settings { budget: Budget::Noise { first: 8 }, ..Settings::default() };
        let choice = settings.task_choice().unwrap();
        assert_eq!((settings.tasks(), choice.least, choice.most, choice.rule), (8, 2, 64, TaskRule::Noise));
        assert!(settings.measures_noise() && settings.check_budget().is_ok());
        let rate = |optimizer, scale_lr| Settings { optimizer, scale_lr, ..settings.clone() }.rate_scaling();
        assert_eq!(rate(RuleName::AdamW, true), RateScaling::SquareRoot);
        assert_eq!(rate(RuleName::Sgd, true), RateScaling::Progress);
        assert_eq!(rate(RuleName::Own, true), RateScaling::Constant);
        assert_eq!(rate(RuleName::AdamW, false), RateScaling::Constant);
        let fixed = Settings { budget: Budget::Fixed(8), ..settings.clone() };
        assert_eq!((fixed.task_choice(), fixed.measures_noise()), (None, false));
        let largest = Settings { budget: Budget::Noise { first: MAX_BUDGET - 1 }, ..settings };
        assert_eq!(largest.task_choice().unwrap().most, MAX_BUDGET);
    }

    #[test]
    fn what_no_noise_can_be_measured_of_is_refused() {
        let noise = |first| Settings { budget: Budget::Noise { first }, ..Settings::default() };
        for (settings, reason) in [
            (noise(0), "budget = 0"),
            (noise(1), "expected a first number of 2"),
            (noise(MAX_BUDGET), "expected a first number of 2"),
            (Settings { local_steps: Some(LocalStepCount::Fixed(60)), ..noise(8) }, "differences are no gradients"),
            (Settings { policy: "asgd".into(), ..noise(8) }, "a step for each result"),
        ] {
            let refused = settings.check_budget().unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
