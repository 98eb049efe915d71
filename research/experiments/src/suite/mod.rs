//! Suites: several experiments under one name, and the costs of policies in them relative to an oracle.
//!
//! # Layout
//! - `comparison`: the suite `comparison`, and the policies that suites compare
//! - `pai`: the suite `pai`, the recorded times of production jobs
//! - `ratios`: the costs of policies relative to the oracle, by case and by group, as tables, Markdown and a figure

mod comparison;
mod pai;
mod ratios;

use std::path::Path;

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

pub use comparison::CONTENDERS;
pub use ratios::{Costs, GroupMean, SuiteResult};

use super::spec::{Experiment, ExperimentError};
use super::summary::groups;
use super::trace::Trace;
use ata_scheduler::PolicyResolver;

/// The reference of all policies: the best allocation for the current true means or, on a trace, for the means of its columns.
pub const REFERENCE: &str = "fta:means=current";

/// The name and the title of each suite.
pub const SUITES: &[(&str, &str)] = &[("comparison", comparison::TITLE), ("pai", pai::TITLE)];

/// A set of experiments with the same policies.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// The report's title.
    pub title: String,
    /// The paragraphs that describe the suite and its source.
    pub about: Vec<String>,
    /// The experiments, group by group.
    pub cases: Vec<SuiteCase>,
}

/// One experiment of a suite.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteCase {
    /// The group. All groups have the same weight, whatever their number of cases.
    pub group: String,
    /// The name of its rows.
    pub name: String,
    /// The experiment itself.
    pub experiment: Experiment,
}

impl Suite {
    /// Returns the suite of this name, if there is one. `data` is a folder with recorded times.
    pub fn open(name: &str, data: Option<&Path>) -> Option<Result<Self, ExperimentError>> {
        let suite = match name {
            "comparison" => comparison::suite(data),
            "pai" => pai::suite(data),
            _ => return None,
        };
        Some(suite.map(|suite| suite.compare(CONTENDERS.iter().copied())))
    }

    /// Sets the policies, preceded by [`REFERENCE`].
    #[must_use]
    pub fn compare<'a>(mut self, policies: impl Iterator<Item = &'a str>) -> Self {
        let others = policies.filter(|policy| *policy != REFERENCE);
        let all: Vec<String> = std::iter::once(REFERENCE).chain(others).map(String::from).collect();
        for case in &mut self.cases {
            case.experiment.policies.clone_from(&all);
        }
        self
    }

    /// Checks everything that can be checked before a run.
    pub fn check(&self) -> Result<(), ExperimentError> {
        self.cases.iter().try_for_each(|case| case.experiment.check())
    }

    /// Returns the total number of simulated iterations, for progress.
    pub fn total_iterations(&self) -> u64 {
        self.cases.iter().fold(0, |total, case| case.experiment.total_iterations().saturating_add(total))
    }

    /// Runs all cases in parallel; the number of threads changes nothing. `progress` is called with the iterations that were done.
    pub fn run(
        &self,
        policies: PolicyResolver,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<SuiteResult, ExperimentError> {
        self.check()?;
        let costs = self.cases.par_iter().map(|case| case.run(policies, progress));
        Ok(SuiteResult { costs: costs.collect::<Result<Vec<_>, _>>()?.concat() })
    }
}

impl SuiteCase {
    fn run(&self, policies: PolicyResolver, progress: &(dyn Fn(u64) + Sync)) -> Result<Vec<Costs>, ExperimentError> {
        let mut results = super::run(&self.experiment, policies, None, progress)?;
        for result in &mut results {
            // A suite has many runs and does not show their progress.
            result.trace = Trace::default();
        }
        let several = self.experiment.laws.len() > 1;
        let of_group = groups(&results).into_iter().map(|group| {
            let law = if several { format!(", {}", group.law) } else { String::new() };
            Costs::of(&self.group, &format!("{}{law}, n = {}", self.name, group.workers), &group)
        });
        Ok(of_group.collect::<Vec<_>>().concat())
    }
}
