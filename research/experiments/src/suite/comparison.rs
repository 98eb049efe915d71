//! The suite `comparison`: a wide range of conditions for policies that learn unknown speeds.

use std::path::Path;

use super::{Suite, SuiteCase, pai};
use crate::{Experiment, ExperimentError};

pub(super) const TITLE: &str = "Policies compared";

/// The policies that suites compare if none are named: those whose step takes exactly B gradients.
pub const CONTENDERS: &[&str] = &[
    "ata-auto",
    "ata-empirical",
    "ema",
    "proportional",
    "controller",
    "affine",
    "pull",
    "gradient-coding",
    "uta",
    "gta",
    "clairvoyant",
];

/// Laws in which worker i's mean is proportional to i or √i: those of the ATA paper (arXiv 2502.00775), noisier and less noisy ones.
const LAWS: [(&str, &str); 12] = [
    ("shifted exponential", "shifted_exp(29*i, 29*i)"),
    ("square-root speeds", "shifted_exp(29*sqrt(i), 29*sqrt(i))"),
    ("exponential", "exp(58*i)"),
    ("uniform", "uniform(29*i, 87*i)"),
    ("half-normal", "half_normal(29*i, 36*i)"),
    ("log-normal, σ = 0.5", "lognormal(0, ln(50*i), 0.5)"),
    ("gamma, shape 2", "gamma(10*i, 2, 24*i)"),
    ("constant", "const(58*i)"),
    (
        "five laws in turn",
        "exp(58*i); uniform(29*i, 87*i); gamma(0, 0.5, 116*i); const(58*i); lognormal(0, ln(30*i), 1.2)",
    ),
    ("gamma, shape 0.5", "gamma(0, 0.5, 116*i)"),
    ("Weibull, shape 0.5", "weibull(0, 0.5, 29*i)"),
    ("log-normal, σ = 1.2", "lognormal(0, ln(30*i), 1.2)"),
];

/// Built-in experiments that are hard for policies, each a group of its own.
const HARD_CASES: [&str; 8] = [
    "common-mode",
    "drift",
    "near-ties",
    "heavy-tails",
    "hidden-gem",
    "small-tasks",
    "independent-changes",
    "many-workers",
];

/// The number of seeds per case: few are enough, as there are many cases.
const SEEDS: u64 = 10;
/// The numbers of iterations on [`LAWS`]: enough to learn the speeds, and hardly enough.
const ITERATIONS: [u64; 2] = [1000, 100];

pub(super) fn suite(data: Option<&Path>) -> Result<Suite, ExperimentError> {
    let mut cases = Vec::new();
    for iterations in ITERATIONS {
        cases.extend(LAWS.map(|(name, law)| SuiteCase {
            group: format!("Twelve laws, K = {iterations}"),
            name: name.into(),
            experiment: Experiment {
                laws: vec![law.into()],
                workers: vec![17, 51, 153],
                iterations,
                seeds: SEEDS,
                ..Experiment::default()
            },
        }));
    }
    for name in HARD_CASES {
        let experiment = Experiment { seeds: SEEDS, ..Experiment::open(name)? };
        cases.push(SuiteCase { group: experiment.title.clone(), name: name.into(), experiment });
    }
    let mut about = vec![
        "What each policy costs, relative to an oracle that knows the true mean times of the moment and gives each worker its \
         best share: runtime / total worker time, so 1.20 / 0.95 is a fifth slower with a twentieth less work. `clairvoyant` \
         knows how long the tasks of the coming iteration will take; `gta` and `gradient-coding` compute more tasks than they use."
            .into(),
        "Twelve laws of task times with 17, 51 and 153 workers, and B = 23 tasks per iteration; then cases that are hard for \
         policies of some kind."
            .into(),
    ];
    if let Some(data) = data {
        let recorded = pai::suite(Some(data))?;
        about.extend(recorded.about);
        cases.extend(recorded.cases);
    }
    Ok(Suite { title: TITLE.into(), about, cases })
}
