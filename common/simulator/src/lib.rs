//! Runs the engine of `ata-scheduler` in virtual time: the same engine that the coordinator drives, with simulated workers.
//!
//! # Layout
//! - `law`: [`TimeLaws`], the laws of task times, as users write them
//! - `times`: [`TaskTimes`] and its sources: laws, and recorded times
//! - `truth`: [`OracleTimes`], which can be looked up before they are drawn, for policies that may know them
//! - `change`: [`Change`], a change that happens to a cluster during a run
//! - `simulation`: [`Simulation`], a cluster and its run; `observer`: [`Observer`], the caller's side of a run
//! - `drive`: the driver; `agenda`: what it has to do at some time; `order`: the next step, and the leases that are assigned
//! - `cluster`: the virtual workers, within reach of the driver, over links or across a network
//! - `links`: [`Links`], on which gradients and parameters travel; `links_spec`: [`LinksSpec`], the links as users write
//!   them; `shards`: the exchange of vectors among workers
//! - `network`: [`VirtualNetwork`], messages and their faults
//! - `error`: [`SettingError`] and [`SimulationError`]

mod agenda;
mod change;
mod cluster;
mod drive;
mod error;
mod law;
mod links;
mod links_spec;
mod network;
mod observer;
mod order;
mod shards;
mod simulation;
mod times;
mod truth;

pub use change::{Change, Moment};
pub use error::{SettingError, SimulationError};
pub use law::{LawError, TimeLaws, WorkerLaw, trace_columns};
pub use links::{Bandwidth, Links};
pub use links_spec::{LinksSpec, time_s};
pub use network::{Direction, Faults, Message, MessageCounts, Partition, VirtualNetwork, VirtualSession};
pub use observer::{ExchangeTime, IterationStart, Observer, Restart, Step};
pub use simulation::{MAX_BUDGET, Simulation};
pub use times::{LawTimes, RecordedTimes, TaskTimes, worker_rng};
pub use truth::{ClusterTruth, OracleTimes};
