//! The number of tasks of an iteration, and what chooses it.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use ata_policies::POLICIES;
use ata_record::{RunState, read_journal};
use ata_scheduler::{PolicyKind, RateScaling, TaskChoice, TaskRule};
use ata_sums::RuleName;
use ata_wire::limits::MAX_BUDGET;
use serde::{Deserialize, Serialize};

use super::local_steps::LocalStepCount;
use super::training_length::{Written, as_written};
use super::{Settings, in_range};
use crate::failure::{Failure, require};

const FIRST_BY_DEFAULT: u64 = 16;

/// The least number of tasks that is chosen for gradients: a single one says nothing about noise.
const LEAST: u64 = 2;

/// The samples of the steps that --lr is for, if it follows their number: those of small steps on one machine.
const RATE_SAMPLES: f64 = 16.0;

/// How many times as large as the first number of tasks the chosen one may become: a doubling takes a bit of each value of a sum.
const MOST_GROWTH: u64 = 8;

/// The budget: `16`, or `noise` or `auto`, or `auto:8` for another first number, or the path of such a run, as in `16x50,8x100,5`, or in the
/// folder `path:RUN`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub(crate) enum Budget {
    Fixed(u64),
    Noise { first: u64 },
    Auto { first: u64 },
    Path(BudgetPath),
}

impl Default for Budget {
    fn default() -> Self {
        Self::Fixed(FIRST_BY_DEFAULT)
    }
}

impl Budget {
    /// Returns the number of tasks of the first iteration, which learning rates, samples and iterations are counted in.
    pub(crate) fn first(&self) -> u64 {
        match self {
            Self::Fixed(tasks) => *tasks,
            Self::Noise { first } | Self::Auto { first } => *first,
            Self::Path(path) => path.0[0].0,
        }
    }

    /// Returns what the number of tasks follows, if it changes.
    pub(crate) fn rule(&self) -> Option<TaskRule> {
        match self {
            Self::Fixed(_) => None,
            Self::Noise { .. } => Some(TaskRule::Noise),
            Self::Auto { .. } => Some(TaskRule::Goodput),
            Self::Path(path) => Some(TaskRule::Path(path.0.as_slice().into())),
        }
    }

    fn most(&self) -> u64 {
        let on_path = if let Self::Path(path) = self { path.0.iter().map(|(tasks, _)| *tasks).max() } else { None };
        self.first().saturating_mul(MOST_GROWTH).min(MAX_BUDGET).max(on_path.unwrap_or(0))
    }
}

/// Numbers of tasks, each with the number of iterations that have it; at least one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BudgetPath(Vec<(u64, u64)>);

impl BudgetPath {
    /// Returns the path of a run that has taken steps.
    pub(crate) fn of(budgets: &[(u64, u64)]) -> Option<Self> {
        (!budgets.is_empty()).then(|| Self(budgets.to_vec()))
    }

    /// Reads the path of the run in a folder from its journal.
    fn read(folder: &Path) -> Result<Self, String> {
        let mut run = RunState::default();
        read_journal(folder, |event| run.apply(&event)).map_err(|error| error.to_string())?;
        Self::of(&run.budgets).ok_or_else(|| {
            format!("{}: expected the folder of a run with steps, and --budget auto or noise", folder.display())
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let part = |part: &str| {
            let (tasks, iterations) = part.split_once('x').unwrap_or((part, "1"));
            Some((tasks.trim().parse().ok()?, iterations.trim().parse().ok()?))
        };
        text.split(',').map(part).collect::<Option<Vec<_>>>().map(Self)
    }
}

impl fmt::Display for BudgetPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(tasks, iterations)| format!("{tasks}x{iterations}")).collect();
        f.write_str(&parts.join(","))
    }
}

as_written!(Budget);

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(run) = text.trim().strip_prefix("path:") {
            return BudgetPath::read(Path::new(run)).map(Self::Path);
        }
        let (name, first) =
            text.trim().split_once(':').map_or((text.trim(), None), |(name, first)| (name, Some(first)));
        let first = first.map_or(Some(FIRST_BY_DEFAULT), |first| first.parse().ok());
        let budget = match (name, first) {
            ("noise", first) => first.map(|first| Self::Noise { first }),
            ("auto", first) => first.map(|first| Self::Auto { first }),
            _ => text.trim().parse().ok().map(Self::Fixed).or_else(|| BudgetPath::parse(text).map(Self::Path)),
        };
        budget.ok_or_else(|| {
            format!(
                "'{text}': expected a number of tasks, or auto or noise, or auto:8 for another first number, or the numbers of \
                 another run, as in 16x50,8x100 or path:RUN"
            )
        })
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |f: &mut fmt::Formatter<'_>, name: &str, first: u64| match first {
            FIRST_BY_DEFAULT => f.write_str(name),
            first => write!(f, "{name}:{first}"),
        };
        match self {
            Self::Fixed(tasks) => tasks.fmt(f),
            Self::Noise { first } => named(f, "noise", *first),
            Self::Auto { first } => named(f, "auto", *first),
            Self::Path(path) => path.fmt(f),
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
        if let Some(steps) = self.local_steps {
            let LocalStepCount::Auto { most } = steps else { return None };
            return Some(TaskChoice::of_rounds(self.budget.first(), most));
        }
        let rule = self.budget.rule()?;
        // The last iteration of a run has what is left.
        let least = if matches!(rule, TaskRule::Path(_)) { 1 } else { LEAST };
        let rate_tasks = RATE_SAMPLES / f64::from(self.task_batch);
        Some(TaskChoice { rule, least, most: self.budget.most(), rate: self.rate_scaling(), rate_tasks })
    }

    fn rate_scaling(&self) -> RateScaling {
        match self.optimizer {
            _ if !self.scale_lr => RateScaling::Constant,
            RuleName::Adam | RuleName::AdamW => RateScaling::Adaptive,
            RuleName::Sgd => RateScaling::Progress,
            RuleName::Own => RateScaling::Constant,
        }
    }

    pub(crate) fn measures_noise(&self) -> bool {
        self.gradient_noise || self.budget.rule().is_some()
    }

    pub(super) fn check_budget(&self) -> Result<(), Failure> {
        let first = self.budget.first();
        in_range("budget", first, 1, MAX_BUDGET)?;
        if self.budget.rule().is_none() {
            return Ok(());
        }
        let budget = format!("budget = {}", self.budget);
        require((LEAST..MAX_BUDGET).contains(&first), || {
            format!("{budget}: expected a first number of {LEAST} to {}", MAX_BUDGET - 1)
        })?;
        if let Budget::Path(BudgetPath(path)) = &self.budget {
            let is_good = |(tasks, iterations): &(u64, u64)| (1..=MAX_BUDGET).contains(tasks) && *iterations > 0;
            require(path.iter().all(is_good), || {
                format!("{budget}: expected numbers of 1 to {MAX_BUDGET} tasks, each of at least one iteration")
            })?;
        }
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

    #[test]
    fn budgets_are_read_as_they_are_written() {
        for (text, budget) in [
            ("16", Budget::Fixed(16)),
            ("noise", Budget::Noise { first: 16 }),
            ("noise:9", Budget::Noise { first: 9 }),
            ("auto", Budget::Auto { first: 16 }),
            ("16x50,8x1", Budget::Path(BudgetPath(vec![(16, 50), (8, 1)]))),
        ] {
            assert_eq!((text.parse(), budget.to_string()), (Ok(budget), text.to_owned()));
        }
        assert_eq!("16 x2, 8".parse::<Budget>().unwrap().to_string(), "16x2,8x1");
        for wrong in ["", "noise:", "noise:x", "noisy", "-1", "1.5", "8x", "8,", "x8", "auto:8:9"] {
            assert!(wrong.parse::<Budget>().unwrap_err().contains("expected a number of tasks"), "{wrong}");
        }
    }

    #[test]
    fn the_number_of_tasks_follows_the_noise_and_the_rate_the_optimizer() {
        let settings = Settings { budget: Budget::Noise { first: 8 }, ..Settings::default() };
        let choice = settings.task_choice().unwrap();
        assert_eq!((settings.tasks(), choice.least, choice.most, choice.rule), (8, 2, 64, TaskRule::Noise));
        assert_eq!((settings.task_batch, choice.rate_tasks), (6, 16.0 / 6.0));
        assert!(settings.measures_noise() && settings.check_budget().is_ok());
        let rate = |optimizer, scale_lr| Settings { optimizer, scale_lr, ..settings.clone() }.rate_scaling();
        assert_eq!(rate(RuleName::AdamW, true), RateScaling::Adaptive);
        assert_eq!(rate(RuleName::Sgd, true), RateScaling::Progress);
        assert_eq!(rate(RuleName::Own, true), RateScaling::Constant);
        assert_eq!(rate(RuleName::AdamW, false), RateScaling::Constant);
        let fixed = Settings { budget: Budget::Fixed(8), ..settings.clone() };
        assert_eq!((fixed.task_choice(), fixed.measures_noise()), (None, false));
        let largest = Settings { budget: Budget::Noise { first: MAX_BUDGET - 1 }, ..settings };
        assert_eq!(largest.task_choice().unwrap().most, MAX_BUDGET);
        // A path has room for the same sums as the run that it is of.
        for (path, most) in [(vec![(8, 50), (20, 50)], 64), (vec![(8, 50), (90, 1)], 90)] {
            let choice =
                Settings { budget: Budget::Path(BudgetPath(path.clone())), ..Settings::default() }.task_choice();
            assert_eq!(choice.map(|choice| (choice.rule, choice.most)), Some((TaskRule::Path(path.into()), most)));
        }
    }

    #[test]
    fn what_no_noise_can_be_measured_of_is_refused() {
        let noise = |first| Settings { budget: Budget::Noise { first }, ..Settings::default() };
        let path = |path| Settings { budget: Budget::Path(BudgetPath(path)), ..Settings::default() };
        for (settings, reason) in [
            (noise(0), "budget = 0"),
            (noise(1), "expected a first number of 2"),
            (noise(MAX_BUDGET), "expected a first number of 2"),
            (path(vec![(8, 2), (0, 3)]), "expected numbers of 1 to"),
            (path(vec![(8, 0)]), "at least one iteration"),
            (Settings { local_steps: Some(LocalStepCount::Fixed(60)), ..noise(8) }, "differences are no gradients"),
            (Settings { policy: "asgd".into(), ..noise(8) }, "a step for each result"),
        ] {
            let refused = settings.check_budget().unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
