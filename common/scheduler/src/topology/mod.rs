//! Decides which workers exchange vectors, given what is known about the links.
//!
//! This is part of the policy: the coordinator and the simulator report what they observe ([`Observed`]), and carry out the
//! decisions. docs/explanation/links.md has the formulas and their reasons.
//!
//! # Layout
//! - `times`: [`LinkTimes`], the time that vectors take, and whether shards are worth it
//! - `rates`: [`LinkRates`], what was learned about each link
//! - `throughput`: the bytes and seconds from which a rate follows
//! - `probing`: when a link that is not in use is measured again
//! - `pairs`: [`WorkerPairs`], the speed of the paths between workers, and the blame for exchanges that fail
//! - `reach`: [`Reach`], which workers reach each other
//! - `plan`: [`ShardPlan`], which determines when which workers exchange vectors in shards
//! - `lateness`: [`VectorProgress`], and when a vector is no longer waited for

mod lateness;
mod pairs;
mod plan;
mod probing;
mod rates;
mod reach;
mod throughput;
mod times;

pub use lateness::VectorProgress;
pub use pairs::{Evidence, Senders, WorkerPairs};
pub use plan::ShardPlan;
pub use rates::{LinkRates, LinkSetting, Observed, Seen};
pub use reach::Reach;
pub use times::{LinkTimes, OwnTimes, Topology};
