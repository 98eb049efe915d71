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

mod probing;
mod rates;
mod throughput;
mod times;

pub use rates::{LinkRates, LinkSetting, Observed, Seen};
pub use times::{LinkTimes, OwnTimes, Topology};
