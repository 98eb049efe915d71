//! Experiments: policies × time laws × numbers of workers × seeds, from readable files.
//!
//! # Layout
//! - `spec`: [`Experiment`], the file; `change`: what happens during its runs; `error`: what may be wrong with it
//! - `links`: the links that vectors travel on
//! - `builtin`: the ones that come with ata
//! - `run`: runs all cases in parallel
//! - `plan`: [`PlanSpec`], whether ata helps on given machines
//! - `regret`: what an allocation costs beyond the best; `exponentials`: the maximum of exponential times
//! - `trace`: the course of a run, at some of its iterations
//! - `summary`: means over seeds, as a table
//! - [`suite`]: several experiments under one name, compared with an oracle
//! - `plots`: the same as figures

mod builtin;
mod change;
mod error;
mod exponentials;
mod links;
mod plan;
mod plots;
mod regret;
mod run;
mod spec;
pub mod suite;
mod summary;
mod trace;

pub use builtin::BUILTIN_EXPERIMENTS;
pub use change::{ChangeSpec, Workers};
pub use error::ExperimentError;
pub use links::LinksSpec;
pub use plan::{Machine, Plan, PlanSpec, StepCost, TaskSize, WORTHWHILE, Worth};
pub use plots::figures;
pub use run::{PolicyResolver, RunResult, run};
pub use spec::{Experiment, LearningSpec, LimitsSpec, MAX_BUDGET};
pub use summary::{Group, Row, groups};
pub use trace::{Checkpoint, Trace};
