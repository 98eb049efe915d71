//! Experiment files, and the built-in ones.

use std::fmt::Display;

use ata_policies::POLICIES;
use ata_scheduler::{Limits, PolicyKind};
use ata_simulator::{Change, LawError, LinksSpec, MAX_BUDGET, Moment, SettingError, TimeLaws};
use ata_types::did_you_mean;
use serde::Deserialize;

use crate::change::{ChangeSpec, MAX_CHANGES};

/// An experiment: every policy on every law, number of workers and seed. Times have no unit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Experiment {
    /// The report's title.
    pub title: String,
    /// A description of the experiment and its source.
    pub about: String,
    /// The policies, as accepted by `--policy`.
    pub policies: Vec<String>,
    /// The time laws.
    pub laws: Vec<String>,
    /// Numbers of workers, n.
    pub workers: Vec<u32>,
    /// Tasks per iteration, B.
    pub budget: u64,
    /// The number of iterations, K.
    pub iterations: u64,
    /// The first seed.
    pub seed: u64,
    /// The number of seeds.
    pub seeds: u64,
    /// The time law of the overhead of an assignment, before the worker computes; no overhead if not given.
    pub overhead: Option<String>,
    /// The time in which a worker must report its first result ([`ata_scheduler::EngineConfig::lease_timeout_s`]); no limit if not given.
    pub lease_timeout: Option<f64>,
    /// The shares of tasks that barrier policies allocate beyond B.
    pub overcommit: Vec<f64>,
    /// The share of leases that two workers compute, under policies that wait for all of their tasks.
    pub verify: f64,
    /// The prior knowledge: `none`, or a law under which each worker was observed for [`Self::warm_tasks`] tasks.
    pub warm_start: Vec<String>,
    /// The number of tasks of each worker that were observed beforehand.
    pub warm_tasks: u64,
    /// The links that vectors travel on; without them, vectors take no time.
    pub links: Option<LinksSpec>,
    /// The limits that end runs early.
    pub limits: LimitsSpec,
    /// The training, if any.
    pub learning: Option<LearningSpec>,
    /// The changes during a run.
    pub change: Vec<ChangeSpec>,
}

impl Default for Experiment {
    fn default() -> Self {
        Self {
            title: "Simulation".into(),
            about: String::new(),
            policies: ["fta", "ata-auto", "ata-empirical", "gta", "uta"].map(String::from).into(),
            laws: vec!["shifted_exp(29*i, 29*i)".into()],
            workers: vec![51],
            budget: 23,
            iterations: 1000,
            seed: 1,
            seeds: 1,
            overhead: None,
            links: None,
            lease_timeout: None,
            overcommit: vec![0.0],
            verify: 0.0,
            warm_start: vec!["none".into()],
            warm_tasks: 100,
            limits: LimitsSpec::default(),
            learning: None,
            change: Vec::new(),
        }
    }
}

/// [`Limits`] in virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsSpec {
    /// The mean loss of a step's tasks.
    pub target_loss: Option<f64>,
    /// The virtual runtime.
    pub runtime: Option<f64>,
    /// The virtual total worker time.
    pub total_worker_time: Option<f64>,
    /// The number of worker-iterations with at least one task.
    pub employments: Option<u64>,
}

impl LimitsSpec {
    /// Whether a run ends only after its iterations.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            target_accuracy: None,
            target_loss: self.target_loss,
            runtime_s: self.runtime,
            total_worker_time_s: self.total_worker_time,
            employments: self.employments,
        }
    }
}

/// The training of a simulated run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "problem", rename_all = "kebab-case", deny_unknown_fields)]
pub enum LearningSpec {
    /// The quadratic of the ATA paper.
    Quadratic {
        /// The number of parameters, d.
        dimension: usize,
        /// The standard deviation of the gradient noise, per coordinate.
        sigma: f64,
        /// Step size, γ.
        step: f64,
    },
    /// The linear regression of the bandit paper.
    LinearRegression {
        /// The number of samples, m.
        samples: usize,
        /// The number of parameters, d.
        dimension: usize,
        /// Samples per task.
        batch: usize,
        /// Step size, γ; the largest stable one is about 2/(30·d).
        step: f64,
    },
    /// The CNN that `ata up` trains.
    Cnn {
        /// `synthetic`, or the path of CIFAR-100.
        data: String,
        /// The model, as accepted by `--model`.
        model: String,
        /// Samples per task.
        task_batch: u32,
        /// Adam's step size.
        lr: f64,
    },
}

impl Experiment {
    /// Opens a built-in experiment, or reads one from a file.
    pub fn open(name: &str) -> Result<Self, ExperimentError> {
        if let Some((_, text)) = BUILTIN_EXPERIMENTS.iter().find(|(known, _)| *known == name) {
            return Self::parse(text, name);
        }
        let text = std::fs::read_to_string(name).map_err(|cause| {
            let (names, hint) = (experiment_names().collect::<Vec<_>>(), did_you_mean(name, experiment_names()));
            let names = names.join(", ");
            ExperimentError::Invalid(format!("experiment {name}{hint}: {cause}. Built-in experiments: {names}"))
        })?;
        Self::parse(&text, name)
    }

    /// Parses the text of a file. Error messages refer to it as `name`.
    pub fn parse(text: &str, name: &str) -> Result<Self, ExperimentError> {
        toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            ExperimentError::Invalid(format!("experiment {name}, line {line}: {}", error.message()))
        })
    }

    /// Returns the label of the loss for axes.
    pub(super) fn loss_label(&self) -> &'static str {
        match self.learning {
            Some(LearningSpec::Quadratic { .. }) => "f(x) − min f",
            Some(LearningSpec::LinearRegression { .. }) => "F(w) − min F",
            Some(LearningSpec::Cnn { .. }) | None => "mean loss of the step's tasks (nats)",
        }
    }

    /// Checks everything that can be checked before a run.
    pub fn check(&self) -> Result<(), ExperimentError> {
        let lists = [
            ("policies", self.policies.len()),
            ("laws", self.laws.len()),
            ("workers", self.workers.len()),
            ("overcommit", self.overcommit.len()),
            ("warm_start", self.warm_start.len()),
        ];
        for (name, entries) in lists {
            check(name, &"an empty list", entries > 0, "at least one")?;
        }
        for (name, value, most) in [
            ("budget", self.budget, MAX_BUDGET),
            ("iterations", self.iterations, MAX_ITERATIONS),
            ("seeds", self.seeds, MAX_RUNS),
            ("warm_tasks", self.warm_tasks, MAX_WARM_TASKS),
        ] {
            check(name, &value, (1..=most).contains(&value), &format!("a whole number from 1 to {most}"))?;
        }
        check("seed", &self.seed, self.seed <= MAX_SEED, &format!("a whole number of at most {MAX_SEED}"))?;
        for &workers in &self.workers {
            let expected = format!("a whole number from 1 to {MAX_WORKERS}");
            check("workers", &workers, (1..=MAX_WORKERS).contains(&workers), &expected)?;
        }
        for &share in &self.overcommit {
            check("overcommit", &share, (0.0..=10.0).contains(&share), "a number from 0 to 10")?;
        }
        let runs = lists.iter().fold(self.seeds, |runs, (_, entries)| runs.saturating_mul(*entries as u64));
        check("runs", &runs, runs <= MAX_RUNS, &format!("at most {MAX_RUNS} policies × laws × workers × seeds"))?;
        check("verify", &self.verify, (0.0..=1.0).contains(&self.verify), "a number from 0 to 1")?;
        let limits = self.limits;
        for (name, limit) in [
            ("limits.target_loss", limits.target_loss),
            ("limits.runtime", limits.runtime),
            ("limits.total_worker_time", limits.total_worker_time),
            ("lease_timeout", self.lease_timeout),
        ] {
            limit.map_or(Ok(()), |limit| check(name, &limit, limit.is_finite() && limit > 0.0, "a positive number"))?;
        }
        for law in self.laws.iter().chain(&self.overhead).chain(self.warm_start.iter().filter(|law| *law != "none")) {
            let laws: TimeLaws = law.parse()?;
            let relative = laws.is_relative();
            check("law", &law, !relative, "times: scale(x) needs real computations, and is for `ata up` only")?;
            for &workers in &self.workers {
                laws.means(workers)?;
            }
        }
        let links = self.links.as_ref().map(LinksSpec::links).transpose()?;
        for policy in self.policies.iter().filter(|_| links.is_some_and(|links| links.whole)) {
            let waits = POLICIES.kind(policy) == PolicyKind::Barrier;
            check("policies", policy, waits, "those that wait for all tasks, with links.difference_bits")?;
        }
        self.workers.iter().try_for_each(|&workers| self.changes(workers).map(drop))
    }

    /// Returns the changes in a run of `workers` workers, after checking them.
    pub(super) fn changes(&self, workers: u32) -> Result<Vec<(Moment, Change)>, ExperimentError> {
        let mut all = Vec::new();
        for (at, change) in (1..).zip(&self.change) {
            let name = format!("change {at}");
            all.extend(change.expand(&name, workers, self.iterations)?);
            let found = format!("{} changes so far", all.len());
            check(&name, &found, all.len() as u64 <= MAX_CHANGES, "at most a million in all")?;
        }
        Ok(all)
    }
}

/// The largest number of iterations: with more, no run would ever end.
const MAX_ITERATIONS: u64 = 1_000_000_000_000;
/// The largest number of runs, one for each policy, law, number of workers and seed: each takes 20 kB until the end.
const MAX_RUNS: u64 = 100_000;
/// The largest first seed: as in a real run, and later seeds cannot overflow.
const MAX_SEED: u64 = u64::MAX >> 1;
/// The largest number of tasks that were observed beforehand: with more, the mean of a worker's times is practically known.
const MAX_WARM_TASKS: u64 = 1_000_000;
/// The largest number of workers: each takes a few hundred bytes.
const MAX_WORKERS: u32 = 1_000_000;

pub(super) fn check(setting: &str, found: &dyn Display, good: bool, expected: &str) -> Result<(), ExperimentError> {
    Ok(SettingError::check(setting, found, good, expected)?)
}

pub(super) fn bad<T>(
    setting: &str,
    found: impl Into<String>,
    expected: impl Into<String>,
) -> Result<T, ExperimentError> {
    Err(SettingError::new(setting, found, expected).into())
}

/// Includes an experiment that is hard for policies. All of these compare the policies that `hard-cases.toml` names.
macro_rules! hard_case {
    ($file:literal) => {
        concat!(include_str!("../builtin/hard-cases.toml"), include_str!(concat!("../builtin/", $file)))
    };
}

/// The name and the text of each built-in experiment.
pub const BUILTIN_EXPERIMENTS: &[(&str, &str)] = &[
    ("ata-quadratic", include_str!("../builtin/ata-quadratic.toml")),
    ("ata-cifar100", include_str!("../builtin/ata-cifar100.toml")),
    ("ata-sizes", include_str!("../builtin/ata-sizes.toml")),
    ("ata-sqrt", include_str!("../builtin/ata-sqrt.toml")),
    ("ata-heterogeneous", include_str!("../builtin/ata-heterogeneous.toml")),
    ("ata-regret", include_str!("../builtin/ata-regret.toml")),
    ("ata-warm-start", include_str!("../builtin/ata-warm-start.toml")),
    ("cmab-regression", include_str!("../builtin/cmab-regression.toml")),
    ("speed-change", include_str!("../builtin/speed-change.toml")),
    ("frontier", include_str!("../builtin/frontier.toml")),
    ("overcommit", include_str!("../builtin/overcommit.toml")),
    ("common-mode", hard_case!("common-mode.toml")),
    ("drift", hard_case!("drift.toml")),
    ("near-ties", hard_case!("near-ties.toml")),
    ("heavy-tails", hard_case!("heavy-tails.toml")),
    ("hidden-gem", hard_case!("hidden-gem.toml")),
    ("small-tasks", hard_case!("small-tasks.toml")),
    ("independent-changes", hard_case!("independent-changes.toml")),
    ("many-workers", hard_case!("many-workers.toml")),
];

/// Returns the names of the built-in experiments and suites.
pub fn experiment_names() -> impl Iterator<Item = &'static str> {
    BUILTIN_EXPERIMENTS.iter().chain(crate::suite::SUITES).map(|(name, _)| *name)
}

/// An error of an experiment.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The file cannot be read or does not parse, or a policy or a learning problem is invalid.
    #[error("{0}")]
    Invalid(String),
    /// A setting is invalid.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A time law is invalid.
    #[error(transparent)]
    Law(#[from] LawError),
    /// A run ended early with an error, or a gradient could not be computed.
    #[error("{0}")]
    Run(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_with_its_place() {
        for (text, message) in [
            ("\nbugdet = 3\n", "experiment x, line 2: unknown field `bugdet`"),
            ("budget = 0", "budget: 0, expected a whole number from 1"),
            ("workers = []", "workers: an empty list"),
            ("laws = ['exp(x)']", "at character 5"),
            ("laws = ['scale(2)']", "is for `ata up` only"),
            ("laws = ['exp(2-i)']", "mean is"),
            ("overhead = 'const(0-1)'", "x is -1"),
            ("warm_start = ['exp(']", "at character 5"),
            ("[links]\nlink = '1Gbit'", "missing field `model_bytes`"),
            ("[links]\nlink = '1Gbit'\nmodel_bytes = '1Mbit'", "links.model_bytes: 1Mbit, expected a size"),
            ("[links]\nlink = '1Gbit'\nmodel_bytes = '1MB'\nwire = 'f16'", "unknown variant `f16`"),
            ("[limits]\nruntime = -3.0", "limits.runtime: -3"),
            ("[learning]\nproblem = 'chess'", "unknown variant `chess`"),
        ] {
            let error = Experiment::parse(text, "x").and_then(|experiment| experiment.check()).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
