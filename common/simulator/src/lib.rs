//! Virtual time for the engine of `ata-scheduler`: the same engine that the coordinator drives, with simulated workers.
//!
//! # Layout
//! - `law`: [`TimeLaws`], how long tasks take, as users write it
//! - `times`: [`TaskTimes`] and its sources: laws, and recorded times
//! - `change`: [`Change`], what happens to a cluster during a run
//! - `cluster`: the virtual workers; `completions`: their pending results
//! - `drive`: [`Simulation`], the driver
//! - `truth`: [`Foreseen`], times that are known before they are drawn, for the policies that are told
//! - `learning`: [`Learning`], gradients computed once per distinct sequence of steps
//! - `problem`: [`Problem`], what a simulated run optimizes

mod change;
mod cluster;
mod completions;
mod drive;
mod law;
mod learning;
mod problem;
mod times;
mod truth;

pub use change::{Change, When};
pub use drive::{Observer, Simulation, SimulationError, Start, Step};
pub use law::{LawError, TimeLaws, WorkerLaw, trace_columns};
pub use learning::{Descent, Learned, Learning, LearningRun, LearningStep};
pub use problem::{LinearRegression, Problem, ProblemError, Quadratic, RegressionSizes};
pub use times::{LawTimes, RecordedTimes, TaskTimes, worker_rng};
pub use truth::{ClusterTruth, Foreseen};
