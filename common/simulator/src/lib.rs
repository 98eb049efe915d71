//! Virtual time for the engine of `ata-scheduler`: the very engine the coordinator drives, with simulated workers.
//!
//! # Layout
//! - `law`: [`TimeLaws`], how long tasks take, as users write it
//! - `times`: [`TaskTimes`] and its sources: laws, and recorded times
//! - `drive`: [`simulate`], the driver

mod drive;
mod law;
mod times;

pub use drive::simulate;
pub use law::{LawError, TimeLaws, WorkerLaw};
pub use times::{LawTimes, RecordedTimes, TaskTimes, worker_rng};
