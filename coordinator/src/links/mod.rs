//! The links of the workers.
//!
//! # Layout
//! - `meter`: measures the vectors that arrive
//! - `recorded`: which measurements are written to the journal

mod meter;
mod recorded;

pub(crate) use meter::LinkMeter;
pub(crate) use recorded::RecordedLinks;
