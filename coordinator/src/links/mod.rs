//! The links of the workers.
//!
//! # Layout
//! - `meter`: measures the vectors that arrive
//! - `recorded`: what of it is in the journal

mod meter;
mod recorded;

pub(crate) use meter::{LinkMeter, Metered, WorkerMeter};
pub(crate) use recorded::RecordedLinks;
