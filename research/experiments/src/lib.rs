//! Experiments: policies × time laws × numbers of workers × seeds, from readable files.
//!
//! # Layout
//! - `spec`: [`Experiment`], the file, and the built-in ones; `change`: changes during its runs
//! - `run`: runs all cases in parallel
//! - `problem`: the learning problems of simulated runs; `descent`: [`DescentCache`], gradients computed once per distinct sequence of
//!   steps
//! - `regret`: the excess cost of an allocation over the best one; `exponentials`: the maximum of exponential times
//! - `trace`: the progress of a run, at some of its iterations
//! - `summary`: means over seeds, as a table
//! - [`suite`]: several experiments under one name, compared with an oracle
//! - `plots`: results as figures

mod change;
mod descent;
mod exponentials;
mod plots;
mod problem;
mod regret;
mod run;
mod spec;
pub mod suite;
mod summary;
mod trace;

pub use change::{ChangeSpec, Workers};
pub use descent::{Descent, DescentCache, DescentStep, StepResult};
pub use plots::figures;
pub use run::{RunResult, run};
pub use spec::{BUILTIN_EXPERIMENTS, Experiment, ExperimentError, LearningSpec, LimitsSpec, experiment_names};
pub use summary::{Group, Row, groups};
pub use trace::{Checkpoint, Trace};
