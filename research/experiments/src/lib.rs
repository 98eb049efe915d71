//! Experiments: policies × time laws × numbers of workers × seeds, from readable files.
//!
//! # Layout
//! - `spec`: [`Experiment`], the file; `change`: changes during its runs; `error`: errors of experiments
//! - `builtin`: the built-in experiments
//! - `run`: runs all cases in parallel
//! - `problem`: the learning problems of simulated runs; `descent`: [`DescentCache`], gradients computed once per distinct sequence of
//!   steps
//! - `regret`: the excess cost of an allocation over the best one; `exponentials`: the maximum of exponential times
//! - `trace`: the progress of a run, at some of its iterations
//! - `summary`: means over seeds, as a table
//! - [`suite`]: several experiments under one name, compared with an oracle
//! - `plots`: results as figures

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

pub use builtin::{BUILTIN_EXPERIMENTS, experiment_names};
pub use change::{ChangeSpec, Workers};
pub use descent::{Descent, DescentCache, DescentStep, StepResult};
pub use error::ExperimentError;
pub use plots::figures;
pub use run::{RunResult, run};
pub use spec::{Experiment, LearningSpec, LimitsSpec};
pub use summary::{Group, Row, groups};
pub use trace::{Checkpoint, Trace};
