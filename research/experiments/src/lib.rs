//! Experiments: policies × time laws × numbers of workers × seeds, from readable files.
//!
//! # Layout
//! - `spec`: [`Experiment`], the file; `change`: what happens during its runs; `error`: what may be wrong with it
//! - `builtin`: the ones that come with ata
//! - `run`: runs all cases in parallel
//! - `problem`: [`Problem`], what a simulated run optimizes; `descent`: [`DescentCache`], gradients computed once per distinct
//!   sequence of steps
//! - `regret`: what an allocation costs beyond the best; `exponentials`: the maximum of exponential times
//! - `trace`: the course of a run, at some of its iterations
//! - `summary`: means over seeds, as a table
//! - [`suite`]: several experiments under one name, compared with an oracle
//! - `plots`: the same as figures

mod builtin;
mod change;
mod descent;
mod error;
mod exponentials;
mod plots;
mod problem;
mod regret;
mod run;
mod spec;
pub mod suite;
mod summary;
mod trace;

pub use builtin::BUILTIN_EXPERIMENTS;
pub use change::{ChangeSpec, Workers};
pub use descent::{CachedDescent, Descent, DescentCache, DescentStep, StepResult};
pub use error::ExperimentError;
pub use plots::figures;
pub use problem::{LinearRegression, Problem, ProblemError, Quadratic, RegressionSizes};
pub use run::{RunResult, run};
pub use spec::{Experiment, LearningSpec, LimitsSpec, MAX_BUDGET};
pub use summary::{Group, Row, groups};
pub use trace::{Checkpoint, Trace};
