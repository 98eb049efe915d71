//! Suites: several experiments under one name, and what policies cost in them relative to an oracle.
//!
//! # Layout
//! - `comparison`: the suite `comparison`, and the policies that suites compare
//! - `pai`: the suite `pai`, the recorded times of production jobs
//! - `ratios`: what a policy costs relative to the oracle, by case and by group, as tables, Markdown and a figure

mod comparison;
mod pai;
mod ratios;

use std::path::Path;

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

pub use comparison::CONTENDERS;
pub use ratios::{Costs, GroupMean, SuiteResult};

use super::error::ExperimentError;
use super::spec::Experiment;
use super::summary::groups;
use super::trace::Trace;
use ata_scheduler::PolicyResolver;

/// What all others are measured against: the best allocation for the true means of the moment or, on a trace, for the
/// means of its columns.
pub const REFERENCE: &str = "fta:means=current";

/// The name of each suite, and its title.
pub const SUITES: &[(&str, &str)] = &[("comparison", comparison::TITLE), ("pai", pai::TITLE)];

/// Several experiments, all with the same policies.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// The report's title.
    pub title: String,
    /// What it shows, and where it comes from: paragraphs.
    pub about: Vec<String>,
    /// The experiments, those of a group one after the other.
    pub cases: Vec<SuiteCase>,
}

/// One experiment of a suite.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteCase {
    /// Cases of one group count as much as those of another one together.
    pub group: String,
    /// What its rows are called.
    pub name: String,
    /// What is run.
    pub experiment: Experiment,
}

impl Suite {
    /// The suite of this name, if there is one. `data` is a folder with recorded times.
    pub fn open(name: &str, data: Option<&Path>) -> Option<Result<Self, ExperimentError>> {
        let suite = match name {
            "comparison" => comparison::suite(data),
            "pai" => pai::suite(data),
            _ => return None,
        };
        Some(suite.map(|suite| suite.compare(CONTENDERS.iter().copied())))
    }

    /// The suite with these policies, and [`REFERENCE`] before them.
    #[must_use]
    pub fn compare<'a>(mut self, policies: impl Iterator<Item = &'a str>) -> Self {
        let others = policies.filter(|policy| *policy != REFERENCE);
        let all: Vec<String> = std::iter::once(REFERENCE).chain(others).map(String::from).collect();
        for case in &mut self.cases {
            case.experiment.policies.clone_from(&all);
        }
        self
    }

    /// Checks everything that can be checked before anything is run.
    pub fn check(&self) -> Result<(), ExperimentError> {
        self.cases.iter().try_for_each(|case| case.experiment.check())
    }

    /// Simulated iterations in all, for progress.
    pub fn total_iterations(&self) -> u64 {
        self.cases.iter().fold(0, |total, case| case.experiment.total_iterations().saturating_add(total))
    }

    /// Runs all cases in parallel; the results do not depend on the number of threads. `progress` is called with how
    /// many iterations were done.
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
            // A suite has many runs, and shows the course of none.
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
