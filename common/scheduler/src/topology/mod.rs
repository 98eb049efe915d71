//! Who exchanges vectors with whom, given what is known of the links.
//!
//! It is part of the policy: the coordinator and the simulator report what they observe ([`Observed`]), and carry out what follows
//! from it. docs/explanation/links.md has the formulas and their reasons.
//!
//! # Layout
//! - `times`: [`LinkTimes`], the time that vectors take, and whether shards are worth it
//! - `rates`: [`LinkRates`], what was learned about each link
//! - `throughput`: bytes and seconds of which a rate follows
//! - `probing`: when a link that is not in use is measured again
//! - `pairs`: [`WorkerPairs`], how fast vectors are on the ways between workers, and who is to blame for an exchange that fails
//! - `reach`: [`Reach`], which workers reach each other
//! - `plan`: [`ShardPlan`], in which iterations which workers exchange vectors in shards
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
pub use pairs::{Evidence, Ways, WorkerPairs};
pub use plan::ShardPlan;
pub use rates::{LinkRates, LinkSetting, Observed, Seen};
pub use reach::Reach;
pub use times::{LinkTimes, OwnTimes, Topology};
