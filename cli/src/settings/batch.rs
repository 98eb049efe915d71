//! The samples of a step, which are divided into tasks.

use std::fmt;
use std::str::FromStr;

use ata_wire::limits::MAX_BUDGET;
use serde::{Deserialize, Serialize};

use super::training_length::{Written, as_written, parse_number_or_auto};
use super::{Budget, Settings, in_range};
use crate::failure::{Failure, require};

const FIRST_BY_DEFAULT: u64 = 256;

/// How many times as large as the smallest likely one the first number of samples is, if it changes: tasks are made for that one.
const SHRINKS_BY: u64 = 4;

/// The samples of a step: `256`, or `auto`, or `auto:512` for another first number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub(crate) enum BatchSize {
    Fixed(u64),
    Auto { first: u64 },
}

as_written!(BatchSize);

impl FromStr for BatchSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let auto = |first: Option<u64>| Self::Auto { first: first.unwrap_or(FIRST_BY_DEFAULT) };
        parse_number_or_auto(text, Self::Fixed, auto).ok_or_else(|| {
            format!("'{text}': expected a number of samples, or auto, or auto:512 for another first number")
        })
    }
}

impl fmt::Display for BatchSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(samples) => samples.fmt(f),
            Self::Auto { first: FIRST_BY_DEFAULT } => f.write_str("auto"),
            Self::Auto { first } => write!(f, "auto:{first}"),
        }
    }
}

impl BatchSize {
    /// Returns the samples of the first step.
    pub(crate) fn first(self) -> u64 {
        match self {
            Self::Fixed(samples) | Self::Auto { first: samples } => samples,
        }
    }

    /// Returns the samples of the smallest likely step.
    pub(crate) fn least(self) -> u64 {
        match self {
            Self::Fixed(samples) => samples,
            Self::Auto { first } => first / SHRINKS_BY,
        }
    }

    /// Returns the budget of tasks of so many samples.
    pub(crate) fn budget(self, task_batch: u64) -> Budget {
        match self {
            Self::Fixed(samples) => Budget::Fixed(samples / task_batch),
            Self::Auto { first } => Budget::Auto { first: first / task_batch },
        }
    }
}

impl Settings {
    /// Replaces a batch by a budget and a size of tasks, if it is given with one of them. Otherwise tasks have one sample until they are
    /// measured.
    pub(super) fn divide_known_batch(&mut self, is_given: impl Fn(&str) -> bool) -> Result<(), Failure> {
        let Some(batch) = self.batch else { return Ok(()) };
        let samples = batch.first();
        in_range("batch", samples, 1, MAX_BUDGET)?;
        let (has_budget, has_size) = (is_given("budget"), is_given("task_batch"));
        let size = match (has_budget, has_size) {
            (_, true) => self.task_batch,
            (true, false) => u32::try_from(samples / self.budget.first().max(1)).unwrap_or(0),
            (false, false) => 1,
        };
        let is_whole = size > 0 && samples.is_multiple_of(u64::from(size));
        require(is_whole && (!has_budget || self.budget == batch.budget(size.into())), || {
            let budget = has_budget.then(|| format!("budget = {}", self.budget));
            let size = has_size.then(|| format!("task_batch = {}", self.task_batch));
            let others = [budget, size].into_iter().flatten().collect::<Vec<_>>().join(" and ");
            format!(
                "batch = {batch} is not {others}: a step has budget × task_batch samples; leave the batch out, or the others"
            )
        })?;
        (self.budget, self.task_batch) = (batch.budget(size.into()), size);
        self.batch = self.batch.filter(|_| !has_budget && !has_size);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_read_as_they_are_written() {
        for (text, batch) in [
            ("96", BatchSize::Fixed(96)),
            ("auto", BatchSize::Auto { first: 256 }),
            ("auto:64", BatchSize::Auto { first: 64 }),
        ] {
            assert_eq!((text.parse(), batch.to_string()), (Ok(batch), text.to_owned()));
        }
        for wrong in ["", "auto:", "auto:x", "noise", "-1", "1.5"] {
            assert!(wrong.parse::<BatchSize>().unwrap_err().contains("expected a number of samples"), "{wrong}");
        }
    }

    #[test]
    fn a_batch_next_to_one_of_its_factors_gives_the_other() {
        let divided = |flags: &str| {
            let settings = Settings::of(&toml::from_str(flags).unwrap());
            settings.map(|found| (found.budget, found.task_batch, found.batch)).map_err(|failure| failure.to_string())
        };
        let auto = |first| Budget::Auto { first };
        assert_eq!(divided("batch = 96\ntask_batch = 8"), Ok((Budget::Fixed(12), 8, None)));
        assert_eq!(divided("batch = 96\nbudget = 12"), Ok((Budget::Fixed(12), 8, None)));
        assert_eq!(divided("batch = 96\nbudget = 12\ntask_batch = 8"), Ok((Budget::Fixed(12), 8, None)));
        assert_eq!(divided("batch = 'auto'\ntask_batch = 8"), Ok((auto(32), 8, None)));
        assert_eq!(divided("batch = 'auto:64'\nbudget = 'auto:8'\ntask_batch = 8"), Ok((auto(8), 8, None)));
        assert_eq!(divided("batch = 96"), Ok((Budget::Fixed(96), 1, Some(BatchSize::Fixed(96)))));
        for (flags, found) in [
            ("batch = 96\ntask_batch = 7", "batch = 96 is not task_batch = 7"),
            ("batch = 96\nbudget = 97", "batch = 96 is not budget = 97"),
            ("batch = 96\nbudget = 16\ntask_batch = 8", "batch = 96 is not budget = 16 and task_batch = 8"),
            ("batch = 'auto'\nbudget = 32", "batch = auto is not budget = 32"),
            ("batch = 96\nbudget = 'noise:12'", "batch = 96 is not budget = noise:12"),
            ("batch = 96\nbudget = 0", "batch = 96 is not budget = 0"),
            ("batch = 0", "batch = 0: expected a whole number from 1"),
            ("batch = 'auto:1'", "expected a first number of 2"),
        ] {
            let refused = divided(flags).unwrap_err();
            assert!(refused.contains(found), "{refused}");
        }
    }
}
